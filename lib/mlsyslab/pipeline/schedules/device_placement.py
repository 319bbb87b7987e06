"""Device placement: the model is spread over ranks, and one rank at a time computes."""

from mlsyslab.pipeline.schedule import Action, Schedule
from mlsyslab.pipeline.schedules.registry import register


@register("device placement")
def device_placement(p: int, m: int) -> Schedule:
    """A microbatch goes all the way forward and back before the next one starts. Bubble 1 - 1/p of the time."""
    return Schedule("device placement", [[Action(r, kind, i) for i in range(m) for kind in "FB"] for r in range(p)])
