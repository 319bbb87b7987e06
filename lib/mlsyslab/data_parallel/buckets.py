"""Gradients in buckets: few long messages in place of many short ones, and early ones while backward still runs.

Backward computes the gradients in the reverse order of use, so the last layer's can travel while the first layer's are still
to come. A bucket is the gradients that travel together. The first one is small (1 MiB), so that the links begin to work
early; the others are long enough (25 MiB) for a ring to work near its bandwidth (Li et al. 2020, section 3.2.2).
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence

import torch
from torch import nn

from mlsyslab.collectives import ALGORITHMS, Parts, counts, even_lengths
from mlsyslab.comm import Communicator

MIB = 1 << 20
PART = MIB // 2  #: about so many bytes of each rank's part in what an all-reduce has under way at once


def assign(sizes: Sequence[int], first_bucket_bytes: int = MIB, bucket_bytes: int = 25 * MIB,
           kinds: Sequence[Hashable] | None = None) -> list[list[int]]:
    """Which gradients go together: lists of indices into `sizes`.

    sizes: bytes of each gradient, in the order in which they come.  kinds: what must agree within a bucket (the dtype).
    A bucket takes gradients until it has its bytes, so it ends with the one that fills it. Buckets are in the order of their
    first gradients.
    """
    if first_bucket_bytes < 1 or bucket_bytes < 1:
        raise ValueError(f"first_bucket_bytes={first_bucket_bytes}, bucket_bytes={bucket_bytes}: both are 1 or more")
    kinds = [None] * len(sizes) if kinds is None else kinds
    buckets: list[list[int]] = []
    open: dict[Hashable, list[int]] = {}  # by kind, the bucket that isn't full
    full: set[Hashable] = set()  # kinds that have had their first bucket
    for index, kind in enumerate(kinds):
        if kind not in open:
            open[kind] = []
            buckets.append(open[kind])
        open[kind].append(index)
        if sum(sizes[i] for i in open[kind]) >= (bucket_bytes if kind in full else first_bucket_bytes):
            del open[kind]
            full.add(kind)
    return buckets


class Bucket:
    """Gradients that are reduced together, one after the other in one flat tensor.

    names, parameters: whose.  flat: (elements,); once a step is done, every `.grad` is a view of its part of it.
    """

    def __init__(self, number: int, names: Sequence[str], parameters: Sequence[nn.Parameter]):
        self.number, self.names, self.parameters = number, list(names), list(parameters)
        lengths = [parameter.numel() for parameter in parameters]
        self.flat = torch.empty(sum(lengths), dtype=parameters[0].dtype, device=parameters[0].device)
        self.views = [view.view(p.shape) for view, p in zip(self.flat.split(lengths), parameters, strict=True)]

    @property
    def elements(self) -> int:
        return self.flat.numel()

    @property
    def nbytes(self) -> int:
        return self.flat.nbytes

    @property
    def dtype(self) -> torch.dtype:
        return self.flat.dtype

    def __repr__(self) -> str:
        return f"Bucket({self.number}: {len(self.names)} gradients, {self.nbytes} bytes)"

    @torch.no_grad()
    def put(self, i: int, scale: float) -> None:
        """Put the i-th parameter's gradient, times `scale`, in its place; zeros where it has none."""
        gradient, view = self.parameters[i].grad, self.views[i]
        if gradient is None:
            view.zero_()
        elif gradient.layout != torch.strided:
            raise TypeError(f"the gradient of {self.names[i]} is of layout {gradient.layout}, and buckets hold dense ones: "
                            "build the embedding with sparse=False")
        else:
            torch.mul(gradient, scale, out=view)
            self.parameters[i].grad = view  # what autograd had made is free now

    def reduce(self, side: Communicator, algorithm: str, dtype: torch.dtype | None) -> None:
        """Add up the flat tensors of all ranks, in place; in `dtype`, where another is given for the way.

        A long one goes in equal pieces (`pieces`).
        """
        start = side.now()
        data = self.flat if dtype is None else self.flat.to(dtype)
        for piece in data.tensor_split(pieces(data.nbytes, side.size)):
            ALGORITHMS["all_reduce"][algorithm](side, Parts(piece, even_lengths(len(piece), side.size)), "sum")
        if data is not self.flat:
            self.flat.copy_(data)
        side.record("all_reduce", start, side.now(), data.nbytes, label=f"bucket {self.number}")


def pieces(nbytes: int, p: int) -> int:
    """In how many pieces a bucket goes: with about half a MiB for each rank, an all-reduce takes one at a time.

    Long enough for the ring, and no longer, since what is on its way needs memory too.
    """
    return max(1, round(nbytes / (p * PART)))


def bytes_sent(elements: Sequence[int], itemsize: int, p: int, rank: int, algorithm: str = "ring") -> int:
    """Bytes that a rank sends in a step, for buckets of so many elements.

    On a ring 2 (p-1)/p of all, as evenly as they divide: a rank sends every part of a bucket twice, but for its own and its
    right neighbour's, which it sends once.
    """
    lengths = [length for n in elements for length in even_lengths(n, pieces(n * itemsize, p))]
    return sum(counts("all_reduce", algorithm, even_lengths(length, p), itemsize)[rank].sent for length in lengths)
