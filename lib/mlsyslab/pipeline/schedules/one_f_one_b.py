"""1F1B: as soon as a rank has enough microbatches in flight, each forward is followed by a backward.

PipeDream's order (Harlap et al. 2018) with one flush a step (Narayanan et al. 2021, "PipeDream-Flush").
"""

from mlsyslab.pipeline.schedule import Action, Schedule
from mlsyslab.pipeline.schedules.registry import register


@register("1F1B")
def one_f_one_b(p: int, m: int) -> Schedule:
    """Bubble (p-1)(F+B) a rank, as GPipe, but rank r keeps only min(m, p-r) microbatches."""

    def rank(r: int) -> list[Action]:
        warmup = min(m, p - 1 - r)
        steady = m - warmup
        row = [Action(r, "F", i) for i in range(warmup)]
        for i in range(steady):
            row += [Action(r, "F", warmup + i), Action(r, "B", i)]
        row += [Action(r, "B", i) for i in range(steady, m)]
        return row

    return Schedule("1F1B", [rank(r) for r in range(p)])
