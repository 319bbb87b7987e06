"""Judging a small executor: what every rank computes, sends, and keeps, when it carries out its row of a schedule."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import torch

from mlsyslab import pipeline
from mlsyslab.check import inputs
from mlsyslab.check.exercise import Case, Exercise, Problem
from mlsyslab.check.messages import alike, count
from mlsyslab.check.pipeline.awaited import Awaited, Sending
from mlsyslab.check.pipeline.rows import to_rows
from mlsyslab.check.runs import Outcome
from mlsyslab.comm import Communicator, Deadlock, Link, RankFailed
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
        N, and what a row of targets has, are such that no slip of `diagnose` comes to twice or half the gradient by chance.
        """
        p, m = schedule.ranks, schedule.microbatches
        rows = to_rows(schedule)
        if reverse:
            rows = [row[:m] + row[m:][::-1] for row in rows]
        widths = [*(rng.randint(2, 4) for _ in range(p)), rng.randint(3, 4)]
        weights = [inputs.tensor(rng, shape, torch.float64, range(-1, 2)) for shape in zip(widths, widths[1:], strict=False)]
        N = 32
        x, t = (inputs.tensor(rng, (N, width), torch.float64) for width in (widths[0], widths[-1]))
        xs, ts = list(x.tensor_split(m)), list(t.tensor_split(m))
        blank_x, blank_t = ([torch.full_like(part, torch.nan) for part in parts] for parts in (xs, ts))
        arguments = [(rows[r], weights[r], xs if r == 0 else blank_x, ts if r == p - 1 else blank_t) for r in range(p)]
        traits = {"world size": p, "microbatches": m, "schedule": schedule.name,
                  "backwards": "in reverse" if reverse else "in order"}
        return Case(arguments, gradients(weights, x, t, N), traits, FREE)

    # -- values -------------------------------------------------------------------------------------------------------

    def diagnose(self, case, outcome, fn):
        weights, xs, ts = batch(case)
        N, every = sum(map(len, ts)), range(len(ts))
        slips = [  # words, by what the loss of a microbatch is multiplied, the microbatches that are counted
            ("That is the gradient of the last microbatch's backward only: add them up (total += …).", lambda i: 1,
             [Action.parse(case.arguments[0][0][-1]).microbatch]),
            ("The gradient of microbatch 0 is left out.", lambda i: 1, every[1:]),
            (f"That is {N} times the gradient: the loss is a mean over all {N} rows, so divide by {N} where it begins.",
             lambda i: N, every),
            ("That is the gradient of the sum of the microbatches' means: the loss is the mean over all rows of all "
             "microbatches, so divide by how many rows there are in all.", lambda i: N / len(ts[i]), every),
            ("That is the gradient of the mean of the microbatches' means: they needn't be equally long, so divide by how "
             "many rows there are in all.", lambda i: N / len(ts[i]) / len(ts), every),
            (f"That is divided by {len(ts)}, how many microbatches there are: N counts their rows.",
             lambda i: N / len(ts), every),
            ("That is divided by how many numbers the targets have: N counts rows.", lambda i: 1 / ts[0].shape[1], every),
            ("That takes every microbatch to be as long as the first: N adds up the rows of all.",
             lambda i: N / len(ts) / len(ts[0]), every),
            ("That is half the gradient: the derivative of (y - target)²/2 is y - target.", lambda i: 0.5, every),
            ("That is twice the gradient: the derivative of (y - target)²/2 is y - target.", lambda i: 2, every),
            ("The sign is wrong: the derivative of the loss is (y - target) / N, not (target - y) / "
             "N.", lambda i: -1, every),
        ]
        for words, scale, counted in slips:
            parts = [gradients(weights, xs[i], ts[i], N / scale(i)) for i in counted]
            if parts and all(map(alike, outcome.results, map(sum, zip(*parts, strict=True)))):
                return words
        if any(came.isnan().any() for came in outcome.results):
            return ("There are NaN in it: on ranks other than the first `inputs` has no values, and on ranks other than the "
                    "last `targets` has none. They tell how many rows a microbatch has.")
        return self.wrong_message(case, outcome)

    def wrong_message(self, case: Case, outcome: Outcome) -> str | None:
        """The first message with wrong values in it."""
        activations, backs = passes(case)
        for rank, (row, *_) in enumerate(case.arguments):
            for step, kind, right in ((1, "F", activations[rank]), (-1, "B", backs[rank])):
                sent = [message.tensor for message in outcome.by(rank) if message.to == rank + step]
                due = [Action.parse(text).microbatch for text in row if kind in text]
                for i, tensor in zip(due, sent, strict=False):
                    if not alike(tensor, right[i]):
                        what = "the activations" if kind == "F" else "the gradient"
                        return f"The first mistake that was sent on: {what} that rank {rank} sent after {rank}{kind}{i}."
        return None

    # -- sends that nobody waits for ----------------------------------------------------------------------------------

    def problem(self, fn, case):
        return super().problem(fn, case) or self.unfinished(fn, case)

    def unfinished(self, fn: Callable[..., Any], case: Case) -> Problem | None:
        """A rank that ends without having waited for what it sent. That leaves no trace, so it takes a run of its own."""
        begun: list[list[Sending]] = [[] for _ in range(case.p)]
        try:
            self.run(lambda comm, *own: fn(Awaited(comm, begun[comm.rank]), *own), case.arguments, case.link)
        except (RankFailed, Deadlock) as error:
            return self._failed(error, self.advise(error))
        for rank, sends in enumerate(begun):
            if left := sum(not work.done for work in sends):
                return Problem("the values are right, but not the way they came: "
                               f"rank {rank} never waited for {left} of its {count(len(sends), 'send')}: keep what "
                               "comm.isend returns, and wait for all of it in the end (comm.wait_all)")
        return None

    # -- the way they came --------------------------------------------------------------------------------------------

    def judge(self, case, outcome):
        for rank, (row, *_) in enumerate(case.arguments):
            if wrong := (self.other_work(rank, row, outcome) or self.other_messages(rank, case, outcome)
                         or self.hoarded(rank, row, outcome)):
                return wrong
        right = self.run(reference_clock, [(row,) for row, *_ in case.arguments], FREE).trace.time
        if outcome.trace.time < right - 1e-9:
            return (f"it took {outcome.trace.time:g} s; with this schedule it should take {right:g}. Receive before "
                    "`with comm.work(…)`, and send after it: inside, they take place while it computes.")
        if outcome.trace.time > right + 1e-9:
            return (f"it took {outcome.trace.time:g} s; with this schedule it should take {right:g}. Does a rank wait until "
                    "what it sent has been received, before it goes on?")
        return None

    def other_work(self, rank: int, row: list[str], outcome: Outcome) -> str | None:
        events = [event for event in outcome.trace.of(rank) if event.kind == "compute"]
        done = [event.label for event in events]
        if done == row:
            other = next((event for event in events if abs(event.end - event.start - 1) > 1e-9), None)
            return other and (f"rank {rank}'s {other.label} took {other.end - other.start:g} s on the clock; every action "
                              "takes one second: `with comm.work(action, seconds=1.0):`")
        return (f"rank {rank} did {beginning(done)} on the clock, and its row is {beginning(row)}: every action in its "
                "turn, "
                "once, inside `with comm.work(action, seconds=1.0):`")

    def other_messages(self, rank: int, case: Case, outcome: Outcome) -> str | None:
        for peer in range(case.p):
            sent = sum(message.to == peer for message in outcome.by(rank))
            due = case.traits["microbatches"] if abs(peer - rank) == 1 else 0
            if sent != due:
                return (f"rank {rank} sent {count(sent, 'message')} to rank {peer}, expected {due}: activations go to rank "
                        "r+1 "
                        "and gradients to rank r-1, one message for each microbatch")
        return None

    def hoarded(self, rank: int, row: list[str], outcome: Outcome) -> str | None:
        held, needed = outcome.held.get((rank, rank - 1), 0), most_live(row)
        if not rank or held <= needed + SPARE:
            return None
        return (f"rank {rank} held {held} received activations at once; its schedule needs {needed}. After the backward of "
                "a "
                "microbatch nothing may refer to its activations any more (dict.pop)")

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


