"""PipeDream's partition: stages may be replicated, and both replicas and cuts pay for the network."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

from mlsyslab.pipeline.partition.profile import LayerProfile
from mlsyslab.pipeline.partition.stages import check


@dataclass(frozen=True)
class Replicated:
    """Contiguous stages, each on one or more workers.

    sizes: layers a stage.  replicas: workers a stage (data parallel among themselves).
    time: seconds a minibatch of the slowest stage or link, what the pipeline needs in its steady state.
    """

    sizes: tuple[int, ...]
    replicas: tuple[int, ...]
    time: float


def pipedream(layers: Sequence[LayerProfile], workers: int | Sequence[int],
              bandwidth: float | Sequence[float]) -> Replicated:
    """Choose stages and their numbers of replicas, all workers used (Narayanan et al. 2019, section 3.1).

    With t_l the seconds, a_l the bytes of activations and w_l the bytes of weights of layer l, and B the bandwidth, a stage
    of layers i … j on m workers takes, and the best pipeline of these layers on m workers has as its slowest part,

        T(i, j, m) = 1/m max(sum t_l, 2(m-1) sum w_l / B)
        A(i, j, m) = min(T(i, j, m),  min over s, m' of max(A(i, s, m-m'), 2 a_s / B, T(s+1, j, m')))

    2(m-1)/m w/B is a ring all-reduce of the stage's gradients; 2 a_s / B brings activations over and gradients back.
    On a network of levels (workers a machine, machines a rack, …) level k pipelines and replicates whole units of level k-1:
    T_k has A_{k-1}(i, j, all workers of the unit) in place of sum t_l.

    layers:    what `profile` measured.
    workers:   how many there are; or one number a level, from the innermost: (4, 2) is 2 machines of 4 workers.
    bandwidth: bytes a second; one a level.
    Replicas are counted in workers; a stage of the outer level that is cut again inside gives several stages, each with as
    many copies as the outer level made of it.
    """
    counts = [workers] if isinstance(workers, int) else list(workers)
    bandwidths = [bandwidth] if isinstance(bandwidth, (int, float)) else list(bandwidth)
    _check(layers, counts, bandwidths)
    n = len(layers)
    times = [layer.time for layer in layers]

    @cache
    def inner(level: int, i: int, j: int) -> Replicated:
        """The best of layers i … j on one unit of the level below `level`: one worker, or all that the unit has."""
        if level:
            return best(level - 1, i, j, counts[level - 1])
        return Replicated((j - i + 1,), (1,), math.fsum(times[i:j + 1]))

    @cache
    def stage(level: int, i: int, j: int, m: int) -> Replicated:
        unit = inner(level, i, j)
        reduce = 2 * (m - 1) * sum(layer.weights for layer in layers[i:j + 1]) / bandwidths[level]
        return Replicated(unit.sizes, tuple(m * r for r in unit.replicas), max(unit.time, reduce) / m)

    @cache
    def best(level: int, i: int, j: int, m: int) -> Replicated:
        found = stage(level, i, j, m)
        for s in range(i, j):
            cut = 2 * layers[s].activations / bandwidths[level]
            for more in range(1, m) if cut < found.time else ():
                if (last := stage(level, s + 1, j, more)).time < found.time:
                    first = best(level, i, s, m - more)
                    time = max(first.time, cut, last.time)
                    if time < found.time:
                        found = Replicated(first.sizes + last.sizes, first.replicas + last.replicas, time)
        return found

    return best(len(counts) - 1, 0, n - 1, counts[-1])


def _check(layers: Sequence[LayerProfile], counts: list[int], bandwidths: list[float]) -> None:
    if not layers:
        raise ValueError("layers is empty: give the profile of at least one layer")
    check([layer.time for layer in layers], 1)
    if len(counts) != len(bandwidths) or not counts:
        raise ValueError(f"{len(counts)} levels of workers and {len(bandwidths)} of bandwidth: give one of each a level")
    if any(not isinstance(count, int) or count < 1 for count in counts):
        raise ValueError(f"workers={counts}: every level has 1 or more units")
    if any(not b > 0 for b in bandwidths):
        raise ValueError(f"bandwidth={bandwidths}: bytes a second, more than 0")
