"""Judging who may go on under bounded staleness, when each iteration then ends, and how stale each update is."""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Sequence
from random import Random

from mlsyslab.check.data_parallel.unaided import UnaidedFormula
from mlsyslab.check.exercise import Case
from mlsyslab.check.messages import article, is_number, is_whole

#: how a bound is called
NAMES = {0: "0 (BSP)", math.inf: "infinity (ASP)"}


def named(s: float) -> str:
    return NAMES.get(s, str(s))


class MayStart(UnaidedFormula):
    name = "may_start"

    def cases(self, rng: Random) -> list[Case]:
        cases = [self.case([9, 5, 8], 1, 2)]  # the slowest, far behind
        for s in (2, 0, 1, math.inf, 3, rng.randint(1, 4)):
            W = rng.randint(3, 6)
            slowest = rng.randint(1, 9)
            for ahead in (s, s + 1, 0) if s < math.inf else (20, 0):
                clocks = [slowest, slowest + ahead, *(slowest + rng.randint(0, min(3, ahead)) for _ in range(W - 2))]
                rng.shuffle(clocks)
                for worker in {clocks.index(slowest + ahead), clocks.index(slowest)}:
                    cases.append(self.case(clocks, worker, s))
        return [*cases, self.case([5], 0, 0)]

    def case(self, clocks: list[int], worker: int, s: float) -> Case:
        return Case((clocks, worker, s), clocks[worker] - min(clocks) <= s, {"bound s": named(s), "workers": len(clocks)})

    def compare(self, came, case):
        clocks, worker, s = case.arguments
        if not is_truth(came):
            return f"it returned {article(type(came).__name__)}, {came!r}; expected True or False"
        if bool(came) == case.expected:
            return None
        ahead = clocks[worker] - min(clocks)
        text = f"may_start({clocks}, worker={worker}, s={s}) came as {came}, expected {case.expected}"
        if not came and worker in slowest_of(clocks):
            return f"{text}\n  The slowest worker is never held, however far the others are ahead: nobody could go on."
        if came and worker not in slowest_of(clocks) and ahead == s + 1:
            return (f"{text}\n  It has completed {ahead} more than the slowest one, and s is {s}: it waits until the "
                    "slowest one has caught up by one.")
        if not came and ahead == s:
            return (f"{text}\n  It has completed {ahead} more than the slowest one, which is not more than s = {s}: it may "
                    "start.")
        return f"{text}\n  What counts is how far this worker is ahead of the slowest one, and that is {ahead}."


def is_truth(value: object) -> bool:
    """Whether it is True or False, NumPy's included."""
    return isinstance(value, bool) or type(value).__name__ in ("bool_", "bool")


def slowest_of(clocks: Sequence[int]) -> set[int]:
    return {worker for worker, clock in enumerate(clocks) if clock == min(clocks)}


class FinishTimes(UnaidedFormula):
    name = "finish_times"

    def cases(self, rng: Random) -> list[Case]:
        cases = []
        for s in (0, 1, math.inf, 2, 3, 10, rng.randint(1, 4)):
            for W, K in ((3, 6), (rng.randint(2, 6), rng.randint(4, 9))):
                seconds = [[float(rng.randint(1, 9)) for _ in range(K)] for _ in range(W)]
                cases.append(self.case(seconds, s))
        slow = [[1.0] * 8, [1.0] * 8, [1.0] * 3 + [9.0] + [1.0] * 4]
        return [self.case(slow, 2), *cases, self.case([[2.0, 3.0]], 0)]

    def case(self, seconds: list[list[float]], s: float) -> Case:
        return Case((seconds, s), played(seconds, s), {"bound s": named(s), "workers": len(seconds)})

    def compare(self, came, case):
        seconds, s = case.arguments
        W, K = len(seconds), len(seconds[0])
        if not isinstance(came, (list, tuple)) or len(came) != W or not all(
                isinstance(row, (list, tuple)) and len(row) == K and all(map(is_number, row)) for row in came):
            return f"it returned {told(came)}, {str(came)[:80]}; expected {W} lists, one a worker, of {K} numbers each"
        wrong = next(((w, k) for k in range(K) for w in range(W) if not close(came[w][k], case.expected[w][k])), None)
        if wrong is None:
            return None
        w, k = wrong
        text = (f"worker {w}'s iteration {k} ends at {float(came[w][k]):g}, expected {case.expected[w][k]:g}, "
                f"with seconds = {seconds}")
        likely = next((words for way, words in FINISHES
                       if agree(came, other := way(seconds, s)) and not agree(other, case.expected)), None)
        return f"{text}\n  {likely}" if likely else text