def batch(case: Case) -> tuple[list[torch.Tensor], list[torch.Tensor], list[torch.Tensor]]:
    """The weights of all stages, the microbatches, and their targets."""
    return [own[1] for own in case.arguments], case.arguments[0][2], case.arguments[-1][3]


def gradients(weights: list[torch.Tensor], x: torch.Tensor, t: torch.Tensor, N: float) -> list[torch.Tensor]:
    """Of the sum over rows of |x W_0 … W_{p-1} - t|²/2, divided by N, with respect to each weight."""
    activations = [x]
    for weight in weights:
        activations.append(activations[-1] @ weight)
    g, found = (activations.pop() - t) / N, []
    for weight, x in zip(reversed(weights), reversed(activations), strict=True):
        found.insert(0, x.T @ g)
        g = g @ weight.T
    return found


def passes(case: Case) -> tuple[list[list[torch.Tensor]], list[list[torch.Tensor]]]:
    """For each rank and microbatch: the activations that it gives out, and the gradient that it hands back."""
    weights, xs, ts = batch(case)
    N, activations = sum(map(len, ts)), [list(xs)]
    for weight in weights:
        activations.append([x @ weight for x in activations[-1]])
    backs = [[(y - t) / N for y, t in zip(activations[-1], ts, strict=True)]]
    for weight in reversed(weights):
        backs.insert(0, [g @ weight.T for g in backs[0]])
    return activations[1:], backs[:-1]


def beginning(labels: list[str]) -> str:
    return f"{' '.join(labels[:8])}{' …' if len(labels) > 8 else ''}" if labels else "nothing"


def most_live(row: list[str]) -> int:
    """The most forwards whose backward hasn't ended."""
    live = most = 0
    for text in row:
        live += 1 if "F" in text else -1
        most = max(most, live)
    return most


def reference_clock(comm: Communicator, row: list[str]) -> None:
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
