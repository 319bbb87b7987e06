"""The weight versions that ranks keep while an asynchronous schedule runs, stepped through."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ipywidgets import VBox

from mlsyslab.draw.picture import STYLE, Picture
from mlsyslab.draw.pipeline import LEFT as AXIS_LEFT
from mlsyslab.draw.pipeline import timetable
from mlsyslab.draw.widgets import explore
from mlsyslab.pipeline import Action, Timeline, schedule, simulate

ROW, BOX, FIRST = 52, 92, 214  # px: from rank to rank; of a version; where a rank's action and boxes stand
TOP = 56  # px above the first rank

CSS = STYLE + ".mls path.now{fill:var(--mark-edge);stroke:none}.mls .strong{stroke-width:2.2}"


@dataclass(frozen=True)
class Kept:
    """A version of a stage's weights that a rank holds at some time.

    newest: whether no later one has been made.  waiting: microbatches that are through forward with it, and will come
    back to it.
    """

    version: int
    newest: bool
    waiting: tuple[int, ...]


def kept(row: Sequence[Action], done: int) -> list[Kept]:
    """The versions that a rank of one stage holds once the first `done` actions of its `row` are over.

    A version is kept while it is the newest, and after that as long as some action is still to use it.
    """
    newest = max((a.version for a in row[:done] if a.kind == "U"), default=0)
    to_come = {a.version for a in row[done:] if a.kind != "U"}
    forwards = {a.microbatch: a.version for a in row[:done] if a.kind == "F"}
    backwards = {a.microbatch: a.version for a in row[done:] if a.kind == "B"}
    held = sorted({newest} | {v for v in to_come if v < newest})
    return [Kept(v, v == newest, tuple(i for i in forwards if backwards.get(i) == v)) for v in held]


def weight_versions(names: Sequence[str] = ("PipeDream", "PipeDream-2BW", "AMPNet"), p: int = 4, m: int = 9) -> VBox:
    """Choose an asynchronous schedule, step through its time, and see which versions each rank keeps, and for whom."""
    runs = {name: simulate(schedule(name, p, m)) for name in names}
    until = max(run.time for run in runs.values())
    return explore(lambda schedule, time: _Versions(runs[schedule], time, until), menus=["schedule"],
                   above=lambda schedule: timetable(runs[schedule], until=until, unit="forwards", memory=None),
                   schedule=list(names), time=range(int(until)), start={"time": 14})


class _Versions(Picture):
    """What each rank does at one time, and the versions that it holds then."""

    css = CSS

    def __init__(self, run: Timeline, time: float, until: float):
        rows, moment = run.schedule.actions, time + 0.5
        first = run.columns.first
        done = [sum(end <= moment for end in run.end[a:b]) for a, b in zip(first[:-1], first[1:], strict=True)]
        held = [kept(row, count) for row, count in zip(rows, done, strict=True)]
        words = "; ".join(f"rank {r} keeps " + " and ".join(f"version {k.version}" for k in of) for r, of in enumerate(held))
        table = timetable(run, until=until, memory=None)
        super().__init__(table.width, TOP + ROW * len(rows), f"weight versions at time {time:g}", words)
        x = AXIS_LEFT + moment * table.scale
        self._add("path", "now", d=f"M{x:g} 0l7 12h-14z")
        self.text(min(max(x, 60), self.width - 60), 26, f"time {time:g} to {time + 1:g}", "small mid bold")
        self.text(AXIS_LEFT, 46, "does", "soft small")
        self.text(FIRST, 46, "keeps these versions of its weights, for the backwards of these microbatches", "soft small")
        for rank, row in enumerate(rows):
            start = int(first[rank])
            running = [a for i, a in enumerate(row) if run.start[start + i] <= moment < run.end[start + i]]
            self._row(rank, running[0] if running else None, held[rank])

    def _row(self, rank: int, running: Action | None, held: Sequence[Kept]) -> None:
        top = TOP + rank * ROW
        self.text(AXIS_LEFT - 9, top + 24, f"rank {rank}", "end")
        what = {"F": "forward", "B": "backward"}
        self.text(AXIS_LEFT, top + 18, f"{what[running.kind]} of {running.microbatch}" if running else "waits",
                  "" if running else "soft")
        if running:
            self.text(AXIS_LEFT, top + 34, f"with version {running.version}", "soft small")
        for k, one in enumerate(held):
            left, used = FIRST + k * (BOX + 8), running is not None and running.version == one.version
            self.rect(left, top + 2, BOX, ROW - 12, "mark strong" if used else "send" if one.newest else "quiet")
            self.text(left + 8, top + 18, f"version {one.version}", "bold" if used else "")
            self.text(left + 8, top + 34, ", ".join(map(str, one.waiting)) or ("newest" if one.newest else ""), "soft small")
