"""Messages between ranks of one machine, through shared memory.

A message costs two copies, into a block that both ranks have mapped and out of it, where a socket costs the same copies
and the network stack besides; what is combined is read right from the block. Nothing has a name on disk: blocks are pieces
of an anonymous file (`memfd_create`), the notes that announce them go through a pipe, and a peer opens both through
`/proc/<pid>/fd`. So nothing can stay behind, however a rank ends.
"""

from __future__ import annotations

import contextlib
import errno
import mmap
import os
import select
import time
from collections import defaultdict, deque
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

import torch

from mlsyslab.comm.note import Note, cut

_HEADER = 64  # of a block: its first byte says whether the receiver still needs it
_CHUNK = 1 << 26  # bytes that are mapped at once
_MOMENT = 3e-4  # s for which it is looked whether a block comes free, which is quicker than to be woken then
_PIPE = 1 << 20  # bytes that a pipe is to hold
_READ = 1 << 16  # and that are read of it at once


def available() -> bool:
    """Whether this machine has what this module needs (Linux with /proc)."""
    return hasattr(os, "memfd_create") and os.path.exists(f"/proc/{os.getpid()}/fd")


class Inbox:
    """Where the notes of all other ranks arrive."""

    def __init__(self):
        self.reader, self.writer = os.pipe()
        os.set_blocking(self.writer, False)
        _widen(self.writer)
        self.rest = b""

    @property
    def address(self) -> str:
        return f"/proc/{os.getpid()}/fd/{self.writer}"

    def wait(self, outboxes: list[Outbox]) -> None:
        """Return when there is something to read, or when one of `outboxes` can write again."""
        if outboxes:
            select.select([self.reader], [box.writer for box in outboxes], [])

    def read(self) -> Iterator[Note]:
        """The notes that are there; waits for the first."""
        notes, self.rest = cut(self.rest + os.read(self.reader, _READ))
        return notes

    def empty(self) -> bool:
        return not select.select([self.reader], [], [], 0)[0]


def _widen(pipe: int) -> None:
    """Let `pipe` hold more, where the system lets us; the usual 64 KiB do as well."""
    with contextlib.suppress(ImportError, AttributeError, OSError):
        import fcntl
        fcntl.fcntl(pipe, fcntl.F_SETPIPE_SZ, _PIPE)


class Outbox:
    """The way into another rank's inbox. Never blocks: what the pipe can't hold is kept and written later."""

    def __init__(self, address: str):
        self.writer = os.open(address, os.O_WRONLY | os.O_NONBLOCK)
        self.kept: deque[bytes] = deque()

    def write(self, note: bytes) -> None:
        self.kept.append(note)
        self.flush()

    def flush(self) -> bool:
        """Write what is kept; whether all of it went."""
        while self.kept:
            try:
                os.write(self.writer, self.kept[0])  # at most PIPE_BUF bytes, so it goes whole or not at all
            except OSError as error:
                if error.errno == errno.EAGAIN:
                    return False
                if error.errno != errno.EPIPE:
                    raise
                self.kept.clear()  # the reader is gone; whoever started it tells why
                return True
            self.kept.popleft()
        return True


class _Block:
    """A piece of an arena, as this process sees it."""

    __slots__ = ("offset", "map", "start", "kind", "message")

    def __init__(self, offset: int, map: mmap.mmap, start: int):
        self.offset, self.map, self.start = offset, map, start
        self.kind: tuple[torch.dtype, torch.Size] | None = None
        self.message: torch.Tensor | None = None

    def like(self, tensor: torch.Tensor) -> torch.Tensor:
        """The message in it, which is like `tensor`; most often as the one before, so that is kept."""
        kind = tensor.dtype, tensor.shape
        if kind != self.kind:
            flat = torch.frombuffer(self.map, dtype=tensor.dtype, count=tensor.numel(), offset=self.start + _HEADER)
            self.kind, self.message = kind, flat.view(tensor.shape)
        return self.message

    @property
    def taken(self) -> bool:
        return self.map[self.start] != 0

    @taken.setter
    def taken(self, value: bool) -> None:
        self.map[self.start] = value


class _Mapped:
    """An arena's file, mapped chunk by chunk; a block that is no smaller than a chunk is mapped by itself."""

    def __init__(self, file: int):
        self.file = file
        self.maps: dict[int, mmap.mmap] = {}
        self.blocks: dict[int, _Block] = {}  # by offset

    def block(self, offset: int, size: int) -> _Block:
        if offset not in self.blocks:
            base, length = (offset - offset % _CHUNK, _CHUNK) if size < _CHUNK else (offset, size)
            if base not in self.maps:
                self.maps[base] = mmap.mmap(self.file, length, offset=base)
            self.blocks[offset] = _Block(offset, self.maps[base], offset - base)
        return self.blocks[offset]


class Arena:
    """The blocks that this rank's messages lie in until they are received."""

    def __init__(self):
        self.file = os.memfd_create("mlsyslab")
        self.mapped = _Mapped(self.file)
        self.size = 0  # of the file
        self.next = self.left = 0  # where the next small block goes, and how many bytes are left there
        self.blocks: dict[int, deque[_Block]] = defaultdict(deque)  # by size

    @property
    def address(self) -> str:
        return f"/proc/{os.getpid()}/fd/{self.file}"

    def put(self, tensor: torch.Tensor) -> int:
        """Copy `tensor` into a block; returns the block's offset."""
        block = self._take(block_size(tensor.nbytes))
        block.like(tensor).copy_(tensor)
        return block.offset

    def has_room(self, nbytes: int) -> bool:
        """Whether there is a free block for a message, or none yet. Most often one comes free in a moment."""
        blocks = self.blocks[block_size(nbytes)]
        until = time.monotonic() + _MOMENT
        while blocks and _free(blocks) is None:
            if time.monotonic() > until:
                return False
            os.sched_yield()
        return True

    def _take(self, size: int) -> _Block:
        blocks = self.blocks[size]
        block = _free(blocks)
        if block is None:
            block = self.mapped.block(self._grow(size), size)
            blocks.rotate(-64)
            blocks.appendleft(block)
        block.taken = True
        return block

    def _grow(self, size: int) -> int:
        """The offset of a new block. What isn't touched of the file takes no memory."""
        if size > self.left:
            offset = self.size
            self.size += max(size, _CHUNK)
            os.ftruncate(self.file, self.size)
            if size >= _CHUNK:
                return offset
            self.next, self.left = offset, _CHUNK
        offset = self.next
        self.next += size
        self.left -= size
        return offset


def _free(blocks: deque[_Block]) -> _Block | None:
    """The first free one, which is the one used last, so it is still in the cache."""
    return next((block for block in islice(blocks, 64) if not block.taken), None)


class Window:
    """Another rank's arena, seen from here."""

    def __init__(self, address: str):
        self.mapped = _Mapped(os.open(address, os.O_RDWR))

    def get(self, offset: int, out: torch.Tensor, take: Callable[[torch.Tensor, torch.Tensor], Any]) -> None:
        """Let `take(out, message)` have the message that lies at `offset`, and free its block."""
        block = self.mapped.block(offset, block_size(out.nbytes))
        take(out, block.like(out))
        block.taken = False


def block_size(nbytes: int) -> int:
    """Bytes of the block for a message of `nbytes`: a power of two, so that blocks fit again."""
    return max(mmap.ALLOCATIONGRANULARITY, 1 << (nbytes + _HEADER - 1).bit_length())
