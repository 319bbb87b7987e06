"""Judging schedules that a student's function generates: whether they can be run, how long they take, what they keep."""

from __future__ import annotations

from abc import abstractmethod
from random import Random
from typing import TYPE_CHECKING

from mlsyslab import pipeline
from mlsyslab.check.exercise import Case
from mlsyslab.check.messages import count, failure
from mlsyslab.check.pipeline.rows import Unreadable, broken, read
from mlsyslab.check.pipeline.unaided import Unaided
from mlsyslab.check.runs import call
from mlsyslab.comm import CommError
from mlsyslab.pipeline import Action, Schedule

if TYPE_CHECKING:
    from mlsyslab.draw import Picture

#: p ranks, m microbatches: more microbatches than ranks, fewer, one; divided by p or not
GRID = ((4, 8), (3, 7), (2, 5), (4, 2), (5, 3), (3, 1), (8, 16), (6, 6), (2, 2), (1, 3))
#: seconds of F, I and W in which a schedule is timed (B takes I + W)
TIMES = ((1.0, 1.0, 1.0), (2.0, 1.0, 1.0), (1.0, 2.0, 1.0))


class Generator(Unaided):
    """A function (p, m) that returns a schedule. Any order passes that is valid, as fast, and keeps as little."""

    #: what the library calls it
    schedule: str

    def cases(self, rng: Random) -> list[Case]:
        more = [(rng.randint(3, 9), rng.randint(2, 20)) for _ in range(3)]
        return [self.case(p, m) for p, m in (*GRID, *more)]

    def case(self, p: int, m: int, *chunks: int) -> Case:
        expected = pipeline.schedule(self.schedule, p, m, *chunks)
        traits = {"world size": p, "microbatches": m} | ({"chunks": chunks[0]} if chunks else {})
        return Case((p, m, *chunks), expected, traits)

    @abstractmethod
    def judge(self, came: Schedule, case: Case) -> str | None:
        """What makes a schedule that can be run another than the one asked for; None where nothing does."""

    @abstractmethod
    def explain(self, came: Schedule, case: Case) -> str:
        """What a schedule that is slower, or keeps more, has most likely got wrong."""

    def compare(self, came, case):
        try:
            schedule = read(self.name, came, case.expected)
        except Unreadable as error:
            return str(error)
        if wrong := broken(schedule):
            likely = self.hint(schedule, case)
            return f"{wrong}\n  {likely}" if likely else wrong
        return self.judge(schedule, case) or self.slower(schedule, case) or self.greedier(schedule, case)

    def hint(self, came: Schedule, case: Case) -> str | None:
        """The likely mistake behind a schedule that can't be run, where it can be told."""
        p = case.p
        if p > 1 and [{a.stage for a in row} for row in came.actions] == [{p - 1 - r} for r in range(p)]:
            return "Rank r holds stage r: row 0 is that of stage 0."
        if {a.key for a in came} == {a.key for a in case.expected}:  # all there, in a wrong order
            return f"{self.explain(came, case)}\n  {first_difference(came, case.expected)}"
        return None

    def slower(self, came: Schedule, case: Case) -> str | None:
        for F, I, W in TIMES:
            run, right = (pipeline.simulate(schedule, F=F, I=I, W=W) for schedule in (came, case.expected))
            if run.time > right.time + 1e-9:
                times = f"F = {F:g}, B = {I + W:g}" if "B" in case.expected.kinds else f"F = {F:g}, I = {I:g}, W = {W:g}"
                return (f"it can be run, but is too slow: with {times} seconds it takes {run.time:g} s, expected "
                        f"{right.time:g} (bubble {run.bubble:.1%} instead of {right.bubble:.1%})\n  "
                        f"{self.explain(came, case)}\n  {first_difference(came, case.expected)}")
        return None

    def greedier(self, came: Schedule, case: Case) -> str | None:
        for rank, (peak, right) in enumerate(zip(pipeline.peak_activations(came), self.peaks(case), strict=True)):
            if peak > right:
                return (f"it is as fast as it should be, but rank {rank} holds {count(int(peak), 'activation')} at once, "
                        f"expected {right:g}\n  {self.explain(came, case)}\n  {first_difference(came, case.expected)}")
        return None

    def peaks(self, case: Case) -> list[float]:
        """The most activations that each rank may hold."""
        return pipeline.peak_activations(case.expected)

    def show(self, fn, p: int = 4, m: int = 8, *chunks: int) -> Picture | None:
        """Draw the schedule that `fn` makes for p ranks and m microbatches, with I = W = F; say why, if it can't be run."""
        from mlsyslab.draw.pipeline import timetable  # brings matplotlib, which a bare node may lack

        like = pipeline.schedule(self.schedule, p, m, *chunks)
        try:
            schedule = read(self.name, call(fn, (p, m, *chunks), self.timeout), like)
            wrong = broken(schedule)
        except CommError as error:
            wrong = failure(self.name, error)
        except Unreadable as error:
            wrong = str(error)
        if wrong:
            print(f"{self.name}: {wrong}")
            return None
        return timetable(schedule, unit="forwards")


def first_difference(came: Schedule, right: Schedule) -> str:
    """Where the rows part first: what stands there, and what the library has."""
    for rank, (row, expected) in enumerate(zip(came.actions, right.actions, strict=True)):
        for place, (a, b) in enumerate(zip(row, expected, strict=False)):
            if a.key != b.key:
                before = " ".join(map(str, expected[max(0, place - 4):place]))
                return (f"On rank {rank} it parts from {right.name} at action number {place} (from 0): {a} instead of {b}"
                        + (f", after {before}." if before else "."))
    return ""


