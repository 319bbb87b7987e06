"""The exact partition by a mixed-integer linear programme, solved by HiGHS."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from mlsyslab.pipeline.partition.stages import Partition, check, from_sizes


def linear(times: Sequence[float], stages: int) -> Partition:
    """Cut layers into contiguous stages so that the slowest is as fast as possible; the solver does the search.

    y[s, l] is 1 when layer l lies in one of the stages 0 … s. Minimise T such that

        y[s, l] >= y[s, l+1]                                 a stage is a contiguous run
        y[s, l] >= y[s-1, l],   y[p-1, l] = 1                every layer is placed, once
        sum_l (y[s, l] - y[s-1, l]) t_l <= T                 T is at least every stage's time
        sum_l (y[s, l] - y[s-1, l])     >= 1                 no stage is empty

    times: seconds a layer.  stages: 1 … len(times).  Needs scipy.
    """
    from scipy.optimize import Bounds, LinearConstraint, milp

    times = check(times, stages)
    n, p = len(times), stages
    scale = max(times) or 1.0  # microseconds would drown in the solver's tolerances
    t = np.asarray(times) / scale
    T = p * n  # the last variable, after y[s, l] at s n + l
    rows: list[dict[int, float]] = []
    least: list[float] = []

    def at_least(bound: float, row: dict[int, float]) -> None:
        rows.append(row)
        least.append(bound)

    for s in range(p):
        for l in range(n):
            if l + 1 < n:
                at_least(0, {s * n + l: 1, s * n + l + 1: -1})
            if s:
                at_least(0, {s * n + l: 1, (s - 1) * n + l: -1})
        here = range(s * n, (s + 1) * n)
        before = range((s - 1) * n, s * n) if s else ()
        at_least(0, {T: 1} | {y: -t[y % n] for y in here} | {y: t[y % n] for y in before})
        at_least(1, dict.fromkeys(here, 1.0) | dict.fromkeys(before, -1.0))

    A = np.zeros((len(rows), T + 1))
    for i, row in enumerate(rows):
        A[i, list(row)] = list(row.values())
    lower = np.concatenate((np.zeros((p - 1) * n), np.ones(n), [0.0]))
    upper = np.concatenate((np.ones(p * n), [np.inf]))
    found = milp(c=[0.0] * T + [1.0], constraints=LinearConstraint(A, lb=least), bounds=Bounds(lower, upper),
                 integrality=[1] * T + [0], options={"mip_rel_gap": 0.0})
    if not found.success:
        raise RuntimeError(f"HiGHS found no partition of {n} layers into {p} stages: {found.message}")
    ends = found.x[:T].reshape(p, n).round().sum(axis=1).astype(int)
    return from_sizes(times, np.diff(ends, prepend=0).tolist())
