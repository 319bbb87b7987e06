"""A file of tensors without pickle: a line of JSON that says what is where, then the raw bytes.

Laid out like a safetensors file: 8 bytes that tell the header's length, the header, the tensors' bytes one after the other.
Every piece has its checksum, so that it can be read and checked without the rest.
"""

from __future__ import annotations

import json
import os
import zlib
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch


class CheckpointError(ValueError):
    """A checkpoint can't be read, or isn't one of this model; the message names the file."""


@dataclass(frozen=True)
class Piece:
    """A run of elements of one tensor of the model.

    name: the parameter or buffer.  slot: "parameter", "buffer", or the optimizer's name of a state ("exp_avg", …).
    start, stop: which of its elements.  dtype: "float32", ….  at, crc: where its bytes begin after the header; CRC-32.
    """

    name: str
    slot: str
    start: int
    stop: int
    dtype: str
    at: int = 0
    crc: int = 0

    @property
    def nbytes(self) -> int:
        return (self.stop - self.start) * getattr(torch, self.dtype).itemsize


def raw(tensor: torch.Tensor) -> memoryview:
    """The bytes of a tensor's elements."""
    return memoryview(tensor.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy())


def write(path: Path, about: dict[str, Any], pieces: Sequence[tuple[Piece, torch.Tensor]]) -> tuple[int, int]:
    """Write `pieces` with their tensors; returns the file's length and the CRC-32 of its header.

    about: plain data that goes into the header.
    """
    entries, at = [], 0
    for piece, tensor in pieces:
        entries.append({**asdict(piece), "at": at, "crc": zlib.crc32(raw(tensor))})
        at += piece.nbytes
    header = json.dumps({**about, "pieces": entries}).encode()
    with open(path, "wb") as file:
        file.write(len(header).to_bytes(8, "little"))
        file.write(header)
        for _, tensor in pieces:
            file.write(raw(tensor))
        file.flush()
        os.fsync(file.fileno())
    return 8 + len(header) + at, zlib.crc32(header)


class PieceFile:
    """A file that `write` made, opened to read some of its pieces.

    about: what `write` was given.  crc: the CRC-32 of the header.
    Raises CheckpointError where the file has no whole header.
    """

    def __init__(self, path: Path):
        self.path = path
        try:
            with open(path, "rb") as file:
                length = int.from_bytes(file.read(8), "little")
                header = file.read(min(length, path.stat().st_size))
        except FileNotFoundError:
            raise CheckpointError(f"{path} is missing") from None
        self.first, self.crc = 8 + length, zlib.crc32(header)
        try:
            self.about: dict[str, Any] = json.loads(header)
            self.pieces = [Piece(**entry) for entry in self.about.pop("pieces")]
        except (ValueError, TypeError, KeyError):
            raise CheckpointError(f"{path} is damaged: its header can't be read") from None

    def check(self, nbytes: int, crc: int) -> None:
        """Raise CheckpointError unless this is the file for which `write` returned these."""
        found = self.path.stat().st_size
        if found != nbytes:
            raise CheckpointError(f"{self.path} is {'truncated' if found < nbytes else 'damaged'}: it has {found} bytes and "
                                  f"was written with {nbytes}")
        if self.crc != crc:
            raise CheckpointError(f"{self.path} is damaged: its header is not what was written")

    def read(self, piece: Piece) -> torch.Tensor:
        """The elements of `piece`, flat."""
        with open(self.path, "rb") as file:
            file.seek(self.first + piece.at)
            data = file.read(piece.nbytes)
        if zlib.crc32(data) != piece.crc:
            raise CheckpointError(f"{self.path} is damaged: {piece.slot} of {piece.name} is not what was written")
        return torch.frombuffer(bytearray(data), dtype=getattr(torch, piece.dtype))
