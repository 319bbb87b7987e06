"""The language of the pipe between the judge and the sandbox: plain data in frames, and nothing that could run.

A frame is a line of JSON behind its length, and behind that the bytes of its tensors:

    4 bytes: length of the JSON    4 bytes: length of the rest    JSON    bytes

JSON's own types stand for themselves; everything else is an object with one key, "$", that names it. What has no form here
(a function, a model, somebody's class) arrives as an `Opaque` thing that has a name and nothing else. Whoever reads makes
new objects of types that he knows, so that no object of the other side's making is ever touched.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Iterable
from dataclasses import fields, is_dataclass
from typing import Any

import numpy
import torch

HEAD = struct.Struct("!II")
LARGEST = 256 << 20  # bytes of a frame
DEEPEST = 60  # lists in lists
LONGEST = 1_000_000  # entries of a list

DTYPES = {str(dtype).removeprefix("torch."): dtype for dtype in (
    torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.float16, torch.bfloat16,
    torch.float32, torch.float64, torch.complex64, torch.complex128)}


class Malformed(ValueError):
    """What came is no frame of this language, or too large."""


class Opaque:
    """Something that cannot leave the sandbox; a class of its own, made when it is read, has its name."""

    def __init__(self, text: str):
        self._text = text

    def __repr__(self) -> str:
        return self._text


class Coder:
    """Writes and reads values.

    known: dataclasses and named tuples that may travel, by name.
    handles: what else may: for a type, its name and how to write it as plain data. reading: by name, how to read it.
    """

    def __init__(self, known: Iterable[type] = ()):
        self.known = {cls.__name__: cls for cls in known}
        self.handles: dict[type, tuple[str, Callable[[Any], Any]]] = {}
        self.reading: dict[str, Callable[[Any], Any]] = {}

    # -- writing ------------------------------------------------------------------------------------------------------

    def frame(self, value: Any) -> bytes:
        """`value` as the bytes of a frame. Raises Malformed where it is too large."""
        blobs: list[bytes] = []
        try:
            text = json.dumps(self._plain(value, blobs, 0)).encode()
        except RecursionError:
            raise Malformed("it is nested too deeply") from None
        size = sum(map(len, blobs))
        if len(text) + size > LARGEST:
            raise Malformed(f"it has {len(text) + size:,} bytes; at most {LARGEST:,} pass")
        return b"".join((HEAD.pack(len(text), size), text, *blobs))

    def _plain(self, value: Any, blobs: list[bytes], depth: int) -> Any:
        kind = type(value)
        if value is None or kind is bool or kind is int or kind is float or kind is str:
            return value
        if depth > DEEPEST:
            raise Malformed(f"it is nested more than {DEEPEST} deep")
        if kind is list:
            return [self._plain(item, blobs, depth + 1) for item in value]
        if isinstance(value, torch.Tensor):
            return self._tensor(value, blobs)
        if kind in self.handles:
            name, write = self.handles[kind]
            return {"$": name, "of": self._plain(write(value), blobs, depth + 1)}
        if known := next((name for name, cls in self.known.items() if kind is cls), None):
            names = [field.name for field in fields(kind)] if is_dataclass(kind) else kind._fields
            return {"$": known, "of": [self._plain(getattr(value, name), blobs, depth + 1) for name in names]}
        for base in (bool, int, float, str):
            if isinstance(value, base) and not isinstance(value, numpy.generic):
                return base.__str__(value) if base is str else base(value)
        if isinstance(value, (tuple, set, frozenset)):
            name = "tuple" if isinstance(value, tuple) else "set"
            return {"$": name, "of": [self._plain(item, blobs, depth + 1) for item in value]}
        if isinstance(value, list):
            return [self._plain(item, blobs, depth + 1) for item in value]
        if isinstance(value, dict):
            return {"$": "dict", "of": [[self._plain(key, blobs, depth + 1), self._plain(item, blobs, depth + 1)]
                                        for key, item in value.items()]}
        if isinstance(value, complex):
            return {"$": "complex", "of": [value.real, value.imag]}
        if isinstance(value, (bytes, bytearray)):
            blobs.append(bytes(value))
            return {"$": "bytes", "of": len(value)}
        if isinstance(value, (numpy.ndarray, numpy.generic)):
            return self._array(value, blobs)
        if isinstance(value, torch.dtype):
            return {"$": "dtype", "of": str(value).removeprefix("torch.")}
        return {"$": "opaque", "of": [kind.__name__, text_of(value)]}

    def _tensor(self, tensor: torch.Tensor, blobs: list[bytes]) -> dict[str, Any]:
        name = str(tensor.dtype).removeprefix("torch.")
        if name not in DTYPES or tensor.layout != torch.strided or tensor.device.type == "meta":
            return {"$": "opaque", "of": ["Tensor", f"a tensor of dtype {name}, {tensor.layout}, on {tensor.device}"]}
        plain = tensor.detach().cpu().contiguous().reshape(-1)
        blobs.append(plain.view(torch.uint8).numpy().tobytes() if plain.numel() else b"")
        return {"$": "tensor", "of": [name, list(tensor.shape), str(tensor.device)]}

    def _array(self, array: numpy.ndarray | numpy.generic, blobs: list[bytes]) -> dict[str, Any]:
        if array.dtype.kind not in "biufc":
            return {"$": "opaque", "of": [type(array).__name__, f"an array of dtype {array.dtype}"]}
        blobs.append(numpy.ascontiguousarray(array).tobytes())
        scalar = isinstance(array, numpy.generic)
        return {"$": "array", "of": [array.dtype.str, list(array.shape), scalar]}

    # -- reading ------------------------------------------------------------------------------------------------------

    def value(self, text: bytes, rest: bytes) -> Any:
        """What the two parts of a frame say. Raises Malformed where they say nothing in this language."""
        try:
            return self._read(json.loads(text), _Blobs(rest), 0)
        except Malformed:
            raise
        except Exception as error:
            raise Malformed(f"{type(error).__name__}: {str(error)[:200]}") from None

    def _read(self, value: Any, blobs: _Blobs, depth: int) -> Any:
        if depth > 3 * DEEPEST:
            raise Malformed("it is nested too deeply")
        if isinstance(value, list):
            if len(value) > LONGEST:
                raise Malformed(f"a list has {len(value):,} entries; at most {LONGEST:,} pass")
            return [self._read(item, blobs, depth + 1) for item in value]
        if not isinstance(value, dict):
            return value
        name, of = value["$"], value["of"]
        if name == "tensor":
            return blobs.tensor(*of)
        if name == "array":
            return blobs.array(*of)
        if name == "bytes":
            return blobs.take(of)
        if name == "opaque":
            return opaque(*of)
        if name == "dtype":
            return DTYPES[of]
        parts = self._read(of, blobs, depth + 1)
        if name in self.reading:
            return self.reading[name](parts)
        if name in self.known:
            return self.known[name](*parts)
        return {"tuple": tuple, "set": set, "dict": dict, "complex": lambda pair: complex(*pair)}[name](parts)


class _Blobs:
    """The bytes behind the JSON, taken from the front."""

    def __init__(self, rest: bytes):
        self.rest, self.at = rest, 0

    def take(self, size: int) -> bytes:
        if type(size) is not int or not 0 <= size <= len(self.rest) - self.at:
            raise Malformed("it is shorter than it says")
        self.at += size
        return self.rest[self.at - size:self.at]

    def tensor(self, name: str, shape: list[int], device: str) -> torch.Tensor:
        dtype, numel = DTYPES[name], count(shape)
        data = self.take(numel * dtype.itemsize)
        if not numel:
            return torch.empty(shape, dtype=dtype)
        return torch.frombuffer(bytearray(data), dtype=dtype).reshape(shape)

    def array(self, dtype: str, shape: list[int], scalar: bool) -> Any:
        kind = numpy.dtype(dtype)
        if kind.kind not in "biufc":
            raise Malformed(f"no dtype of an array: {dtype!r}")
        array = numpy.frombuffer(self.take(count(shape) * kind.itemsize), dtype=kind).reshape(shape).copy()
        return array[()] if scalar else array


def count(shape: list[int]) -> int:
    """The number of elements, of a shape that may be anything."""
    if len(shape) > 64 or not all(type(size) is int and 0 <= size <= LARGEST for size in shape):
        raise Malformed(f"no shape: {str(shape)[:200]}")
    numel = 1
    for size in shape:
        numel *= size
    return numel


def opaque(name: str, text: str) -> Opaque:
    """A thing of a new class that has this name, and no more."""
    name = name if isinstance(name, str) and name.isidentifier() and len(name) < 100 else "object"
    return type(name, (Opaque,), {})(str(text)[:300])


def text_of(value: Any) -> str:
    """Its repr, shortened, whatever its author made of that."""
    try:
        return str(repr(value))[:300]
    except Exception:
        return f"<{type(value).__name__}>"
