"""Judging a small executor: what every rank computes, sends, and keeps, when it carries out its row of a schedule."""

from __future__ import annotations

from random import Random

import torch

from mlsyslab import pipeline
from mlsyslab.check import inputs
from mlsyslab.check.exercise import Case, Exercise
from mlsyslab.check.messages import count
from mlsyslab.check.pipeline.rows import to_rows
from mlsyslab.comm import Deadlock, Link, RankFailed
from mlsyslab.pipeline import Action

#: Messages take no time, so that virtual time is the schedule's.
FREE = Link()
#: Tensors that a rank may have besides those that it needs: one that it still has a name for, one that is on its way.
SPARE = 2


class RunRank(Exercise):
    name = "run_rank"

    def cases(self, rng: Random) -> list[Case]:
        grid = [("1F1B", 4, 8), ("GPipe", 3, 4), ("1F1B", 2, 5), ("GPipe", 4, 3), ("1F1B", 5, 3), ("GPipe", 2, 4),
                ("device placement", 3, 2), ("1F1B", 3, 8), ("1F1B", 1, 3), ("1F1B", rng.randint(2, 6), rng.randint(4, 10))]
        return [self.case(rng, pipeline.schedule(*numbers), k in (1, 5))
                for k, numbers in enumerate(grid)]

    def example(self, p):
        return self.case(Random(0), pipeline.schedule("1F1B", p, 2 * p), reverse=False)

    def case(self, rng: Random, schedule: pipeline.Schedule, reverse: bool) -> Case:
        """A schedule, a linear layer on each rank, and a batch of whole numbers: every result is exact.

        reverse: whether the backwards of GPipe come in reverse.
        """
        p, m = schedule.ranks, schedule.microbatches
        rows = to_rows(schedule)
        if reverse:
            rows = [row[:m] + row[m:][::-1] for row in rows]
        widths = [rng.randint(2, 4) for _ in range(p + 1)]
        weights = [inputs.tensor(rng, shape, torch.float64, range(-1, 2)) for shape in zip(widths, widths[1:], strict=False)]
        N = 16
        x, t = (inputs.tensor(rng, (N, width), torch.float64) for width in (widths[0], widths[-1]))
        xs, ts = list(x.tensor_split(m)), list(t.tensor_split(m))
        blank_x, blank_t = ([torch.full_like(part, torch.nan) for part in parts] for parts in (xs, ts))
        arguments = [(rows[r], weights[r], xs if r == 0 else blank_x, ts if r == p - 1 else blank_t) for r in range(p)]
        traits = {"world size": p, "microbatches": m, "schedule": schedule.name,
                  "backwards": "in reverse" if reverse else "in order"}
        return Case(arguments, gradients(weights, x, t), traits, FREE)

    # -- values -------------------------------------------------------------------------------------------------------

    def diagnose(self, case, outcome, fn):
        p, m = case.p, case.traits["microbatches"]
        weights, xs, ts = [own[1] for own in case.arguments], case.arguments[0][2], case.arguments[-1][3]
        N = sum(map(len, ts))
        for words, whole, some in (
            ("That is the gradient of the last microbatch's backward only: add them up (total += "
             "…).", False, [last_backward(case)]),
            ("The gradient of microbatch 0 is left out.", False, range(1, m)),
            (f"That is {N} times the gradient: the loss is a mean over all {N} rows, so divide by {N} where it "
             "begins.", N, range(m)),
            ("That is the gradient of the sum of the microbatches' means: the loss is the mean over all rows of all "
             "microbatches, so divide by how many rows there are in all.", None, range(m)),
            ("That is half the gradient: the derivative of the loss is (y - target) / N.", 0.5, range(m)),
            ("That is twice the gradient: the derivative of (y - target)²/2 is y - target.", 2, range(m)),
            ("The sign is wrong: the derivative of the loss is (y - target) / N, not (target - y) / N.", -1, range(m)),
            (f"That is the gradient divided by m = {m} once more: N counts the rows of all microbatches.", 1 / m, range(m)),
        ):
            other = [0] * p
            for i in some:
                scale = len(ts) / len(ts[i]) * N / len(ts) if whole is None else (whole or 1)
                part = gradients(weights, xs[i], ts[i], N)
                other = [a + scale * b for a, b in zip(other, part, strict=True)]
            if all(a.shape == b.shape and torch.allclose(a, b) for a, b in zip(outcome.results, other, strict=True)):
                return words
        if any(came.isnan().any() for came in outcome.results):
            return ("There are NaN in it: on ranks other than the first `inputs` has no values, and on ranks other than the "
                    "last `targets` has none. They tell how many rows a microbatch has.")
        return self.wrong_message(case, outcome)

    def wrong_message(self, case, outcome):
        """The first message with wrong values in it."""
        activations, backs = passes(case)
        for rank, (row, *_) in enumerate(case.arguments):
            for step, kind, boundary in ((1, "F", activations), (-1, "B", backs)):
                sent = [message.tensor for message in outcome.by(rank) if message.to == rank + step]
                due = [Action.parse(text).microbatch for text in row if kind in text]
                for i, tensor in zip(due, sent, strict=False):
                    right = boundary[rank][i]
                    if tensor.shape != right.shape or not torch.allclose(tensor, right):
                        what = "the activations" if kind == "F" else "the gradient"
                        return f"The first mistake that was sent on: {what} that rank {rank} sent after {rank}{kind}{i}."
        return None

    # -- the way they came --------------------------------------------------------------------------------------------

    def judge(self, case, outcome):
        p, m = case.p, case.traits["microbatches"]
        for rank, (row, *_) in enumerate(case.arguments):
            done = [event.label for event in outcome.trace.of(rank) if event.kind == "compute"]
            if done != row:
                return (f"rank {rank} did {' '.join(done[:8]) or 'nothing'}{' …' if len(done) > 8 else ''} on the clock, "
                        "and "
                        f"its row is {' '.join(row[:8])}{' …' if len(row) > 8 else ''}: every action in its turn, once, "
                        "inside `with comm.work(action, seconds=1.0):`")
            for peer in range(p):
                sent = sum(message.to == peer for message in outcome.by(rank))
                due = m if abs(peer - rank) == 1 else 0
                if sent != due:
                    return (f"rank {rank} sent {count(sent, 'message')} to rank {peer}, expected {due}: activations go to "
                            "rank "
                            "r+1 and gradients to rank r-1, one message for each microbatch")
            held, right = outcome.held.get((rank, rank - 1), 0), most_live(row) + SPARE
            if rank and held > right:
                return (f"rank {rank} held {held} received activations at once; its schedule needs {most_live(row)}. After "
                        "the "
                        "backward of a microbatch nothing may refer to its activations any more (dict.pop)")
        right = self.run(reference_clock, [(row,) for row, *_ in case.arguments], FREE).trace.time
        if outcome.trace.time > right + 1e-9:
            return (f"it took {outcome.trace.time:g} s; with this schedule it should take {right:g}. Does a rank wait until "
                    "what it sent has been received, before it goes on?")
        return None

    def advise(self, error):
        if isinstance(error, Deadlock) and not error.why:
            if any(wait.kind == "send" for wait in error.waits):
                return ("Here one rank sends activations down while the next sends a gradient up, and each waits for the "
                        "other "
                        "to receive. Begin the sends (comm.isend), go on, and wait for them at the end.")
            return ("All that wait here wait to receive: was everything sent, by the forwards to rank r+1 and by the "
                    "backwards "
                    "to rank r-1? The first rank has nobody before it, and the last one nobody after it.")
        if isinstance(error, RankFailed) and "there is no rank" in error.reason:
            return "The first rank has nobody before it, and the last one, p-1, nobody after it."
        if isinstance(error, RankFailed) and "expects" in error.reason and "sends" in error.reason:
            return ("Activations that come in have the shape (rows of the microbatch, d_in), gradients (rows of the "
                    "microbatch, "
                    "d_out), in the dtype of the weight.")
        return None

    def picture(self, trace, title):
        from mlsyslab.draw.pipeline import timetable  # brings matplotlib, which a bare node may lack

        return timetable(trace, title, memory=None, messages=True)


