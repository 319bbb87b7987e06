"""PipeMare: no bubble and one copy of the weights; gradients mix old and new ones for it (Yang et al. 2021)."""

from mlsyslab.pipeline.schedule import Schedule
from mlsyslab.pipeline.schedules.one_f_one_b import one_f_one_b_row
from mlsyslab.pipeline.schedules.registry import register
from mlsyslab.pipeline.schedules.updates import with_updates


@register("PipeMare")
def pipemare(p: int, m: int, accumulate: int = 1) -> Schedule:
    """One weight version, 2(p-r)-1 activations on rank r; forward and backward of a microbatch use different weights.

    Both use whatever weights the stage has then. With one update for `accumulate` = N microbatches, the forward's are
    (2(p-r)-1)/N updates behind the version that its gradient makes (section 2.2 of the paper), the backward's the newest.
    The optimizer makes up for it, by a smaller rate where the delay is long and by a correction for the discrepancy.
    """
    rows = [one_f_one_b_row(r, m, warmup=2 * (p - 1 - r)) for r in range(p)]
    return Schedule("PipeMare", [with_updates(row, accumulate) for row in rows])
