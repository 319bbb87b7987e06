"""A batch in pieces: microbatches along dimension 0, token slices along dimension 1, and the share of each in the mean."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import torch

from mlsyslab.pipeline.schedule import Schedule

#: A whole batch, to be cut along dimension 0, or its microbatches.
Batch = torch.Tensor | Sequence[torch.Tensor]


def cut(batch: Batch, microbatches: int, slices: Sequence[int], name: str) -> list[tuple[torch.Tensor, ...]]:
    """The pieces of a batch, `pieces[microbatch][slice]`.

    A tensor is cut by `torch.tensor_split`, so that the first microbatches may have one row more; a list has them already.
    slices: how long the slices are in proportion to each other, () to leave sequences whole.
    name: of the batch, for the error message.
    """
    if isinstance(batch, torch.Tensor):
        if batch.dim() == 0 or len(batch) < microbatches:
            raise ValueError(f"{name} has {len(batch) if batch.dim() else 0} rows, too few for {microbatches} microbatches: "
                             "give at least one row each, or a schedule of fewer microbatches")
        batch = batch.tensor_split(microbatches)
    if len(batch) != microbatches:
        raise ValueError(f"{name} is a list of {len(batch)} tensors; the schedule has {microbatches} microbatches")
    if not slices:
        return [(piece,) for piece in batch]
    for piece in batch:
        if piece.dim() < 2 or piece.shape[1] % sum(slices):
            raise ValueError(f"{name} of shape {tuple(piece.shape)}: the schedule cuts dimension 1 in the proportion "
                             f"{':'.join(map(str, slices))}, so it has to be a multiple of {sum(slices)}")
    return [piece.split([length * (piece.shape[1] // sum(slices)) for length in slices], dim=1) for piece in batch]


def updates(schedule: Schedule) -> list[range]:
    """The microbatches whose gradients go into each update; all of them into the one that follows a synchronous step."""
    last = {a.microbatch for a in schedule if a.kind == "U" and a.stage == schedule.stages - 1}
    ends = sorted(last | {schedule.microbatches - 1})
    return [range(before + 1, end + 1) for before, end in pairwise([-1, *ends])]


def shares(pieces: list[tuple[torch.Tensor, ...]], groups: Sequence[range]) -> list[tuple[float, ...]]:
    """The share of each piece in the mean over its group of microbatches, `shares[microbatch][slice]`.

    A piece counts by its rows (times its tokens, where there are slices). Shares of one group add up to 1.
    """
    sizes = [tuple(piece.shape[0] * (piece.shape[1] if len(row) > 1 else 1) for piece in row) for row in pieces]
    whole = [0.0] * len(pieces)
    for group in groups:
        total = sum(sum(sizes[i]) for i in group)
        for i in group:
            whole[i] = total
    return [tuple(size / whole[i] for size in row) for i, row in enumerate(sizes)]
