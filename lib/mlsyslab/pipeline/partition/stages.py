"""A cut of a chain of layers into stages, and what its balance is worth."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Partition:
    """Contiguous stages.  sizes: layers a stage.  times: seconds a stage (forward and backward of one microbatch)."""

    sizes: tuple[int, ...]
    times: tuple[float, ...]

    @property
    def bottleneck(self) -> float:
        """Seconds of the slowest stage."""
        return max(self.times)

    @property
    def balance(self) -> float:
        """Mean stage over slowest stage: 1 when all stages take the same time, 1/p when one does everything."""
        return sum(self.times) / (len(self.times) * self.bottleneck) if self.bottleneck else 1.0

    @property
    def layers(self) -> list[range]:
        """The layers of each stage, as indices into the chain."""
        ends = [sum(self.sizes[:s + 1]) for s in range(len(self.sizes))]
        return [range(end - size, end) for end, size in zip(ends, self.sizes, strict=True)]


def from_sizes(times: Sequence[float], sizes: Sequence[int]) -> Partition:
    """The partition that gives `sizes[s]` layers to stage s."""
    stages, first = [], 0
    for size in sizes:
        stages.append(math.fsum(times[first:first + size]))
        first += size
    return Partition(tuple(sizes), tuple(stages))


def check(times: Sequence[float], stages: int) -> list[float]:
    """The layer times as floats; raises ValueError where no partition is possible."""
    times = [float(t) for t in times]
    for layer, t in enumerate(times):
        if not (math.isfinite(t) and t >= 0):
            raise ValueError(f"times[{layer}]={t}: a layer takes a finite number of seconds, 0 or more")
    if isinstance(stages, bool) or not isinstance(stages, int) or not 1 <= stages <= len(times):
        raise ValueError(f"stages={stages!r} for {len(times)} layers: give 1 … {len(times)}, as every stage has a layer")
    return times


def even(times: Sequence[float], stages: int) -> Partition:
    """The same number of layers in every stage (the first stages get one more), whatever the layers cost."""
    times = check(times, stages)
    few, more = divmod(len(times), stages)
    return from_sizes(times, [few + (s < more) for s in range(stages)])


def excess(found: float, optimum: float) -> float:
    """How far a time is from the best one: 0.0 is optimal, 0.25 takes a quarter longer."""
    return found / optimum - 1 if optimum else 0.0


def bubble(stage_times: Sequence[float], microbatches: int) -> float:
    """Idle over total time when m microbatches go through stages of unequal times t, and nothing else delays them.

    T = sum t_s + (m-1) max t_s (Zheng et al. 2022, Alpa, section 5), of which every rank works m t_s. With equal
    stages the bubble is (p-1)/(m+p-1); unequal ones leave 1 - balance, which no number of microbatches takes away.
    """
    if microbatches < 1:
        raise ValueError(f"microbatches={microbatches}: at least 1")
    p, work, m = len(stage_times), math.fsum(stage_times), microbatches
    total = work + (m - 1) * max(stage_times)
    return 1 - m * work / (p * total) if total else 0.0
