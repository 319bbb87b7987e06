"""How functions, inputs and results travel between the caller's process and the ranks' processes."""

from __future__ import annotations

import functools
import io
import pickle
import socket
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

import torch

_LENGTH = struct.Struct("!Q")


def dumps(value: Any, by_value: ModuleType | None = None) -> bytes:
    """Pickle `value`: a tensor as just the elements it shows, functions of `__main__` (a script, a notebook) by value.

    by_value: a module whose functions, too, travel by value, because the reader cannot import it.
    """
    file = io.BytesIO()
    with _traveling(by_value):
        _pickler()(file, protocol=pickle.HIGHEST_PROTOCOL).dump(value)
    return file.getvalue()


@contextmanager
def _traveling(module: ModuleType | None) -> Iterator[None]:
    import cloudpickle  # only whoever launches needs it
    if module is None or module.__name__ == "__main__":
        yield
        return
    cloudpickle.register_pickle_by_value(module)
    try:
        yield
    finally:
        cloudpickle.unregister_pickle_by_value(module)


def loads(data: bytes, device: torch.device | None = None) -> Any:
    """What `dumps` was given; its tensors on `device`, which is the CPU where none is named."""
    _Unpickler.device = device
    return _Unpickler(io.BytesIO(data)).load()


@functools.cache
def _pickler() -> type:
    import cloudpickle

    class Pickler(cloudpickle.Pickler):
        def reducer_override(self, obj):
            if type(obj) is torch.Tensor and obj.layout is torch.strided and not obj.is_quantized:
                return _tensor, (_elements(obj), obj.dtype, tuple(obj.shape), obj.requires_grad)
            return super().reducer_override(obj)

    return Pickler


class _Unpickler(pickle.Unpickler):
    device: torch.device | None = None


def _elements(tensor: torch.Tensor) -> pickle.PickleBuffer:
    plain = tensor.detach().cpu().resolve_conj().resolve_neg().contiguous()
    flat = plain.as_strided((plain.numel(),), (1,))  # a single element may have any stride and count as contiguous
    return pickle.PickleBuffer(flat.view(torch.uint8).numpy())


def _tensor(elements: bytearray, dtype: torch.dtype, shape: tuple[int, ...], requires_grad: bool) -> torch.Tensor:
    flat = torch.frombuffer(elements, dtype=dtype) if len(elements) else torch.empty(0, dtype=dtype)
    return flat.reshape(shape).to(_Unpickler.device or "cpu").requires_grad_(requires_grad)


def send(to: socket.socket, *message: Any) -> None:
    """Send one message, a tuple."""
    data = dumps(message)
    to.sendall(_LENGTH.pack(len(data)))
    to.sendall(data)


class Inlet:
    """The receiving end of a socket, cut into messages."""

    def __init__(self, source: socket.socket):
        self.socket = source
        self.buffer = bytearray()

    def receive(self) -> Iterator[tuple]:
        """Read once (blocking where the socket does) and yield every message that is now complete.

        Raises EOFError when the other end is closed.
        """
        self._fill()
        while (message := self._cut()) is not None:
            yield message

    def one(self) -> tuple:
        """The next message, waited for."""
        while (message := self._cut()) is None:
            self._fill()
        return message

    def _fill(self) -> None:
        try:
            data = self.socket.recv(1 << 20)
        except ConnectionError:
            data = b""
        if not data:
            raise EOFError
        self.buffer += data

    def _cut(self) -> tuple | None:
        if len(self.buffer) < _LENGTH.size:
            return None
        end = _LENGTH.size + _LENGTH.unpack_from(self.buffer)[0]
        if len(self.buffer) < end:
            return None
        message = bytes(memoryview(self.buffer)[_LENGTH.size:end])
        del self.buffer[:end]
        return loads(message)
