"""A tensor in p parts, one a rank, that lie one after the other in memory."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

import torch

TOGETHER = 64  #: views that are made at once, and kept: those of thousands of ranks would take more memory than the parts


class Parts:
    """One contiguous tensor, cut along dim 0 into a part for each rank.

    `parts[i]` is rank i's part, `parts[i:j]` those of ranks i … j-1 together, `parts[:]` the whole: views, so that what
    is received into them stands in its place. Parts may be of unequal length, or empty.
    """

    def __init__(self, tensor: torch.Tensor, lengths: Sequence[int]):
        self.tensor = tensor
        self.lengths = list(lengths)
        self.cuts = [0, *accumulate(lengths)]
        self._views: Sequence[torch.Tensor] = ()  # of some parts one after the other,
        self._first = 0  # from this one on

    def __len__(self) -> int:
        return len(self.lengths)

    def __getitem__(self, ranks: int | slice) -> torch.Tensor:
        if isinstance(ranks, slice):
            first, last, _ = ranks.indices(len(self))
            return self.tensor[self.cuts[first]:self.cuts[last]]
        place = ranks - self._first
        return self._views[place] if 0 <= place < len(self._views) else self._view(ranks)

    def _view(self, rank: int) -> torch.Tensor:
        """A part, and for the next ones to be asked for those about it: one by one, views cost four times as much."""
        self._first = first = rank - rank % TOGETHER
        last = min(first + TOGETHER, len(self))
        self._views = self[first:last].split(self.lengths[first:last])
        return self._views[rank - first]

    def reordered(self, order: Sequence[int]) -> Parts:
        """A copy in which the parts of the ranks `order[0]`, `order[1]`, … follow one another."""
        return Parts(torch.cat([self[rank] for rank in order]), [self.lengths[rank] for rank in order])

    def restore(self, order: Sequence[int], copy: Parts) -> None:
        """Take back what stands in a `reordered` copy."""
        for place, rank in enumerate(order):
            self[rank].copy_(copy[place])


def even_lengths(length: int, p: int) -> list[int]:
    """The rows of p parts of `length` rows, as `torch.tensor_split` cuts them: the first `length % p` are longer by one."""
    quotient, remainder = divmod(length, p)
    return [quotient + 1] * remainder + [quotient] * (p - remainder)
