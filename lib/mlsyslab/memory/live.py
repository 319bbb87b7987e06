"""Live memory, measured on any device: a tensor's memory counts from the operator that made it until nobody holds it."""

from __future__ import annotations

import weakref
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


class Live(TorchDispatchMode):
    """While entered, follow every tensor that an operator makes.

    now, peak: bytes.  record: `now` after each operator, so that the whole run can be drawn.
    What was there before doesn't count, unless it is given to `watch`. On the meta device it rehearses a run that would
    not fit: no memory is taken and all of it is counted.
    """

    def __init__(self):
        super().__init__()
        self.now = self.peak = 0
        self.record: list[int] = []
        self._known: set[int] = set()

    def watch(self, *tensors: torch.Tensor) -> Live:
        """Count these too, as parameters that were made before."""
        for tensor in tensors:
            self._meet(tensor)
        self.peak = max(self.peak, self.now)
        return self

    def __torch_dispatch__(self, func, types, args=(), kwargs=None) -> Any:
        result = func(*args, **(kwargs or {}))
        before = {leaf.untyped_storage()._cdata for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, torch.Tensor)}
        for leaf in tree_leaves(result):
            if isinstance(leaf, torch.Tensor) and leaf.untyped_storage()._cdata not in before:
                self._meet(leaf)
        self.peak = max(self.peak, self.now)
        self.record.append(self.now)
        return result

    def _meet(self, tensor: torch.Tensor) -> None:
        storage = tensor.untyped_storage()
        key = storage._cdata
        if key in self._known:
            return
        n = storage.nbytes()
        self._known.add(key)
        self.now += n
        weakref.finalize(storage, self._leave, key, n).atexit = False

    def _leave(self, key: int, n: int) -> None:
        self._known.discard(key)
        self.now -= n
