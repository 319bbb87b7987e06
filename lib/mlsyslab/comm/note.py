"""The note that a rank writes to another when it posts a send or a receive.

Both ranks of a message write one, so both know what the other expects: each can tell that shapes differ, when the message
could start, and, when nothing moves any more, why.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import NamedTuple

import torch

#: A note is never longer, so that it fits one atomic write to a pipe (POSIX grants 512 bytes, Linux 4096).
MAX_NOTE = 512
#: Messages up to this many bytes travel in the note itself.
MAX_INLINE = 256
MAX_DIMS = 20

_HEAD = struct.Struct("<HccBBIIIQqd")  # length, kind, way, dtype, dimensions, source, context, tag, number, place, time
_SHAPES = [struct.Struct(f"<{dims}q") for dims in range(MAX_DIMS + 1)]
_DTYPES = sorted({kind for kind in vars(torch).values() if isinstance(kind, torch.dtype)}, key=str)
_DTYPE_CODES = {dtype: code for code, dtype in enumerate(_DTYPES)}


class Note(NamedTuple):
    """What one rank tells another.

    kind: "send" or "recv".  way: how the message travels (`b"i"` in this note, and what `carriers` add).
    number: of the sender's messages, this one.  place: where it lies.  time: when it was posted.
    """

    kind: str
    way: bytes
    dtype: torch.dtype
    shape: torch.Size
    source: int
    context: int
    tag: int
    number: int
    place: int
    time: float
    inline: bytes = b""

    def pack(self) -> bytes:
        dims = len(self.shape)
        length = _HEAD.size + 8 * dims + len(self.inline)
        head = _HEAD.pack(length, b"s" if self.kind == "send" else b"r", self.way, _DTYPE_CODES[self.dtype], dims,
                          self.source, self.context, self.tag, self.number, self.place, self.time)
        return head + _SHAPES[dims].pack(*self.shape) + self.inline


def unpack(data: bytes) -> Note:
    """The note that `data` begins with."""
    length, kind, way, dtype, dims, source, context, tag, number, place, time = _HEAD.unpack_from(data)
    shape = _SHAPES[dims].unpack_from(data, _HEAD.size)
    return Note("send" if kind == b"s" else "recv", way, _DTYPES[dtype], torch.Size(shape), source, context, tag, number,
                place, time, data[_HEAD.size + 8 * dims:length])


def cut(data: bytes) -> tuple[Iterator[Note], bytes]:
    """The whole notes in `data`, and the rest."""
    notes, start = [], 0
    while len(data) - start >= _HEAD.size:
        length = int.from_bytes(data[start:start + 2], "little")
        if len(data) - start < length:
            break
        notes.append(unpack(data[start:start + length]))
        start += length
    return iter(notes), data[start:]
