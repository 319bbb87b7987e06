"""What is multiplied while products are timed: two matrices, filled with random numbers before the clock starts."""

from __future__ import annotations

from typing import Any

import torch
from torch.multiprocessing.reductions import StorageWeakRef

from mlsyslab.check.products import Products


class Operands(Products):
    """Notes what the products inside `with` multiply, without keeping it alive.

    squared: whether a matrix met itself.  constant: whether one held the same number everywhere.
    filled: how many products had been carried out when random numbers were made for another.
    """

    FILLS = ("rand", "randn", "randint", "rand_like", "randn_like", "randint_like", "normal", "uniform", "random")

    def __init__(self):
        super().__init__()
        self.squared = self.constant = self._fresh = False
        self.filled: list[int] = []
        self._seen: dict[tuple[int, int], StorageWeakRef] = {}  # while these are held no new memory gets an old name

    def __torch_function__(self, func, types, args=(), kwargs=None):
        self._fresh |= getattr(func, "__name__", "").strip("_") in self.FILLS
        return super().__torch_function__(func, types, args, kwargs)

    def note(self, args):
        if self._fresh:
            self.filled.append(self.number - 1)
            self._fresh = False
        names = [self._name(tensor) for tensor in tensors(args)]
        self.squared |= len(set(names)) < len(names)

    def _name(self, matrix: torch.Tensor) -> tuple[int, int]:
        """The memory that it is in, and where there; its numbers are looked at once."""
        memory = StorageWeakRef(matrix.untyped_storage())
        name = memory.cdata, matrix.storage_offset()
        if name not in self._seen:
            self._seen[name] = memory
            self.constant |= bool(matrix.min() == matrix.max())
        return name

    def wrong(self, warm_up: int) -> str | None:
        """What is wrong with the matrices, where the first `warm_up` products aren't timed."""
        if self.squared:
            return "a matrix was multiplied by itself: make two"
        if any(before > warm_up for before in self.filled):
            return "random numbers were made between the products: fill both matrices once, before anything is timed"
        if self.constant:
            return "a matrix held the same number everywhere: fill both with random numbers (torch.randn)"
        return None


def tensors(args: Any) -> list[torch.Tensor]:
    """Those among the arguments of a function, also in a list of them."""
    found = []
    for arg in args:
        found += [arg] if isinstance(arg, torch.Tensor) else tensors(arg) if isinstance(arg, (tuple, list)) else []
    return found
