"""The language of the pipe between the judge and the sandbox: plain data in frames, and nothing that could run.

A frame is MessagePack behind its length, and behind that the bytes of its tensors:

    4 bytes: length of the MessagePack    4 bytes: length of the rest    MessagePack    bytes

Its own types stand for themselves; everything else is one of its extension types. What has no form here (a function, a
model, somebody's class) arrives as an `Opaque` thing that has a name and nothing else. Whoever reads makes new objects of
types that he knows, so that no object of the other side's making is ever touched.
"""

from __future__ import annotations

import ctypes
import math
import struct
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import fields, is_dataclass
from fractions import Fraction
from typing import Any

import numpy
import torch
from msgpack import ExtType, Packer, unpackb

HEAD = struct.Struct("!II")
LARGEST = 256 << 20  # bytes of a frame
LARGEST_TEXT = 32 << 20  # bytes of its MessagePack, of which one makes up to 64 where it is read
DEEPEST = 60  # lists in lists
LONGEST = 1_000_000  # entries of a list
LONGEST_INTEGER = 3_000  # hexadecimal digits; Python itself prints no more than 4,300 decimal ones

#: extension types: what their bytes are is in `_Writer` and `_Reader`
TENSOR, ARRAY, BYTES, OPAQUE, DTYPE, TUPLE, SET, COMPLEX, INTEGER, NAMED = range(10)

DTYPES = {str(dtype).removeprefix("torch."): dtype for dtype in (
    torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.float16, torch.bfloat16,
    torch.float32, torch.float64, torch.complex64, torch.complex128)}
NAMES = {dtype: str(dtype).removeprefix("torch.")
         for dtype in vars(torch).values() if isinstance(dtype, torch.dtype)}
NUMBERED = list(DTYPES.values())
NUMBERS = {dtype: number for number, dtype in enumerate(NUMBERED)}
REAL = {dtype for dtype in NUMBERED if not dtype.is_complex}
SHORT = 4096  # bytes of a tensor that may stand in the MessagePack


class Malformed(ValueError):
    """What came is no frame of this language, or too large."""


class Opaque:
    """Something that cannot leave the sandbox; a class of its own, made when it is read, has its name."""

    def __init__(self, text: str):
        self._text = text

    def __repr__(self) -> str:
        return self._text


class Blob(bytes):
    """Many bytes: they travel behind the MessagePack."""


class Coder:
    """Writes and reads values.

    known: dataclasses and named tuples that may travel, by name.
    handles: what else may: for a type, its name and how to write it as plain data. reading: by name, how to read it.
    """

    def __init__(self, known: Iterable[type] = ()):
        self.known = {cls.__name__: cls for cls in known}
        self.fields = {cls: [field.name for field in fields(cls)] if is_dataclass(cls) else cls._fields
                       for cls in self.known.values()}
        self.handles: dict[type, tuple[str, Callable[[Any], Any]]] = {}
        self.reading: dict[str, Callable[[Any], Any]] = {}

    def frame(self, value: Any) -> bytes:
        """`value` as the bytes of a frame. Raises Malformed where it is too large."""
        writer = _Writer(self)
        try:
            text = writer.packed(value)
        except Malformed:
            raise
        except (RecursionError, ValueError):  # MessagePack has its own end
            raise Malformed("it is nested too deeply") from None
        return writer.frame(text)

    def stream(self) -> Stream:
        """The frame of a list to be, which takes up values one after the other as they are now."""
        return Stream(_Writer(self))

    def value(self, text: bytes, rest: bytes) -> Any:
        """What the two parts of a frame say. Raises Malformed where they say nothing in this language."""
        if len(text) > LARGEST_TEXT:
            raise Malformed(f"it has {len(text):,} bytes but for tensors; at most {LARGEST_TEXT:,} pass")
        try:
            return _Reader(self, rest).unpacked(text)
        except Malformed:
            raise
        except Exception as error:
            raise Malformed(f"{type(error).__name__}: {str(error)[:200]}") from None


