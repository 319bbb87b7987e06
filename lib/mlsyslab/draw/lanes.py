"""The lanes of a pipeline's timetable, read off the trace of a run: what each rank computed, and what it held."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from mlsyslab.comm.trace import Trace
from mlsyslab.pipeline import Action, Schedule

TINTS = 4  # of each colour, from the full one (first chunk, or direction) to the lightest (last)


@dataclass(frozen=True)
class Cell:
    """One action on the clock.  tint: 0 … TINTS - 1.  half: 0 whole; 1 upper, 2 lower half of the lane (joined actions)."""

    action: Action
    start: float
    end: float
    tint: int
    half: int = 0


@dataclass(frozen=True)
class Lane:
    """What one rank did.  live: (seconds, how much it holds from then on), in order of time."""

    rank: int
    cells: list[Cell]
    live: list[tuple[float, float]]

    @property
    def peak(self) -> float:
        return max((held for _, held in self.live), default=0)

    def gaps(self, until: float) -> list[tuple[float, float]]:
        """When the rank computed nothing, from 0 to `until`."""
        gaps, now = [], 0.0
        for cell in self.cells:
            if cell.start > now:
                gaps.append((now, cell.start))
            now = max(now, cell.end)
        return gaps + [(now, until)] * (now < until)


def read(trace: Trace, memory: str | None = None) -> tuple[Schedule, list[Lane]]:
    """The schedule that a run followed, and a lane for each rank.

    Taken from "compute" events whose labels are actions and, to count "activations" or "bytes", "alloc" and "free" events.
    """
    rows: list[list[tuple[Action, float, float]]] = [[] for _ in range(trace.size)]
    changes: list[list[tuple[float, float]]] = [[] for _ in range(trace.size)]
    for event in trace:
        if event.kind == "compute" and (action := _action(event.label)):
            rows[event.rank].append((action, event.start, event.end))
        elif memory and event.kind in ("alloc", "free"):
            amount = event.bytes if memory == "bytes" else 1
            changes[event.rank].append((event.start, amount if event.kind == "alloc" else -amount))
    if not any(rows):
        raise ValueError("no event of this trace is labelled with an action such as 2F0: "
                         "give a trace that pipeline.execute or pipeline.simulate has written")
    for row in rows:
        row.sort(key=lambda item: item[1:])
    schedule = Schedule("", [[action for action, *_ in row] for row in rows])
    return schedule, [Lane(rank, _cells(schedule, rank, row), _sums(changes[rank])) for rank, row in enumerate(rows)]


def _action(label: str) -> Action | None:
    try:
        return Action.parse(label)
    except ValueError:
        return None


def _cells(schedule: Schedule, rank: int, row: Sequence[tuple[Action, float, float]]) -> list[Cell]:
    """A rank's cells: actions at the same time share the lane's height; updates take none."""
    cells = []
    for k, (action, start, end) in enumerate(row):
        shared = 0
        for half, other in ((1, row[k + 1:k + 2]), (2, row[k - 1:k] if k else ())):
            if other and other[0][1:] == (start, end) and end > start and "U" not in (action.kind, other[0][0].kind):
                shared = half
        cells.append(Cell(action, start, end, _tint(schedule, rank, action), shared))
    return cells


def _tint(schedule: Schedule, rank: int, action: Action) -> int:
    """0 for the first chunk of a rank, or direction of the microbatch, up to TINTS - 1 for the last."""
    ways = schedule.placement[0]
    if len(ways) > 1:
        place, of = ways.index(schedule.rank_of(0, action.microbatch)), len(ways)
    else:
        held = schedule.held[rank]
        place, of = held.index(action.stage), len(held)
    return round((TINTS - 1) * place / (of - 1)) if of > 1 else 0


def _sums(changes: list[tuple[float, float]]) -> list[tuple[float, float]]:
    """What is held from each time on at which something is kept or freed."""
    held, live = 0.0, {}
    for time, change in sorted(changes):
        held += change
        live[time] = held
    return list(live.items())
