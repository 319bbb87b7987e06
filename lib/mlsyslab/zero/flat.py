"""Parameters laid one after the other in one row of elements, cut into a shard for each rank."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate

import torch
from torch import nn

from mlsyslab.collectives import Parts, even_lengths
from mlsyslab.data_parallel.buckets import MIB, assign

Named = tuple[str, nn.Parameter]


class Flat:
    """Parameters of one dtype on one device, which share one row of memory: `whole`, (length,).

    Every parameter is a view into `whole`, so that a collective on `whole` needs no copy in or out. Rank r's shard is part
    r of `whole`; where p doesn't divide `length`, the first shards are longer by one element.

    label: what it is called in the trace.  names, parameters: whose they are.  length: elements of all.
    lengths: of each rank's shard.  trained: whether they are, or frozen.
    """

    def __init__(self, label: str, parameters: Sequence[Named], ranks: int):
        self.label, self.names, self.parameters = label, *map(list, zip(*parameters, strict=True))
        self.shapes = [parameter.shape for parameter in self.parameters]
        self.cuts = [0, *accumulate(parameter.numel() for parameter in self.parameters)]
        self.length = self.cuts[-1]
        self.lengths = even_lengths(self.length, ranks)
        first = self.parameters[0]
        self.dtype, self.device, self.trained = first.dtype, first.device, first.requires_grad
        self.whole = torch.cat([parameter.detach().reshape(-1) for parameter in self.parameters])
        self.show()

    def parts(self, whole: torch.Tensor) -> Parts:
        """`whole`, this flat's parameters or gradients, as one part a rank."""
        return Parts(whole, self.lengths)

    def place(self, i: int, whole: torch.Tensor) -> torch.Tensor:
        """Where parameter number i has its elements in `whole`."""
        return whole[self.cuts[i]:self.cuts[i + 1]].view(self.shapes[i])

    def show(self) -> None:
        """Let the parameters be what `whole` holds."""
        for i, parameter in enumerate(self.parameters):
            parameter.data = self.place(i, self.whole)

    # -- stage 3: the row without its memory --------------------------------------------------------------------------

    @property
    def is_open(self) -> bool:
        """Whether `whole` has its memory."""
        return self.whole.untyped_storage().nbytes() > 0

    @property
    def nbytes(self) -> int:
        return self.length * self.dtype.itemsize

    def open(self) -> None:
        """Give `whole` its memory, not yet its values. Views that autograd saved for backward see the new memory too."""
        self.whole.untyped_storage().resize_(self.nbytes)

    def close(self) -> None:
        """Give up the memory; the parameters are empty until they are shown again."""
        for parameter in self.parameters:
            parameter.data = self.whole.new_empty(0)
        self.whole.untyped_storage().resize_(0)

    # -- who has what -------------------------------------------------------------------------------------------------

    def owned(self, rank: int) -> Iterator[tuple[int, int, int, int]]:
        """What of each parameter lies in the shard of `rank`: (i, start, stop, at), elements start … stop-1 of parameter i,
        from element `at` of the shard on."""
        first = sum(self.lengths[:rank])
        last = first + self.lengths[rank]
        for i in range(len(self.parameters)):
            low, high = max(first, self.cuts[i]), min(last, self.cuts[i + 1])
            if low < high:
                yield i, low - self.cuts[i], high - self.cuts[i], low - first


def flats_of(parameters: Iterable[Named], ranks: int, label: str) -> list[Flat]:
    """The fewest flats for `parameters`: those of one dtype and device that are all trained, or all frozen, share one."""
    alike: dict[tuple, list[Named]] = {}
    for name, parameter in parameters:
        alike.setdefault((parameter.dtype, parameter.device, parameter.requires_grad), []).append((name, parameter))
    return [Flat(label, named, ranks) for named in alike.values()]


def buckets_of(parameters: Iterable[Named], ranks: int, bucket_bytes: int) -> list[Flat]:
    """Flats of about `bucket_bytes`, in the order in which backward is likely to finish gradients: the last layer first.

    A bucket's gradients are on their way while backward works on the next, as in data parallelism; so is the first bucket
    smaller, that the way is not idle for long.
    """
    last_first = list(parameters)[::-1]
    groups = assign([parameter.nbytes for _, parameter in last_first], min(MIB, bucket_bytes), bucket_bytes,
                    [(parameter.dtype, parameter.device) for _, parameter in last_first])
    return [Flat(f"bucket {n}", [last_first[i] for i in group], ranks) for n, group in enumerate(groups)]
