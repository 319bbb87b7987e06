"""ZB-V: zero bubble with 1F1B's memory; the way through the model goes down the ranks and up again, as a V."""

from mlsyslab.pipeline.schedule import Action, Schedule
from mlsyslab.pipeline.schedules.cut import leave_out
from mlsyslab.pipeline.schedules.phases import Phases
from mlsyslab.pipeline.schedules.registry import register


@register("ZB-V")
def zb_v(p: int, m: int, chunks: int = 2) -> Schedule:
    """No bubble within a rank's span when F = I = W and m >= 2p-1; 2p chunks of activations (Qi et al. 2023, section 6).

    Rank r holds stages r (chunk 0) and 2p-1-r (chunk 1), so that the first rank has the loss and its backwards begin early.
    For fewer microbatches than 2p-1 it is the timetable of 2p-1 with the others left out.
    """
    if chunks != 2:
        raise ValueError(f"ZB-V puts two chunks on every rank, the arms of the V: it needs chunks=2, not {chunks}")
    return Schedule("ZB-V", [leave_out(_rank(p, r, max(m, 2 * p - 1)), m) for r in range(p)])


def _rank(p: int, r: int, m: int) -> list[Action]:
    phases = Phases(stages=(r, 2 * p - 1 - r))
    # warm-up: down the V, up again, and the first backwards
    phases.do("F0", 2 * (p - r) - 1)
    phases.do("F1 F0", r)
    phases.do("F1 I1 W1", p - r)
    # steady
    phases.do("F0 I0 W0 F1 I1 W1", m - 2 * p + 1 + r)
    phases.do("I0 W0 F1 I1 W1", p - 1 - r)
    # cool-down: input gradients first, as the ranks before wait for them
    phases.do("I0 I1", r)
    phases.do("I0 W0", p - r)
    phases.do("W1", r)
    phases.do("W0", r)
    return phases.row
