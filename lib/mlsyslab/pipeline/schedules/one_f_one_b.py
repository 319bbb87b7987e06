"""1F1B: as soon as a rank has enough microbatches in flight, each forward is followed by a backward.

PipeDream's order (Harlap et al. 2018) with one flush a step (Narayanan et al. 2021, "PipeDream-Flush").
"""

from mlsyslab.pipeline.schedule import Action, Schedule
from mlsyslab.pipeline.schedules.registry import register


@register("1F1B")
def one_f_one_b(p: int, m: int) -> Schedule:
    """Bubble (p-1)(F+B) a rank, as GPipe, but rank r keeps only min(m, p-r) microbatches."""
    return Schedule("1F1B", [one_f_one_b_row(r, m, warmup=p - 1 - r) for r in range(p)])


def one_f_one_b_row(stage: int, m: int, warmup: int) -> list[Action]:
    """`warmup` forwards, then a forward and a backward in turn, then the backwards that are left."""
    warmup = min(m, warmup)
    steady = m - warmup
    row = [Action(stage, "F", i) for i in range(warmup)]
    for i in range(steady):
        row += [Action(stage, "F", warmup + i), Action(stage, "B", i)]
    return row + [Action(stage, "B", i) for i in range(steady, m)]
