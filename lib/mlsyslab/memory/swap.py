"""CPU swapping: activations go to host memory in forward and come back in backward, beside the computation."""

from __future__ import annotations

import weakref
from collections.abc import Iterable
from typing import Any, NamedTuple

import torch
from torch import Tensor


class Swap:
    """Context: what autograd saves inside leaves the device, and returns when backward asks for it.

    besides: tensors whose memory stays, as model.parameters().  least: smaller memory (bytes) stays too.
    out, back: bytes that went each way so far. Tensors that share memory go once, together.
    On a GPU the copies run on a stream of their own, to and from pinned host memory, so that they overlap with computation;
    when backward asks for one memory, the one that left before it is fetched as well. On a CPU, where nothing is elsewhere,
    the copies are NumPy arrays that torch knows nothing of: the same bookkeeping, to read and to test.
    """

    def __init__(self, besides: Iterable[Tensor] = (), least: int = 0):
        self.out = self.back = 0
        self._stays = {tensor.untyped_storage()._cdata for tensor in besides}
        self._least = least
        self._away: list[_Away] = []
        self._by_address: dict[int, _Away] = {}
        self._hooks = torch.autograd.graph.saved_tensors_hooks(self._pack, self._unpack)

    def __enter__(self) -> Swap:
        self._hooks.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        self._hooks.__exit__(*error)

    def _pack(self, tensor: Tensor) -> Tensor | _Ticket:
        storage = tensor.untyped_storage()
        if storage._cdata in self._stays or storage.nbytes() < self._least or not tensor.dim():
            return tensor
        away = self._by_address.get(storage._cdata)
        if away is None or away.source() is not storage:  # another memory may have had this address before
            away = (_AwayFromGPU if storage.device.type == "cuda" else _AwayFromCPU)(storage, len(self._away))
            self._away.append(away)
            self._by_address[storage._cdata] = away
            self.out += away.nbytes
        away.tickets += 1
        return _Ticket(away, tensor.dtype, tensor.shape, tensor.stride(), tensor.storage_offset())

    def _unpack(self, packed: Tensor | _Ticket) -> Tensor:
        if isinstance(packed, Tensor):
            return packed
        self._fetch(packed.away)
        before = self._away[packed.away.number - 1] if packed.away.number else None
        if before and before.tickets:
            self._fetch(before)
        return packed.tensor()

    def _fetch(self, away: _Away) -> None:
        if away.home is None:
            away.fetch()
            self.back += away.nbytes


class _Ticket(NamedTuple):
    """How a saved tensor lies in the memory that is away."""

    away: _Away
    dtype: torch.dtype
    shape: torch.Size
    stride: tuple[int, ...]
    offset: int

    def tensor(self) -> Tensor:
        storage = self.away.take()
        return torch.empty(0, dtype=self.dtype, device=storage.device).set_(storage, self.offset, self.shape, self.stride)


class _Away:
    """One memory that left: its copy on the host, and its new home on the device while tickets for it are out."""

    def __init__(self, storage: torch.UntypedStorage, number: int):
        self.source, self.number, self.nbytes = weakref.ref(storage), number, storage.nbytes()
        self.tickets = 0
        self.home: Tensor | None = None
        self.leave(_bytes(storage))

    def take(self) -> torch.UntypedStorage:
        """The memory at home; with the last ticket it is no longer held here."""
        self.arrive()
        storage = self.home.untyped_storage()
        self.tickets = max(0, self.tickets - 1)  # a graph that is gone through once more fetches anew
        if not self.tickets:
            self.home = None
        return storage

    def leave(self, content: Tensor) -> None:
        raise NotImplementedError

    def fetch(self) -> None:
        raise NotImplementedError

    def arrive(self) -> None:
        """Wait until what was fetched is there."""


class _AwayFromCPU(_Away):
    def leave(self, content: Tensor) -> None:
        self.host = content.numpy().copy()

    def fetch(self) -> None:
        self.home = torch.empty(self.nbytes, dtype=torch.uint8)
        self.home.numpy()[:] = self.host


class _AwayFromGPU(_Away):
    def leave(self, content: Tensor) -> None:
        self.device = content.device
        self.host = torch.empty(self.nbytes, dtype=torch.uint8, pin_memory=True)
        beside = _beside(self.device)
        beside.wait_stream(torch.cuda.current_stream(self.device))  # until it is computed
        with torch.cuda.stream(beside):
            self.host.copy_(content, non_blocking=True)
        content.record_stream(beside)  # it is not to be overwritten before it is copied

    def fetch(self) -> None:
        self.home = torch.empty(self.nbytes, dtype=torch.uint8, device=self.device)
        beside = _beside(self.device)
        beside.wait_stream(torch.cuda.current_stream(self.device))  # until its new place is free
        with torch.cuda.stream(beside):
            self.home.copy_(self.host, non_blocking=True)
            self.fetched = torch.cuda.Event()
            self.fetched.record(beside)
        self.home.record_stream(beside)

    def arrive(self) -> None:
        torch.cuda.current_stream(self.device).wait_event(self.fetched)


def _bytes(storage: torch.UntypedStorage) -> Tensor:
    return torch.empty(0, dtype=torch.uint8, device=storage.device).set_(storage)


_streams: dict[torch.device, torch.cuda.Stream] = {}


def _beside(device: torch.device) -> torch.cuda.Stream:
    """The stream for copies, one a device."""
    if device not in _streams:
        _streams[device] = torch.cuda.Stream(device)
    return _streams[device]