def told(came: object) -> str:
    """What kind of thing it is: `a str`, `a list with a Tensor in it`, `a list of lists with a Tensor in them`."""
    kind = article(type(came).__name__)
    if not isinstance(came, (list, tuple)) or not came:
        return kind
    if others := [row for row in came if not isinstance(row, (list, tuple))]:
        return f"{kind} with {article(type(others[0]).__name__)} in it"
    others = [number for row in came for number in row if not is_number(number)]
    return f"{kind} of lists" + (f" with {article(type(others[0]).__name__)} in them" if others else "")


def played(seconds: Sequence[Sequence[float]], s: float) -> list[list[float]]:
    """When each iteration ends, event by event: whoever may start does, and the earliest end comes next."""
    W, K = len(seconds), len(seconds[0])
    done, ends, running, waiting, now = [0] * W, [[] for _ in range(W)], [], set(range(W)), 0.0
    while True:
        for worker in sorted(waiting):
            if done[worker] < K and done[worker] - min(done) <= s:
                heapq.heappush(running, (now + seconds[worker][done[worker]], worker))
                waiting.discard(worker)
        if not running:
            return ends
        now = running[0][0]
        while running and running[0][0] == now:
            worker = heapq.heappop(running)[1]
            ends[worker].append(now)
            done[worker] += 1
            waiting.add(worker)


def by_recurrence(seconds: Sequence[Sequence[float]], back: float, own: bool = True) -> list[list[float]]:
    """The recurrence of the exercise, and its usual slips.

    back: to start iteration k, all must have ended iteration k - back.  own: whether a worker's own come in turn.
    """
    W, K = len(seconds), len(seconds[0])
    ends: list[list[float]] = [[] for _ in range(W)]
    for k in range(K):
        due = 0.0 if k - back < 0 else max(ends[w][int(k - back)] for w in range(W))
        for w in range(W):
            begun = max(due, ends[w][-1] if ends[w] and own else 0.0)
            ends[w].append(begun + seconds[w][k])
    return ends


#: Ways that lead to other times, and what they leave out.
FINISHES: list[tuple[Callable, str]] = [
    (lambda seconds, s: by_recurrence(seconds, math.inf), "That is without any bound: nobody waits for anybody."),
    (lambda seconds, s: by_recurrence(seconds, 1), "That is BSP: everybody waits for everybody after every iteration."),
    (lambda seconds, s: by_recurrence(seconds, s + 2), "Workers run one further ahead than the bound allows: to start "
     "iteration k, all must have completed k - s iterations, that is, iteration k-s-1."),
    (lambda seconds, s: by_recurrence(seconds, max(1, s)), "Workers are held one iteration too early: to start iteration k, "
     "all must have completed k - s iterations, that is, iteration k-s-1."),
    (lambda seconds, s: by_recurrence(seconds, s + 1, own=False), "A worker's own iterations come one after the other: it "
     "can't start before it has ended the one before."),
]


def agree(came: Sequence[Sequence[float]], right: Sequence[Sequence[float]]) -> bool:
    return all(close(a, b) for one, other in zip(came, right, strict=True) for a, b in zip(one, other, strict=True))


def close(a: float, b: float) -> bool:
    return math.isclose(a, b, rel_tol=1e-9, abs_tol=1e-9)


Log = Sequence[tuple[str, int]]