def gradients(weights: list[torch.Tensor], x: torch.Tensor, t: torch.Tensor, N: int | None = None) -> list[torch.Tensor]:
    """Of the mean over N rows of |x W_0 … W_{p-1} - t|²/2, with respect to each weight."""
    activations = [x]
    for weight in weights:
        activations.append(activations[-1] @ weight)
    g, found = (activations.pop() - t) / (N or len(t)), []
    for weight, x in zip(reversed(weights), reversed(activations), strict=True):
        found.insert(0, x.T @ g)
        g = g @ weight.T
    return found


def passes(case: Case) -> tuple[list[list[torch.Tensor]], list[list[torch.Tensor]]]:
    """For each rank and microbatch: the activations that it gives out, and the gradient that it hands back."""
    weights, xs, ts = [own[1] for own in case.arguments], case.arguments[0][2], case.arguments[-1][3]
    N, activations = sum(map(len, ts)), [list(xs)]
    for weight in weights:
        activations.append([x @ weight for x in activations[-1]])
    backs = [[(y - t) / N for y, t in zip(activations[-1], ts, strict=True)]]
    for weight in reversed(weights):
        backs.insert(0, [g @ weight.T for g in backs[0]])
    return activations[1:], backs[:-1]


def last_backward(case: Case) -> int:
    return Action.parse(case.arguments[0][0][-1]).microbatch


def most_live(row: list[str]) -> int:
    """The most forwards whose backward hasn't ended."""
    live = most = 0
    for text in row:
        live += 1 if "F" in text else -1
        most = max(most, live)
    return most


def reference_clock(comm, row):
    """Each action takes a second, once what it needs is there; the messages are empty."""
    works, nothing = [], torch.empty(0)
    for text in row:
        step = 1 if "F" in text else -1
        if 0 <= comm.rank - step < comm.size:
            comm.recv(torch.empty(0), comm.rank - step)
        with comm.work(text, seconds=1.0):
            pass
        if 0 <= comm.rank + step < comm.size:
            works.append(comm.isend(nothing, comm.rank + step))
    comm.wait_all(works)
