"""A batch in pieces: microbatches along dimension 0, token slices along dimension 1, and the share of each in the mean."""

from __future__ import annotations

from collections.abc import Sequence

import torch

#: A whole batch, to be cut along dimension 0, or its microbatches.
Batch = torch.Tensor | Sequence[torch.Tensor]


def cut(batch: Batch, microbatches: int, slices: Sequence[int], name: str) -> list[tuple[torch.Tensor, ...]]:
    """The pieces of a batch, `pieces[microbatch][slice]`.

    A tensor is cut by `torch.tensor_split`, so that the first microbatches may have one row more; a list has them already.
    slices: tokens in each slice, () to leave sequences whole.  name: of the batch, for the error message.
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
        if piece.dim() < 2 or piece.shape[1] != sum(slices):
            raise ValueError(f"{name} of shape {tuple(piece.shape)}: the schedule cuts dimension 1 into slices of "
                             f"{', '.join(map(str, slices))}, {sum(slices)} tokens together")
    return [piece.split(list(slices), dim=1) for piece in batch]


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
