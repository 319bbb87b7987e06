"""A widget with which readers try schedules: any of them, for any number of ranks and microbatches and any F : I : W."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ipywidgets import VBox

from mlsyslab.draw.picture import Picture
from mlsyslab.draw.pipeline import timetable
from mlsyslab.draw.widgets import explore
from mlsyslab.pipeline import Timeline, schedule, simulate

#: F, I, W in units of a forward: the usual case, and a backward that costs no more than a forward.
RATIOS = {"1 : 1 : 1": (1.0, 1.0, 1.0), "1 : ½ : ½": (1.0, 0.5, 0.5)}


def schedules(names: Sequence[str] = ("GPipe", "1F1B", "interleaved", "ZB-H1", "ZB-V"), ranks: Sequence[int] = (2, 4),
              microbatches: Sequence[int] = (2, 4, 8), chunks: Sequence[int] = (2,),
              ratios: Mapping[str, tuple[float, float, float]] = RATIOS) -> VBox:
    """Choose a schedule, p, m, v (of those that have chunks) and F : I : W, and see its timetable and memory.

    Every rank has the same work whatever the schedule: where it holds v chunks, each takes a v-th of the time. Pictures of
    one p, m and ratio share their clock, so that schedules can be compared by switching between them.
    """
    runs: dict[tuple, Timeline] = {}

    def run(name: str, p: int, m: int, ratio: tuple[float, float, float]) -> Timeline:
        key = name, p, m, ratio
        if key not in runs:
            base, _, v = name.partition(" v=")
            made = schedule(base, p, m, int(v) if v else None)
            F, I, W = (seconds * p / made.stages for seconds in ratio)
            runs[key] = simulate(made, F=F, I=I, W=W)
        return runs[key]

    chosen = [option for name in names
              for option in ([f"{name} v={v}" for v in chunks] if name in ("interleaved", "looped BFS") else [name])]

    def frame(schedule: str, ratio: tuple[float, float, float], p: int, m: int) -> Picture:
        until = max(run(name, p, m, ratio).time for name in chosen)
        return timetable(run(schedule, p, m, ratio), f"{schedule}, p={p}, m={m}", until=until, unit="forwards")

    return explore(frame, menus=("schedule", "ratio"), schedule=chosen, ratio=dict(ratios), p=list(ranks),
                   m=list(microbatches), start={"p": ranks[-1], "m": microbatches[-1]})
