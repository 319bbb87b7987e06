"""Pipelined inference: forwards only."""

from mlsyslab.pipeline.schedule import Action, Schedule
from mlsyslab.pipeline.schedules.registry import register


@register("inference")
def inference(p: int, m: int) -> Schedule:
    """Bubble (p-1) F a rank: (p-1)/(m+p-1) of the time."""
    return Schedule("inference", [[Action(r, "F", i) for i in range(m)] for r in range(p)])
