"""How much memory the tensors of a rank take while its function runs: each is watched until nothing uses it any more."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode


class Live(TorchDispatchMode):
    """Watches the memory of the tensors that are made inside `with live:`, on this thread.

    peak: the most bytes that were there at one time.
    at_peak: the bytes of each of them at that time, in the order in which they were made. Views share what they show.
    """

    def __init__(self):
        super().__init__()
        self.peak, self.at_peak = 0, []
        self._seen: dict[int, StorageWeakRef] = {}
        self._aside = False

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        made = func(*args, **(kwargs or {}))
        if not self._aside:
            self._watch(made, {_address(tensor) for tensor in _tensors((args, *(kwargs or {}).values()))})
        return made

    @contextmanager
    def aside(self) -> Iterator[None]:
        """What is made inside is the checks' own, and doesn't count."""
        self._aside = True
        try:
            yield
        finally:
            self._aside = False

    def sizes(self) -> list[int]:
        """The bytes of each memory that is there now."""
        there = ((address, torch.UntypedStorage._new_with_weak_ptr(ref.cdata)) for address, ref in self._seen.items())
        kept = {address: storage.nbytes() for address, storage in there if storage is not None}
        self._seen = {address: self._seen[address] for address in kept}
        return list(kept.values())

    def _watch(self, made: Any, given: set[int]) -> None:
        """Count what was made, but not what it is a view of, or was written into: that is another's, or counted."""
        new = [tensor for tensor in _tensors(made) if _address(tensor) not in given]
        self._seen |= {_address(tensor): StorageWeakRef(tensor.untyped_storage()) for tensor in new}
        if new and sum(sizes := self.sizes()) > self.peak:
            self.peak, self.at_peak = sum(sizes), sizes


def _tensors(thing: Any) -> Iterator[torch.Tensor]:
    """The tensors in the arguments or the result of an operation."""
    if isinstance(thing, torch.Tensor):
        yield thing
    elif isinstance(thing, (tuple, list)):
        for inner in thing:
            yield from _tensors(inner)


def _address(tensor: torch.Tensor) -> int:
    return tensor.untyped_storage()._cdata
