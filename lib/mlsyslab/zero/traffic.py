"""How many elements each rank sends in a step: by the formula, and rank by rank with shards of uneven length."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from mlsyslab.collectives import counts
from mlsyslab.zero.memory import check_stage

if TYPE_CHECKING:
    from mlsyslab.zero.engine import Engine


class Traffic(NamedTuple):
    """Elements that one rank sends a step, on the average over the ranks."""

    reduce_scatter: float
    all_gather: float

    @property
    def total(self) -> float:
        return self.reduce_scatter + self.all_gather


def rounds(stage: int, accumulate: int) -> tuple[int, int]:
    """How often all gradients are reduced and scattered, and all parameters gathered, in a step of so many microbatches.

    Whoever keeps whole gradients (stages 0 and 1) adds up the microbatches before reducing once; shards of gradients have
    to be reduced each time. Stage 3 gathers before each forward and each backward, the others once, after the update.
    """
    return accumulate if stage >= 2 else 1, 2 * accumulate if stage == 3 else 1


def traffic(parameters: float, ranks: int, stage: int, accumulate: int = 1) -> Traffic:
    """Elements that each of `ranks` ranks sends a step (Rajbhandari et al. 2020, section 7): 2M in stages 0 to 2, 3M in 3.

    Times (p-1)/p: a rank's own part needs no sending. Stage 0's all-reduce is a reduce-scatter and an all-gather.
    accumulate: microbatches a step.
    """
    check_stage(stage)
    if ranks < 1 or accumulate < 1 or parameters < 0:
        raise ValueError(f"traffic(parameters={parameters}, ranks={ranks}, accumulate={accumulate}): ranks and accumulate "
                         f"are 1 or more, parameters 0 or more")
    once = parameters * (ranks - 1) / ranks
    return Traffic(*(times * once for times in rounds(stage, accumulate)))


def sent(engine: Engine, accumulate: int = 1) -> list[int]:
    """Bytes that each rank sends in a step of `engine`, by rank. Stage 3 gathers frozen parameters too.

    Assumes that backward goes through every unit; before the first one that is trained it stops, and gathers no more.
    """
    by_rank = [0] * engine.comm.size
    scatters, gathers = rounds(engine.stage, accumulate)
    for flat in engine.flats:
        for op, times in (("reduce_scatter", scatters * flat.trained),
                          ("all_gather", gathers * (flat.trained or engine.stage == 3))):
            for rank, count in enumerate(counts(op, "ring", flat.lengths, flat.dtype.itemsize)):
                by_rank[rank] += times * count.sent
    return by_rank
