"""TeraPipe: a sequence cut into slices of tokens, which pass through the pipeline one after another (Li et al. 2021)."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from mlsyslab.pipeline.schedule import Action, Schedule
from mlsyslab.pipeline.schedules.registry import register


@register("TeraPipe")
def terapipe(p: int, m: int, slices: int | Sequence[int] = 4) -> Schedule:
    """GPipe in which every microbatch goes as K slices: a causal model's tokens need only those before them.

    slices: how many of equal length, or the tokens of each, as `best_slicing` finds them.
    Forward takes sum t_j + (p-1) max t_j for slices of t_j seconds (section 3.2 of the paper); backward goes from the last
    slice to the first, since gradients of keys and values come from later tokens. All activations are kept.
    """
    lengths = (1,) * slices if isinstance(slices, int) else tuple(slices)
    if not lengths or any(not isinstance(n, int) or n < 1 for n in lengths):
        raise ValueError(f"slices={slices!r}: a number of slices, 1 or more, or the tokens of each, 1 or more")
    forwards = [(i, j) for i in range(m) for j in range(len(lengths))]
    backwards = [(i, j) for i in range(m) for j in reversed(range(len(lengths)))]

    def rank(r: int) -> list[Action]:
        return [Action(r, "F", i, j) for i, j in forwards] + [Action(r, "B", i, j) for i, j in backwards]

    return Schedule("TeraPipe", [rank(r) for r in range(p)], microbatches=m, slices=lengths)


def best_slicing(tokens: int, p: int, time: Callable[[int, int], float], grain: int = 1) -> tuple[list[int], float]:
    """The slice lengths that minimise T = sum t_j + (p-1) max t_j, and T (section 3.3 of the paper).

    For each value that max t_j can have, the dynamic programme S(k) = min over i of S(i) + t(k-i, i) finds the smallest sum
    over slices that take no longer than that.
    time(length, context): seconds of `length` tokens that follow `context` tokens.  grain: lengths are multiples of it.
    """
    if tokens < 1 or grain < 1 or tokens % grain or p < 1:
        raise ValueError(f"tokens={tokens}, grain={grain}, p={p}: all 1 or more, and tokens a multiple of grain")
    n = tokens // grain
    t = np.full((n + 1, n + 1), np.inf)  # t[i, k]: of the slice from token i to token k, in grains
    for i in range(n):
        for k in range(i + 1, n + 1):
            t[i, k] = time((k - i) * grain, i * grain)
    best, cuts = np.inf, []
    for longest in np.unique(t[np.isfinite(t)]):
        if p * longest >= best:
            break  # a slicing with a slice that long takes p times as long at least
        total, found = _least_sum(np.where(t <= longest, t, np.inf))
        if total + (p - 1) * longest < best:
            best, cuts = total + (p - 1) * longest, found
    return [int(b - a) * grain for a, b in zip(cuts, cuts[1:], strict=False)], float(best)


def _least_sum(t: np.ndarray) -> tuple[float, list[int]]:
    """The way from 0 to n with the least sum of t[i, k] over its steps: that sum, and the points on the way."""
    n = len(t) - 1
    least, before = np.zeros(n + 1), np.zeros(n + 1, dtype=int)
    for k in range(1, n + 1):
        sums = least[:k] + t[:k, k]
        before[k] = np.argmin(sums)
        least[k] = sums[before[k]]
    points = [n]
    while points[-1] and np.isfinite(least[n]):
        points.append(before[points[-1]])
    return float(least[n]), points[::-1]
