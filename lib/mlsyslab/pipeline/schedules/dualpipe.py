"""DualPipe and DualPipeV: forwards and backwards that run at the same time, so that each hides the other's communication.

DeepSeek-AI 2024, "DeepSeek-V3 Technical Report", section 3.2.1. DualPipe feeds microbatches from both ends of the pipeline.
DualPipeV folds it in the middle: one half of the ranks, each with both of its stages, and one direction (Qi et al. 2025).
"""

from mlsyslab.pipeline.schedule import Action, Schedule
from mlsyslab.pipeline.schedules.cut import leave_out
from mlsyslab.pipeline.schedules.phases import Phases
from mlsyslab.pipeline.schedules.registry import register


@register("DualPipe")
def dualpipe(p: int, m: int) -> Schedule:
    """Bubble (p/2-1)(F&B+B-3W), p+1 activations and twice the parameters: rank r holds stages r and p-1-r.

    F&B: seconds of a forward and a backward that run together. The bubble is that for F = I = W and even m >= 2p.
    Even microbatches go down from rank 0, odd ones up from rank p-1. For fewer microbatches than 2p it is the timetable of
    2p with the others left out.
    """
    if p % 2:
        raise ValueError(f"DualPipe puts stages r and p-1-r on rank r, two different ones: it needs an even number of "
                         f"stages, not {p}")

    def rank(r: int) -> list[Action]:
        # of its two directions, a rank's chunk 0 is the one that reaches it first
        turned = r >= p // 2
        phases = Phases(stages=(p - 1 - r, r) if turned else (r, p - 1 - r), first=(1, 0) if turned else (0, 1), step=2)
        return _rank(p // 2, min(r, p - 1 - r), max((m + 1) // 2, p), phases)

    placement = tuple((min(s, p - 1 - s), max(s, p - 1 - s)) for s in range(p))
    return Schedule("DualPipe", [leave_out(rank(r), m) for r in range(p)], placement, m)


@register("DualPipeV")
def dualpipev(p: int, m: int, chunks: int = 2) -> Schedule:
    """Bubble (p-1)(F&B+B-3W) in chunk time, 2p+1 chunks of activations: rank r holds stages r and 2p-1-r.

    The bubble is that for F = I = W and m >= 2p. For fewer microbatches it is the timetable of 2p with the others left out.
    """
    if chunks != 2:
        raise ValueError(f"DualPipeV puts two chunks on every rank, the arms of the V: it needs chunks=2, not {chunks}")
    return Schedule("DualPipeV", [leave_out(_rank(p, r, max(m, 2 * p), Phases((r, 2 * p - 1 - r))), m) for r in range(p)])


def _rank(p: int, r: int, m: int, phases: Phases) -> list[Action]:
    """The row of the rank r from the end, of p from the end to the fold; m microbatches a chunk, at least 2p."""
    # warm-up
    phases.do("F0", 2 * (p - 1 - r))
    phases.do("F0 F1", r + 1)
    phases.do("I1 W F1", p - 1 - r)
    # steady; at the fold the first pair runs one after the other, since the rank waits for its first backward
    steady = m - 2 * p + r + 1
    at_fold = int(r == p - 1)
    phases.do("F0 B1 F1&B0", at_fold)
    phases.do("F0&B1 F1&B0", steady - at_fold)
    phases.do("B1 F1&B0", p - 1 - r)
    # cool-down: of 2(r+1) backwards the second half is split, so that those waiting get their gradients sooner
    full, odd = divmod(r + 1, 2)
    phases.do("B1 B0", full)
    phases.do("B1 I0", odd)
    phases.do("I1 I0", r + 1 - full - odd)
    phases.do("W I0", p - 1 - r)
    phases.do("W", r + 1)
    return phases.row