class _Writer:
    """Writes one frame.  blobs: the bytes behind the MessagePack."""

    def __init__(self, coder: Coder):
        self.coder, self.blobs, self.depth = coder, [], 0

    def packed(self, value: Any) -> bytes:
        shallow(value, DEEPEST - self.depth)
        self.depth += 1
        text = self.packer().pack(value)
        self.depth -= 1
        return text

    def packer(self) -> Packer:
        """One for each value, since what is packed inside of another needs its own."""
        return Packer(default=self._other, strict_types=True, unicode_errors="surrogatepass", buf_size=1 << 12)

    def frame(self, text: bytes) -> bytes:
        """The frame of what was packed. Raises Malformed where it is too large."""
        size = sum(map(len, self.blobs))
        if len(text) + size > LARGEST or len(text) > LARGEST_TEXT:
            raise Malformed(f"it has {len(text) + size:,} bytes; at most {LARGEST:,} pass")
        return b"".join((HEAD.pack(len(text), size), text, *self.blobs))

    def _other(self, value: Any) -> Any:
        """What isn't MessagePack's own, as something that is."""
        kind = type(value)
        if isinstance(value, torch.Tensor):
            return self._tensor(value)
        if kind is torch.dtype:
            return ExtType(DTYPE, NAMES[value].encode())
        if kind in self.coder.handles:
            name, write = self.coder.handles[kind]
            return ExtType(NAMED, self.packed([name, write(value)]))
        if kind in self.coder.fields:
            return ExtType(NAMED, self.packed([kind.__name__, [getattr(value, name) for name in self.coder.fields[kind]]]))
        if kind is int:
            return ExtType(INTEGER, hex(value).encode()) if value.bit_length() < 4 * LONGEST_INTEGER else \
                self._opaque("int", f"an integer of {value.bit_length():,} bits")
        if isinstance(value, str):  # NumPy's among them
            return str.__str__(value)
        if not isinstance(value, numpy.generic):
            for base in (bool, int, float, list, dict):
                if isinstance(value, base):
                    return base(value)
        if kind is range and abs(value.stop - value.start) <= LONGEST:
            value = tuple(value)
        if kind is Fraction and abs(value) < sys.float_info.max:
            return float(value)
        if isinstance(value, (tuple, set, frozenset)):
            return ExtType(TUPLE if isinstance(value, tuple) else SET, self.packed(list(value)))
        if isinstance(value, complex):
            return ExtType(COMPLEX, struct.pack("!dd", value.real, value.imag))
        if isinstance(value, bytes):
            return self._blob(BYTES, b"", value)
        if isinstance(value, (numpy.ndarray, numpy.generic)):
            return self._array(value)
        return self._opaque(kind.__name__, text_of(value))

    def _opaque(self, name: str, text: str) -> ExtType:
        return ExtType(OPAQUE, self.packed([name, text]))

    def _blob(self, code: int, about: bytes, data: bytes) -> ExtType:
        self.blobs.append(data)
        return ExtType(code, struct.pack("!Q", len(data)) + about)

    def _tensor(self, tensor: torch.Tensor) -> ExtType:
        number = NUMBERS.get(tensor.dtype)
        if number is None or tensor.layout is not torch.strided or tensor.is_meta:
            return self._opaque("Tensor", f"a tensor of dtype {NAMES[tensor.dtype]}, {tensor.layout}, on {tensor.device}")
        try:
            data = bytes_of(tensor)
        except Exception as error:  # of a class of the student's, or one without memory
            return self._opaque("Tensor", f"a tensor that can't be read: {text_of(error)}")
        return self._blob(TENSOR, struct.pack(f"!B{tensor.dim()}Q", number, *tensor.shape), data)

    def _array(self, array: numpy.ndarray | numpy.generic) -> ExtType:
        if array.dtype.kind not in "biufc":
            return self._opaque(type(array).__name__, f"an array of dtype {array.dtype}")
        about = self.packed([array.dtype.str, list(array.shape), isinstance(array, numpy.generic)])
        return self._blob(ARRAY, about, numpy.ascontiguousarray(array).tobytes())


class Stream:
    """A list, written value by value as they are taken up. They are plain lists, nested a few times at most."""

    def __init__(self, writer: _Writer):
        self.writer, self.packer = writer, writer.packer()
        self.text, self.count = bytearray(), 0

    def add(self, value: list[Any]) -> None:
        self.text += self.packer.pack(value)
        self.count += 1

    def frame(self) -> bytes:
        return self.writer.frame(self.packer.pack_array_header(self.count) + self.text)


