"""What workers and servers say to each other: one message a request, so that a death leaves no half of one."""

from __future__ import annotations

from typing import NamedTuple

import torch

# What is asked or told: the first number of a message.
PULL, PUSH, JOIN, LEAVE, CLOSE, OK, NOT_HERE = range(7)

# On which channel; each shard has its own tag on each of them.
REQUEST, GRADIENT, REPLY, VALUES, COPY, COPIED, RETURN, SIZE, SNAPSHOT, END = range(10)
MAX_SHARDS = 1024

WORDS = 5
HEADER_BYTES = 8 * WORDS


def tag(channel: int, shard: int = 0) -> int:
    return channel * MAX_SHARDS + shard


class Message(NamedTuple):
    """word: PULL, PUSH, …  worker, clock: whose, and when.  life: how often whoever asks had died.

    version: of the values that are sent.  values: a shard of values or of a gradient, None for none.
    """

    word: int
    worker: int = -1
    clock: int = -1
    life: int = 0
    version: int = 0
    values: torch.Tensor | None = None

    def pack(self, length: int = 0, dtype: torch.dtype = torch.float32) -> torch.Tensor:
        """As bytes, with room for `length` values even where there are none."""
        data = room(length, dtype)
        data[:HEADER_BYTES].view(torch.int64).copy_(torch.tensor(self[:WORDS]))
        if self.values is not None:
            data[HEADER_BYTES:].view(dtype).copy_(self.values)
        return data


def unpack(data: torch.Tensor, dtype: torch.dtype = torch.float32) -> Message:
    """The message in these bytes; its values are a view of them."""
    values = data[HEADER_BYTES:].view(dtype) if len(data) > HEADER_BYTES else None
    return Message(*data[:HEADER_BYTES].view(torch.int64).tolist(), values=values)


def room(length: int = 0, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """Bytes for a message of `length` values."""
    return torch.empty(HEADER_BYTES + length * dtype.itemsize, dtype=torch.uint8)