class Staleness(UnaidedFormula):
    name = "staleness"

    def cases(self, rng: Random) -> list[Case]:
        return [self.case("in turn", [("pull", 0), ("pull", 1), ("push", 0), ("pull", 0), ("push", 1), ("push", 0)]),
                self.case("BSP", [(kind, w) for _ in range(3) for kind in ("pull", "push") for w in range(3)]),
                self.case("one slow", self.slow(4, 3)),
                self.case("several pushes after one pull", [("pull", 0), ("push", 0), ("push", 0), ("pull", 1), ("push", 0),
                                                            ("push", 1), ("push", 1)]),
                self.case("several pulls before one push",
                          [("pull", 0), ("pull", 1), ("push", 1), ("pull", 0), ("push", 0)]),
                self.case("one worker", [("pull", 0), ("push", 0)] * 4),
                self.case("no push", [("pull", 0), ("pull", 1)]),
                self.case("random", self.random(rng, 4, 30)), self.case("random", self.random(rng, 6, 60))]

    def slow(self, W: int, rounds: int) -> list[tuple[str, int]]:
        """The last worker pulls first and pushes last."""
        return [("pull", W - 1), *((kind, w) for _ in range(rounds) for kind in ("pull", "push") for w in range(W - 1)),
                ("push", W - 1)]

    def random(self, rng: Random, W: int, length: int) -> list[tuple[str, int]]:
        pulled: set[int] = set()
        log = []
        for _ in range(length):
            worker = rng.randrange(W)
            kind = rng.choice(("pull", "push", "push")) if worker in pulled else "pull"
            pulled.add(worker)
            log.append((kind, worker))
        return log

    def case(self, name: str, log: Log) -> Case:
        return Case((list(log),), counted(log), {"workers": len({w for _, w in log}), "log": name})

    def compare(self, came, case):
        log, right = case.arguments[0], case.expected
        if not isinstance(came, (list, tuple)) or not all(map(is_whole, came)):
            return f"it returned {article(type(came).__name__)}, {came!r}; expected a list of whole numbers, one a push"
        if len(came) != len(right):
            return f"it returned {len(came)} numbers; there are {len(right)} pushes in the log, and each has a staleness"
        wrong = next((i for i, (a, b) in enumerate(zip(came, right, strict=True)) if a != b), None)
        if wrong is None:
            return None
        at = [place for place, (kind, _) in enumerate(log) if kind == "push"][wrong]
        so_far = ", ".join(f"{kind} {w}" for kind, w in log[max(0, at - 20):at + 1])
        text = (f"the push at place {at} of the log, by worker {log[at][1]}, came as {came[wrong]}, expected "
                f"{right[wrong]}; the log up to there: {'… ' if at > 20 else ''}{so_far}")
        likely = next((words for way, words in COUNTS if list(came) == way(log) != right), None)
        return f"{text}\n  {likely}" if likely else text


def counted(log: Log, *, own: bool = True, since_push: bool = False, itself: bool = False, first_pull: bool = False
            ) -> list[int]:
    """The updates between each push and the pull before it.

    own: whether a worker's own earlier pushes count.  since_push: count from its last push or pull, whichever is later.
    itself: whether the push itself counts.  first_pull: count from the first pull since the last push.
    """
    since: dict[int, list[int]] = {}  # by worker: who has pushed since it pulled
    found, fresh = [], set()
    for kind, worker in log:
        if kind == "pull":
            if not (first_pull and worker in fresh):
                since[worker] = []
            fresh.add(worker)
            continue
        found.append(sum(own or other != worker for other in since[worker]) + itself)
        fresh.discard(worker)
        for pushed in since.values():
            pushed.append(worker)
        if since_push:
            since[worker] = []
    return found


def in_iterations(log: Log) -> list[int]:
    """How many pushes the slowest worker is behind."""
    done, found = dict.fromkeys({w for _, w in log}, 0), []
    for kind, worker in log:
        if kind == "push":
            found.append(done[worker] - min(done.values()))
            done[worker] += 1
    return found


def workers_between(log: Log) -> list[int]:
    """How many different workers have pushed since the pull."""
    since, found = {}, []
    for kind, worker in log:
        if kind == "pull":
            since[worker] = set()
        else:
            found.append(len(since[worker]))
            for pushed in since.values():
                pushed.add(worker)
    return found


def events_between(log: Log) -> list[int]:
    """How many lines of the log lie between."""
    at, found = {}, []
    for place, (kind, worker) in enumerate(log):
        if kind == "pull":
            at[worker] = place
        else:
            found.append(place - at[worker] - 1)
    return found


#: Other ways of counting, and what they get wrong.
COUNTS: list[tuple[Callable[[Log], list[int]], str]] = [
    (lambda log: counted(log, itself=True), "The push itself is counted: it is measured by what came before it."),
    (lambda log: counted(log, own=False), "A worker's own push changes the weights too: if it pushes twice after one pull, "
                                          "the second one is one update late."),
    (lambda log: counted(log, since_push=True), "Count from the worker's last pull: a push brings it no new weights."),
    (lambda log: counted(log, first_pull=True), "Count from the worker's last pull before the push, not from its first."),
    (events_between, "Pulls are counted too: only pushes change the weights."),
    (workers_between, "Each update counts, also when one worker has made several."),
    (in_iterations, "That is how far a worker is ahead of the slowest one; staleness is how many updates its weights miss."),
]
