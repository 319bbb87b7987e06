"""ZB-H1 and ZB-H2: backward in two halves, the weight gradients put where a rank would wait (Qi et al. 2023, section 2)."""

from mlsyslab.pipeline.schedule import Action, Schedule
from mlsyslab.pipeline.schedules.registry import register


@register("ZB-H1")
def zb_h1(p: int, m: int) -> Schedule:
    """Bubble (p-1)(F+I-W), and no more than 1F1B's p activations: rank r holds each W back by r microbatches.

    The bubble is that where W takes no longer than F and I, and m >= p; else it is larger.
    """
    return Schedule("ZB-H1", [_rank(r, m, in_flight=p - r, held_back=r) for r in range(p)])


@register("ZB-H2")
def zb_h2(p: int, m: int) -> Schedule:
    """Bubble (p-1)(F+I-2W) within a rank's span, for 2p-1 activations: more forwards fill the wait before the first I.

    The bubble is that, on the rank that waits most, where W takes no longer than F and I, and m >= 2p-1. It is 0 for
    F = I = W, but not in the makespan, as rank r starts r forwards late and ends as late.
    """
    return Schedule("ZB-H2", [_rank(r, m, in_flight=2 * (p - r) - 1, held_back=2 * r) for r in range(p)])


def _rank(r: int, m: int, in_flight: int, held_back: int) -> list[Action]:
    """1F1B with `in_flight` forwards up to the first I, and W of a microbatch `held_back` microbatches after its I."""
    warmup = min(m, in_flight - 1)
    row = [Action(r, "F", i) for i in range(warmup)]
    for i in range(m):  # steady, then cool-down once there are no forwards left
        if warmup + i < m:
            row.append(Action(r, "F", warmup + i))
        row.append(Action(r, "I", i))
        if i >= held_back:
            row.append(Action(r, "W", i - held_back))
    return row + [Action(r, "W", i) for i in range(max(0, m - held_back), m)]
