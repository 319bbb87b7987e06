"""Judging a sharded parameter server: a step of push and pull, and updates that arrive more than once."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import torch

from mlsyslab.check import inputs
from mlsyslab.check.data_parallel.clocks import is_truth
from mlsyslab.check.data_parallel.unaided import UnaidedExercise, UnaidedFormula, near
from mlsyslab.check.exercise import Case
from mlsyslab.check.messages import article, count, is_whole, listing, values
from mlsyslab.check.runs import Outcome
from mlsyslab.comm import Deadlock, RankFailed
from mlsyslab.comm.communicator import describe


class PushPull(UnaidedExercise):
    name = "push_pull"
    forbidden = None  # messages are what this exercise is about

    def cases(self, rng: Random) -> list[Case]:
        grid = [(2, 3, 7), (2, 2, 6), (1, 3, 4), (3, 2, 8), (3, 5, 2), (1, 1, 3), (4, 1, 9),
                (rng.randint(2, 4), rng.randint(2, 5), rng.randint(5, 20))]
        return [self.case(rng, *numbers, (torch.float64, torch.float32)[k % 2]) for k, numbers in enumerate(grid)]

    def example(self, p):
        if p < 2:
            raise ValueError(f"check.{self.name}.show(p={p}): a server and a worker are two ranks, so p is 2 or more")
        return self.case(Random(0), p // 2, p - p // 2, 4 * p, torch.float32)

    def case(self, rng: Random, S: int, W: int, n: int, dtype: torch.dtype) -> Case:
        """S servers, W workers and n weights."""
        weight = inputs.tensor(rng, (n,), dtype, range(-40, 41))
        gradients = [inputs.tensor(rng, (n,), dtype) for _ in range(W)]
        rate = rng.choice((0.25, 0.375))
        shards = weight.tensor_split(S)
        new = weight - rate * sum(gradients) / W
        traits = {"world size": S + W, "servers": S, "workers": W, "length": n, "learning rate": rate}
        arguments = [(S, mine.clone(), rate) for mine in (*shards, *gradients)]
        return Case(arguments, [*(part.clone() for part in new.tensor_split(S)), *[new] * W], traits)

    # -- values -------------------------------------------------------------------------------------------------------

    def diagnose(self, case, outcome, fn):
        S, W, rate = case.traits["servers"], case.traits["workers"], case.arguments[0][2]
        weight = torch.cat([own[1] for own in case.arguments[:S]])
        gradients = [own[1] for own in case.arguments[S:]]
        total, came = sum(gradients), outcome.results[S]
        if not isinstance(came, torch.Tensor) or came.shape != weight.shape:
            return (f"A worker returns all {len(weight)} weights, its servers' shards one behind the other (torch.cat); "
                    "a server returns its own shard.")
        step = total / W
        if likely := self.early(case, outcome):
            return likely
        slips = [
            (weight - rate * total, f"The gradients were added up; divide by the number of workers, {W}: the update takes "
                                    "their mean."),
            (weight - rate * total / (S + W), f"The sum was divided by all {S + W} ranks; servers have no gradient: divide "
                                              f"by the {W} workers."),
            (weight - rate * total / S, f"The sum was divided by {S}, the number of servers; divide by that of workers."),
            (weight + rate * step, "That went up the slope: subtract the gradient."),
            (weight - step, "The learning rate is left out."),
            (weight, "Those are the old weights: answer after the update, not before."),
            (total, "That is the sum of the gradients: what a worker pulls is weights."),
            (step, "That is the mean of the gradients: what a worker pulls is weights."),
            *((weight - rate * g / divisor, f"Only the gradient of worker {w} (rank {S + w}) was applied.")
              for w, g in enumerate(gradients) if W > 1 for divisor in (1, W)),
        ]
        return next((text for right, text in slips if near(came, right)), None)

    def early(self, case: Case, outcome: Outcome) -> str | None:
        """Workers that were answered before the last push had come have different weights."""
        S = case.traits["servers"]
        pulled = [came for came in outcome.results[S:] if isinstance(came, torch.Tensor)]
        if any(not near(came, pulled[-1]) for came in pulled) and near(pulled[-1], case.expected[-1]):
            return ("The last worker has the right weights, others have earlier ones: apply all pushes first, then answer "
                    "all pulls. Otherwise this is no synchronous step.")
        return None

    # -- the way they came --------------------------------------------------------------------------------------------

    def judge(self, case, outcome):
        S, W = case.traits["servers"], case.traits["workers"]
        for message in outcome.sent:
            if (message.rank < S) == (message.to < S):
                kind = "servers" if message.rank < S else "workers"
                return (f"rank {message.rank} sent {count(message.tensor.numel(), 'element')} to rank {message.to}, both "
                        f"{kind}: workers talk to servers, and to nobody else")
        for worker in range(S, S + W):
            for server in range(S):
                due = len(case.arguments[server][1])
                for source, to, what in ((worker, server, "gradient"), (server, worker, "weights")):
                    sent = [m.tensor.numel() for m in outcome.by(source) if m.to == to]
                    if sum(sent) != due or len(sent) > 1:
                        return (f"rank {source} sent {count(len(sent), 'message')} of {count(sum(sent), 'element')} to rank "
                                f"{to}; expected 1 of {due}: of the {what}, what belongs to server {server}, and no more")
        return None

    def advise(self, error):
        if isinstance(error, Deadlock) and not error.why:
            return ("Ranks 0 … S-1 are servers and receive first, from every worker; the others are workers and send "
                    "first, to every server. Then the same the other way round. An empty shard is a message too.")
        if isinstance(error, RankFailed) and "sends" in error.reason and "expects" in error.reason:
            return ("Server s holds part s of torch.tensor_split(weights, S): a push to it is part s of the gradient, and "
                    "what a worker pulls from it has the same shape and dtype.")
        return None


class ApplyOnce(UnaidedFormula):
    name = "apply_once"

    def cases(self, rng: Random) -> list[Case]:
        histories = [
            ("none came twice", 2, [(0, 0), (1, 0), (0, 1), (1, 1)], [-1, -1]),
            ("some came again", 2, [(0, 0), (0, 0), (1, 0), (0, 1), (0, 0), (0, 2)], [-1, -1]),
            ("resent after a failure", 3, [(0, 3), (1, 5), (2, 0), (0, 4), (1, 6), (2, 1)], [3, 4, -1]),
            ("one was lost on its way", 2, [(0, 0), (0, 2), (1, 0), (0, 1), (0, 2)], [-1, -1]),
            ("none came", 2, [], [4, 2]),
            ("one worker", 1, [(0, 7), (0, 7), (0, 8), (0, 8), (0, 6)], [6]),
        ]
        cases = [self.case(rng, *history) for history in histories]
        W = rng.randint(3, 5)
        return [*cases, self.case(rng, "of all kinds", W, *self.history(rng, W))]

    def history(self, rng: Random, W: int) -> tuple[list[tuple[int, int]], list[int]]:
        """Updates in the order of their workers, some again and some too early."""
        applied = [rng.randint(-1, 5) for _ in range(W)]
        last, history = list(applied), []
        for _ in range(24):
            worker = rng.randrange(W)
            number = max(0, last[worker] + rng.choice((1, 1, 1, 0, -1, 2)))
            history.append((worker, number))
            if number == last[worker] + 1:
                last[worker] = number
        return history, applied

    def case(self, rng: Random, name: str, W: int, history: list[tuple[int, int]], applied: list[int]) -> Case:
        n = rng.randint(2, 5)
        weight = inputs.tensor(rng, (n,), torch.float64)
        messages = [(worker, number, inputs.tensor(rng, (n,), torch.float64, range(1, 60))) for worker, number in history]
        return Case((weight, applied, messages), served(weight, applied, messages), {"workers": W, "messages": name})

    def compare(self, came, case):
        weight, applied, messages = case.arguments
        if not isinstance(came, (tuple, list)) or len(came) != 3:
            return f"it returned {article(type(came).__name__)}; expected three things: (weight, applied, acknowledged)"
        for value, right, name in zip(came, case.expected, ("weight", "applied", "acknowledged"), strict=True):
            if wrong := unlike(name, value, right):
                likely = mistake(came, weight, applied, messages)
                return f"{wrong}\n  the messages were {told(messages)}" + (f"\n  {likely}" if likely else "")
        return None


Messages = list[tuple[int, int, torch.Tensor]]


def served(weight: torch.Tensor, applied: list[int], messages: Messages, *,
           apply: Callable[[int, int], bool] = lambda number, last: number == last + 1,
           acknowledge: Callable[[int, int], bool] = lambda number, last: number <= last + 1,
           by_worker: bool = True) -> tuple[torch.Tensor, list[int], list[bool]]:
    """What a server comes to.

    apply, acknowledge: whether to, by an update's number and that of the last one applied.
    by_worker: whether that is the last one of the same worker, or of any.
    """
    weight, applied, answers = weight.clone(), list(applied), []
    for worker, number, update in messages:
        last = applied[worker] if by_worker else max(applied)
        answers.append(acknowledge(number, last))
        if apply(number, last):
            weight += update
            applied[worker] = number
    return weight, applied, answers


def unlike(name: str, came: Any, right: Any) -> str | None:
    """How one of the three results differs."""
    if isinstance(right, torch.Tensor):
        if not isinstance(came, torch.Tensor):
            return f"{name} came as {article(type(came).__name__)}; expected a tensor"
        if came.dtype != right.dtype or came.shape != right.shape:
            return f"{name} came as {describe(came)}; expected {describe(right)}"
        return None if near(came, right) else f"{name} came as {values(came)}\n  expected      {values(right)}"
    kind, fits, noun, each = (bool, is_truth, "True or False", "message") if name == "acknowledged" else (
        int, is_whole, "a whole number", "worker")
    if not isinstance(came, (list, tuple)) or not all(map(fits, came)):
        return f"{name} came as {came!r}; expected a list, {noun} for each {each}"
    came = list(map(kind, came))
    return None if came == right else f"{name} came as {came}\n  expected      {right}"


def mistake(came: Any, weight: torch.Tensor, applied: list[int], messages: Messages) -> str | None:
    """Which way of serving leads there."""
    right = served(weight, applied, messages)
    ways = [
        (lambda *_: True, "An update that is there already was applied again: compare its number with the last one applied "
                          "of its worker."),
        (lambda number, last: number != last, "An update is recognized only if it is the very last one of its worker: older "
                                              "ones come again too."),
        (lambda number, last: number >= last, "An update that is there already was applied again: its number is equal to "
                                              "that of the last one applied."),
        (lambda number, last: number > last, "An update came before the one that it follows, and was applied: that one is "
                                             "then taken for an old one, and lost. Refuse it: its worker sends both again."),
    ]
    for apply, text in ways:
        way = served(weight, applied, messages, apply=apply)
        if near(came[0], way[0]) and not near(right[0], way[0]) or list_of(came[1]) == way[1] != right[1]:
            return text
    acknowledged, one_each = list_of(came[2]), served(weight, applied, messages, by_worker=False)
    if near(came[0], one_each[0]) and not near(right[0], one_each[0]):
        return "Each worker counts its own updates: keep the last one applied of each."
    if acknowledged == right[2]:
        return None
    if acknowledged == served(weight, applied, messages, acknowledge=lambda number, last: number == last + 1)[2]:
        return ("An update that came again got no answer: its worker would send it for ever. That it is there already is "
                "what an acknowledgement says.")
    if acknowledged == [True] * len(messages):
        return ("All were acknowledged, also one that was not applied, since it came before the one that it follows: its "
                "worker would never send it again.")
    if acknowledged == [not answer for answer in right[2]]:
        return "True and False are the wrong way round."
    return None


def list_of(came: Any) -> list | None:
    return list(came) if isinstance(came, (list, tuple)) else None


def told(messages: Messages) -> str:
    """`worker 0's number 3, worker 1's number 5`."""
    return listing(f"worker {worker}'s number {number}" for worker, number, _ in messages) if messages else "none"
