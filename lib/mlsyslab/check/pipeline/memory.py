"""Judging the count of activations that a schedule makes its ranks keep."""

from __future__ import annotations

from random import Random

from mlsyslab import pipeline
from mlsyslab.check.exercise import Case
from mlsyslab.check.messages import article, is_whole
from mlsyslab.check.pipeline.rows import to_rows
from mlsyslab.check.pipeline.unaided import Unaided
from mlsyslab.pipeline import Action


class PeakActivations(Unaided):
    name = "peak_activations"

    def cases(self, rng: Random) -> list[Case]:
        p, m = rng.randint(3, 6), rng.randint(3, 12)
        return [self.case("1F1B", 4, 8), self.late(3, 5), self.case("GPipe", 3, 5), self.case("ZB-V", 4, 8, 2),
                self.case("ZB-H1", 4, 8), self.case("interleaved", 3, 6, 2), self.case("interleaved", 4, 9, 3),
                self.case("looped BFS", 2, 4, 2), self.case("ZB-H2", 3, 7), self.case("1F1B", 5, 2),
                self.case("1F1B", 11, 14), self.case("1F1B", 1, 3), self.case("ZB-H1", p, m),
                self.case("interleaved", p, m, 2)]

    def case(self, name: str, p: int, m: int, *chunks: int) -> Case:
        return self.count(name, pipeline.schedule(name, p, m, *chunks))

    def late(self, p: int, m: int) -> Case:
        """One microbatch by itself, there and back, and then GPipe: the peak comes long after the first backward."""
        rows = pipeline.schedule("GPipe", p, m).actions
        return self.count("one, then GPipe", pipeline.Schedule("", [
            [Action(r, "F", 0), Action(r, "B", 0), *(a._replace(microbatch=a.microbatch + 1) for a in row)]
            for r, row in enumerate(rows)]))

    def count(self, name: str, schedule: pipeline.Schedule) -> Case:
        """Any schedule, called `name` in messages."""
        backward = "B" if "B" in schedule.kinds else "I and W"
        traits = {"world size": schedule.ranks, "schedule": name, "microbatches": schedule.microbatches,
                  "backward": backward}
        return Case((to_rows(schedule),), list(map(int, pipeline.peak_activations(schedule))), traits)

    def compare(self, came, case):
        right, p = case.expected, case.p
        if not isinstance(came, (list, tuple)) or not all(map(is_whole, came)):
            return f"it returned {article(type(came).__name__)}, {came!r}; expected a list of {p} whole numbers, one a rank"
        if len(came) != p:
            return f"it returned {came!r}; expected a number for each of the {p} ranks"
        wrong = next((rank for rank in range(p) if came[rank] != right[rank]), None)
        if wrong is None:
            return None
        rows = case.arguments[0]
        text = (f"rank {wrong} came as {came[wrong]}, expected {right[wrong]} activations at once, "
                f"in the row {' '.join(rows[wrong][:12])}{' …' if len(rows[wrong]) > 12 else ''}")
        likely = mistake(list(came), right, rows)
        return f"{text}\n  {likely}" if likely else text


def mistake(came: list[int], right: list[int], rows: list[list[str]]) -> str | None:
    """Which way of counting gives these numbers."""
    actions = [[Action.parse(text) for text in row] for row in rows]
    forwards = [sum(a.kind == "F" for a in row) for row in actions]
    split = any(a.kind == "W" for row in actions for a in row)
    at_most = max(a.microbatch for row in actions for a in row) + 1
    ways = [
        (forwards, "That is the number of all forwards: a backward frees what its forward kept."),
        ([running(row, "BI") for row in actions] if split else None,
         "I frees nothing: W still needs the activation. It is kept until the end of W."),
        ([leading(row) for row in actions], "That is the number of forwards before the first backward; later there may be "
                                            "more."),
        ([peak - 1 for peak in right], "That is one too few on every rank: the activation that an action uses is still "
                                       "there "
                                       "while it runs, and a forward's from its start."),
        ([peak + 1 for peak in right], "That is one too many on every rank: the activation is gone when its backward ends, "
                                       "before the next forward begins."),
        ([per_stage(row) for row in actions], "A rank holds the activations of all its stages: add those of its chunks up."),
        ([running_set(row) for row in actions], "One microbatch leaves an activation on every stage that it passes: a rank "
                                                "with "
                                                "two chunks keeps two of it."),
        ([max(right)] * len(right), "That is the most of all ranks; each rank has its own."),
        ([sum(right)] * len(right), "That is what all ranks hold together; each rank has its own."),
        ([at_most] * len(right), "That is the number of microbatches."),
    ]
    return next((text for value, text in ways if value == came and value != right), None)


def running(row: list[Action], frees: str) -> int:
    live = most = 0
    for a in row:
        live += (a.kind == "F") - (a.kind in frees)
        most = max(most, live)
    return most


def leading(row: list[Action]) -> int:
    return next((place for place, a in enumerate(row) if a.kind != "F"), len(row))


def per_stage(row: list[Action]) -> int:
    return max(running([a for a in row if a.stage == stage], "BW") for stage in {a.stage for a in row})


def running_set(row: list[Action]) -> int:
    live, most = set(), 0
    for a in row:
        live = live | {a.microbatch} if a.kind == "F" else live - {a.microbatch} if a.kind in "BW" else live
        most = max(most, len(live))
    return most
