"""What a schedule makes each rank keep: activations from forward to backward, and versions of the weights.

Both follow from the order of a rank's actions alone, whatever time they take.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from mlsyslab.pipeline.columns import B, Columns, F, W
from mlsyslab.pipeline.schedule import Schedule


def live_activations(columns: Columns, sizes: ArrayLike = 1.0) -> np.ndarray:
    """(n,) how much a rank holds during each action: from a microbatch's forward to its full backward, or to its W.

    sizes: what one forward keeps, the same or by stage (and slice); 1 counts activations. It is there until the end of the
    action that frees it, and in inference until the end of the forward.
    """
    size = columns.by_stage("activation", sizes)[columns.stage, columns.slice]
    frees = np.isin(columns.kind, (B, W))
    if not columns.schedule.trains:
        return size
    change = np.where(columns.kind == F, size, 0.0) - np.where(frees, size, 0.0)
    total = np.cumsum(change)
    before = np.concatenate([[0.0], total])[columns.first[:-1]]
    after = total - np.repeat(before, np.diff(columns.first))
    return after + np.where(frees, size, 0.0)


def peak_activations(schedule: Schedule, sizes: ArrayLike = 1.0) -> list[float]:
    """For each rank, the most that it holds at once. See `live_activations`."""
    columns = Columns(schedule)
    live = live_activations(columns, sizes)
    return [float(live[a:b].max(initial=0.0)) for a, b in zip(columns.first[:-1], columns.first[1:], strict=True)]


def weight_versions(schedule: Schedule) -> list[int]:
    """For each rank, the most versions of one stage's weights that it holds at once: 1 in every synchronous schedule.

    A version lives from the update that makes it until the last action that computes with it, and at least until the next
    update, which then happens in place.
    """
    return [max((_most_versions(row, stage) for stage in schedule.held[rank]), default=0) if schedule.asynchronous else 1
            for rank, row in enumerate(schedule.actions)]


def _most_versions(row: tuple, stage: int) -> int:
    made, used = {0: 0}, {}
    for i, a in enumerate(row):
        if a.stage != stage:
            continue
        if a.kind == "U":
            made[a.version] = i
            used[a.version - 1] = max(used.get(a.version - 1, 0), i - 1)
        else:
            used[a.version] = i
    births = np.sort(list(made.values()))
    deaths = np.sort([used.get(version, len(row)) for version in made])
    # at the birth number k, k + 1 versions have been made, of which those that died before are gone
    return int(max(k + 1 - np.searchsorted(deaths, birth, side="left") for k, birth in enumerate(births)))
