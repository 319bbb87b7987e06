"""GPipe: all forwards, then all backwards (Huang et al. 2019)."""

from mlsyslab.pipeline.schedule import Action, Schedule
from mlsyslab.pipeline.schedules.registry import register


@register("GPipe")
def gpipe(p: int, m: int) -> Schedule:
    """Bubble (p-1)(F+B) a rank; every rank keeps all m microbatches."""

    def rank(r: int) -> list[Action]:
        forwards = [Action(r, "F", i) for i in range(m)]
        backwards = [Action(r, "B", i) for i in range(m)]
        return forwards + backwards

    return Schedule("GPipe", [rank(r) for r in range(p)])
