"""Named tensors as one row of numbers, cut into a shard for each server.

Keys lie one after the other in the order in which they were named. Cutting the row into equal parts, wherever that cuts a
tensor, gives every server the same load however unequal the tensors are (range partition: Li et al. 2014, section 4.3).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import accumulate

import torch

from mlsyslab.collectives import even_lengths
from mlsyslab.comm.communicator import describe


class Keys:
    """Where each named tensor is.

    like: {name: tensor}, all of one floating-point dtype.  servers: how many shards.
    lengths: the numbers in each shard.
    """

    def __init__(self, like: Mapping[str, torch.Tensor], servers: int):
        if not like:
            raise ValueError("a parameter server needs at least one named tensor")
        dtypes = {tensor.dtype for tensor in like.values()}
        if len(dtypes) > 1 or not next(iter(dtypes)).is_floating_point:
            raise TypeError("the values of a parameter server are of one floating-point dtype, not " +
                            ", ".join(f"{name}: {describe(tensor)}" for name, tensor in like.items()))
        self.dtype = next(iter(dtypes))
        self.shapes = {name: tensor.shape for name, tensor in like.items()}
        self.starts = [0, *accumulate(shape.numel() for shape in self.shapes.values())]
        self.lengths = even_lengths(self.starts[-1], servers)
        self.cuts = [0, *accumulate(self.lengths)]

    def places(self, name: str) -> list[tuple[int, int, int]]:
        """Where a key is: [(server, first number, end)], in numbers of that server's shard."""
        if name not in self.shapes:
            raise KeyError(f"there is no key {name!r}; there are {', '.join(self.shapes)}")
        i = list(self.shapes).index(name)
        start, stop = self.starts[i], self.starts[i + 1]
        return [(server, max(start, first) - first, min(stop, last) - first)
                for server, (first, last) in enumerate(zip(self.cuts, self.cuts[1:], strict=False))
                if max(start, first) < min(stop, last)]

    def pack(self, tensors: Mapping[str, torch.Tensor]) -> list[torch.Tensor]:
        """The shards of these tensors."""
        if tensors.keys() != self.shapes.keys():
            missing, unknown = self.shapes.keys() - tensors.keys(), tensors.keys() - self.shapes.keys()
            wrong = {"missing": sorted(missing), "unknown": sorted(unknown)}
            raise ValueError("give one tensor for each key: " +
                             "; ".join(f"{what} {', '.join(names)}" for what, names in wrong.items() if names))
        for name, tensor in tensors.items():
            if tensor.shape != self.shapes[name] or tensor.dtype != self.dtype:
                raise ValueError(f"{name} is {describe(tensor)}; the servers keep {describe(self._like(name))} for it")
        row = torch.cat([tensors[name].detach().reshape(-1) for name in self.shapes])
        return list(row.split(self.lengths))

    def unpack(self, shards: Sequence[torch.Tensor]) -> dict[str, torch.Tensor]:
        """The tensors of these shards."""
        pieces = torch.cat(list(shards)).split([shape.numel() for shape in self.shapes.values()])
        return {name: piece.view(shape) for (name, shape), piece in zip(self.shapes.items(), pieces, strict=True)}

    def _like(self, name: str) -> torch.Tensor:
        return torch.empty(self.shapes[name], dtype=self.dtype, device="meta")