class _Reader:
    """Reads one frame, whose bytes behind the MessagePack are `rest`; they are taken from the front."""

    def __init__(self, coder: Coder, rest: bytes):
        self.coder, self.rest, self.at, self.depth = coder, rest, 0, 0

    def unpacked(self, text: bytes) -> Any:
        self.depth += 1
        value = unpackb(text, ext_hook=self._other, strict_map_key=False, unicode_errors="surrogatepass",
                        max_array_len=LONGEST, max_map_len=LONGEST)
        self.depth -= 1
        shallow(value, DEEPEST - self.depth)
        return value

    def _other(self, code: int, data: bytes) -> Any:
        """What an extension type stands for."""
        if self.depth > DEEPEST:
            raise Malformed("it is nested too deeply")
        if code == TENSOR:
            size, number = struct.unpack_from("!QB", data)
            return tensor_of(number, struct.unpack_from(f"!{(len(data) - 9) // 8}Q", data, 9), self._take(size))
        if code == NAMED:
            name, of = self.unpacked(data)
            return self.coder.reading[name](of) if name in self.coder.reading else self.coder.known[name](*of)
        if code in (TUPLE, SET):
            return (tuple if code == TUPLE else set)(self.unpacked(data))
        if code == DTYPE:
            return DTYPES[data.decode()]
        if code == INTEGER and len(data) <= LONGEST_INTEGER + 3:
            return int(data, 16)
        if code == COMPLEX:
            return complex(*struct.unpack("!dd", data))
        if code == OPAQUE:
            return opaque(*self.unpacked(data))
        if code == BYTES:
            return self._take(*struct.unpack("!Q", data))
        if code == ARRAY:
            return self._array(self._take(*struct.unpack_from("!Q", data)), *self.unpacked(data[8:]))
        raise Malformed(f"there is no type {code}")

    def _take(self, size: int) -> bytes:
        if size > len(self.rest) - self.at:
            raise Malformed("it is shorter than it says")
        self.at += size
        return self.rest[self.at - size:self.at]

    def _array(self, data: bytes, dtype: str, shape: list[int], scalar: bool) -> Any:
        kind = numpy.dtype(dtype)
        if kind.kind not in "biufc":
            raise Malformed(f"no dtype of an array: {dtype!r}")
        array = numpy.frombuffer(data, dtype=kind).reshape(shape).copy()
        return array[()] if scalar else array


def parts(frame: bytes) -> tuple[bytes, bytes]:
    """The MessagePack of a frame, and the bytes behind it."""
    text, _ = HEAD.unpack(frame[:HEAD.size])
    return frame[HEAD.size:HEAD.size + text], frame[HEAD.size + text:]


def shallow(value: Any, levels: int) -> None:
    """Raise Malformed where lists and dictionaries are nested more deeply than that."""
    if type(value) is list:
        inner = value
    elif type(value) is dict:
        inner = [*value, *value.values()]
    else:
        return
    if levels <= 0:
        raise Malformed(f"it is nested more than {DEEPEST} deep")
    for item in inner:
        if type(item) is list or type(item) is dict:
            shallow(item, levels - 1)


def flat(tensor: torch.Tensor) -> list[Any] | torch.Tensor:
    """An ordinary short tensor as the plain data that makes one again (`tensor_of`), which is there sooner; others stay."""
    if (address := _address(tensor)) and tensor.nbytes <= SHORT:
        return [NUMBERS[tensor.dtype], [*tensor.shape], ctypes.string_at(address, tensor.nbytes)]
    return tensor


def tensor_of(number: int, shape: Sequence[int], data: bytes) -> torch.Tensor:
    """The tensor whose elements have these bytes. Raises Malformed where there is none."""
    dtype = NUMBERED[number]
    if len(shape) > 64 or len(data) != math.prod(shape) * dtype.itemsize:
        raise Malformed(f"no shape of {len(data):,} bytes: {str(shape)[:200]}")
    if not data:
        return torch.empty(shape, dtype=dtype)
    return torch.frombuffer(bytearray(data), dtype=dtype).view(shape)


def bytes_of(tensor: torch.Tensor) -> bytes:
    """The bytes of its elements, in the order of its shape."""
    if address := _address(tensor):
        return ctypes.string_at(address, tensor.nbytes)
    plain = tensor.detach().cpu().resolve_conj().resolve_neg().contiguous().reshape(-1)
    return plain.view(torch.uint8).numpy().tobytes() if plain.numel() else b""


def _address(tensor: torch.Tensor) -> int:
    """Where the elements of an ordinary tensor lie one after the other; 0 of another."""
    ordinary = type(tensor) is torch.Tensor and tensor.dtype in REAL and tensor.is_cpu and tensor.layout is torch.strided \
        and tensor.is_contiguous() and not tensor.is_neg()
    return tensor.data_ptr() if ordinary else 0


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
