"""Parameters laid one after the other in one row of elements, cut into a shard for each rank."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate

import torch
from torch import nn

from mlsyslab.collectives import Parts, even_lengths


class Flat:
    """Parameters of one dtype on one device, which share one row of memory: `whole`, (length,).

    Every parameter is a view into `whole`, so that a collective on `whole` needs no copy in or out. Rank r's shard is part
    r of `whole`; where p doesn't divide `length`, the first shards are longer by one element.

    names, parameters: whose they are.  length: elements of all.  lengths: of each rank's shard.  trained: whether they are.
    """

    def __init__(self, names: Sequence[str], parameters: Sequence[nn.Parameter], ranks: int):
        self.names, self.parameters = list(names), list(parameters)
        self.shapes = [parameter.shape for parameter in parameters]
        self.cuts = [0, *accumulate(parameter.numel() for parameter in parameters)]
        self.length = self.cuts[-1]
        self.lengths = even_lengths(self.length, ranks)
        self.dtype, self.device = parameters[0].dtype, parameters[0].device
        self.trained = parameters[0].requires_grad
        self.whole = torch.cat([parameter.detach().reshape(-1) for parameter in parameters])
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


Named = tuple[str, nn.Parameter]


def flats_of(parameters: Iterable[Named], ranks: int) -> list[Flat]:
    """The fewest flats for `parameters`: those of one dtype and device that are all trained, or all frozen, share one."""
    alike: dict[tuple, list[Named]] = {}
    for name, parameter in parameters:
        alike.setdefault((parameter.dtype, parameter.device, parameter.requires_grad), []).append((name, parameter))
    return [Flat(*zip(*named, strict=True), ranks) for named in alike.values()]


def buckets_of(parameters: Iterable[Named], ranks: int, bucket_bytes: int) -> list[Flat]:
    """Flats of up to `bucket_bytes`, in the order in which backward is likely to finish gradients: the last layer first.

    A bucket's gradients are on their way while backward works on the next, as in PyTorch DDP (Li et al. 2020, section
    3.2.3). A parameter that is larger than a bucket has one to itself.
    """
    buckets: list[list[Named]] = []
    room = 0
    for name, parameter in reversed(list(parameters)):
        like = buckets[-1][0][1] if buckets else None
        if like is None or parameter.nbytes > room or (parameter.dtype, parameter.device) != (like.dtype, like.device):
            buckets.append([])
            room = bucket_bytes
        buckets[-1].append((name, parameter))
        room -= parameter.nbytes
    return [Flat(*zip(*bucket, strict=True), ranks) for bucket in buckets]
