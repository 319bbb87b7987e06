"""PipeDream: 1F1B that never drains, each microbatch keeping the weights it went forward with (Narayanan et al. 2019)."""

from mlsyslab.pipeline.schedule import Schedule
from mlsyslab.pipeline.schedules.one_f_one_b import one_f_one_b
from mlsyslab.pipeline.schedules.registry import register
from mlsyslab.pipeline.schedules.updates import with_updates


@register("PipeDream")
def pipedream(p: int, m: int) -> Schedule:
    """No bubble but at the start and the end of training; up to p-r weight versions on rank r.

    A stage updates its weights after every backward. Forward uses the newest version and stashes it; backward uses the
    stashed one (section 3.3, weight stashing), so that a gradient is exact for weights that are p-1-r updates old. Different
    stages use different versions for one microbatch.
    """
    rows = one_f_one_b(p, m).actions
    return Schedule("PipeDream", [with_updates(row, accumulate=1, stash=True) for row in rows])
