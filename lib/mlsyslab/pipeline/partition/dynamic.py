"""The exact partition by a dynamic programme."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from mlsyslab.pipeline.partition.stages import Partition, check, from_sizes


def dynamic(times: Sequence[float], stages: int) -> Partition:
    """Cut layers into contiguous stages so that the slowest is as fast as possible, in O(stages n^2).

    T[k, j], the slowest of the best k stages for the first j layers, ends in a stage that begins at some layer i:
    T[k, j] = min over i of max(T[k-1, i], t_i + … + t_{j-1}).

    times: seconds a layer.  stages: 1 … len(times).
    """
    times = check(times, stages)
    n = len(times)
    upto = np.concatenate(([0.0], np.cumsum(times)))
    T = np.full((stages + 1, n + 1), np.inf)
    begins = np.zeros((stages + 1, n + 1), dtype=int)
    T[0, 0] = 0.0
    for k in range(1, stages + 1):
        for j in range(k, n + 1):
            slowest = np.maximum(T[k - 1, :j], upto[j] - upto[:j])
            begins[k, j] = i = int(slowest.argmin())
            T[k, j] = slowest[i]
    sizes, j = [], n
    for k in range(stages, 0, -1):
        sizes.append(j - begins[k, j])
        j = begins[k, j]
    return from_sizes(times, [int(size) for size in reversed(sizes)])