def warmup(row: tuple[Action, ...]) -> int:
    """Forwards before the first backward."""
    return next((place for place, action in enumerate(row) if action.kind != "F"), len(row))


class Gpipe(Generator):
    name = "gpipe"
    schedule = "GPipe"

    def judge(self, came, case):
        m = case.traits["microbatches"]
        for rank, row in enumerate(came.actions):
            if warmup(row) < m:
                return (f"rank {rank} begins a backward, {row[warmup(row)]}, after {count(warmup(row), 'forward')}; "
                        f"in GPipe all {m} forwards come first")
        return None

    def explain(self, came, case):
        return "All ranks have to take the microbatches in one order, or they wait for one another."


class OneFOneB(Generator):
    name = "one_f_one_b"
    schedule = "1F1B"

    def judge(self, came, case):
        return None

    def explain(self, came, case):
        p, m = case.p, case.traits["microbatches"]
        ups, right = ([warmup(row) for row in schedule.actions] for schedule in (came, case.expected))
        if m > 1 and p > 1 and all(up == m for up in ups):
            return ("All forwards come before the first backward: that is GPipe. In 1F1B rank r does p-1-r forwards, and "
                    "then "
                    "forward and backward in turn, so that no more than p-r activations wait.")
        return HOW_MANY.format(ups=ups, right=right) if ups != right else EACH_IN_TURN


HOW_MANY = ("Before their first backward the ranks do {ups} forwards; expected {right}: p-1-r to warm up, and one more in "
            "the "
            "first pair of forward and backward.")
EACH_IN_TURN = ("After the warm-up every forward is followed by one backward, that of the oldest microbatch, until the "
                "forwards run out.")


class Interleaved(Generator):
    name = "interleaved"
    schedule = "interleaved"

    def cases(self, rng: Random) -> list[Case]:
        grid = ((4, 8, 2), (2, 4, 3), (3, 7, 2), (4, 2, 2), (3, 5, 4), (5, 10, 2), (2, 3, 2), (8, 16, 2), (3, 1, 2),
                (1, 3, 2))
        more = [(rng.randint(2, 6), rng.randint(2, 14), rng.randint(2, 4)) for _ in range(3)]
        return [self.case(*numbers) for numbers in (*grid, *more)]

    def show(self, fn, p: int = 4, m: int = 8, v: int = 2) -> Picture | None:
        """Draw the schedule that `fn` makes for p ranks, m microbatches and v chunks a rank."""
        return super().show(fn, p, m, v)

    def judge(self, came, case):
        return None

    def hint(self, came, case):
        p, _, v = case.arguments
        if p > 1 and [{a.stage for a in row} for row in came.actions] == [{*range(r * v, r * v + v)} for r in range(p)]:
            return ("Chunk c of rank r is stage c p + r: a microbatch passes all ranks before it comes to a rank's next "
                    "chunk. "
                    "Here rank r holds stages r v, r v + 1, ….")
        return super().hint(came, case)

    def explain(self, came, case):
        p, m, v = case.arguments
        if p == 1:
            return CHUNK_ORDER
        ups, right = ([warmup(row) for row in schedule.actions] for schedule in (came, case.expected))
        if all(up == m * v for up in ups) and ups != right:
            return "All forwards come before the first backward. Begin the backwards after the warm-up."
        for kinds, words in (("F", CHUNK_ORDER), ("B", BACKWARD_ORDER)):
            order, due = ([[a.key for a in row if a.kind in kinds] for row in schedule.actions]
                          for schedule in (came, case.expected))
            if order != due:
                return words
        return HOW_MANY_CHUNKS.format(ups=ups, right=right) if ups != right else EACH_IN_TURN


CHUNK_ORDER = ("A round of microbatches passes through a rank's first chunk, then its second, and so on; then comes the "
               "next "
               "round. There are max(1, m // p) rounds, as even as can be, longer ones first.")
BACKWARD_ORDER = ("Backwards go through the rounds in the same order, but through a rank's chunks in reverse: the last "
                  "chunk "
                  "first.")
HOW_MANY_CHUNKS = ("Before their first backward the ranks do {ups} forwards; expected {right}: (v-1) times the length of "
                   "the "
                   "first round and 2 (p-1-r) to warm up, and one more in the first pair (m v at most).")


class ZbH1(Generator):
    name = "zb_h1"
    schedule = "ZB-H1"

    def judge(self, came, case):
        return None

    def peaks(self, case):
        return [min(case.traits["microbatches"], case.p)] * case.p

    def explain(self, came, case):
        p, m = case.p, case.traits["microbatches"]
        held, right = ([held_back(row) for row in schedule.actions] for schedule in (came, case.expected))
        if m > 1 and p > 1 and all(map(at_once, came.actions)):
            return "Every W comes right after its I: then it is 1F1B with B in two pieces, and no bubble is filled."
        if m > p and p > 1 and all(row[-m:] == tuple(a for a in row if a.kind == "W") for row in came.actions):
            return ("All W come at the end: until then every activation is kept. Rank r holds a W back by r microbatches "
                    "only.")
        if held != right:
            return f"The ranks hold a W back by up to {held} microbatches; expected {right}: rank r by r of them."
        return EACH_IN_TURN.replace("backward", "I")


def at_once(row: tuple[Action, ...]) -> bool:
    """Whether every W comes right after its I."""
    return all(before.key == (a.stage, "I", a.microbatch, 0)
               for before, a in zip(row, row[1:], strict=False) if a.kind == "W")


def held_back(row: tuple[Action, ...]) -> int:
    """The most microbatches whose I is done and whose W isn't, right after a W."""
    waiting = most = 0
    for action in row:
        waiting += {"I": 1, "W": -1}.get(action.kind, 0)
        if action.kind == "W":
            most = max(most, waiting)
    return most
