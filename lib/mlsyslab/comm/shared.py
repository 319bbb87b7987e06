"""Messages between ranks of one machine, through shared memory.

A message costs two copies, into a block that both ranks have mapped and out of it, where a socket costs the same copies
and the network stack besides. Nothing has a name on disk: blocks are pieces of an anonymous file (`memfd_create`), the
notes that announce them go through a pipe, and a peer opens both through `/proc/<pid>/fd`. So nothing can stay behind,
however a rank ends.
"""

from __future__ import annotations

import contextlib
import errno
import mmap
import os
import select
from collections import defaultdict, deque
from collections.abc import Iterator
from itertools import islice

import torch

from mlsyslab.comm.note import Note, cut

_HEADER = 64  # of a block: its first byte says whether the receiver still needs it
_PIPE = 1 << 20


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
        notes, self.rest = cut(self.rest + os.read(self.reader, _PIPE))
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
    """A piece of an arena that this process has mapped."""

    __slots__ = ("offset", "map")

    def __init__(self, file: int, offset: int, size: int):
        self.offset = offset
        self.map = mmap.mmap(file, size, offset=offset)

    def view(self, dtype: torch.dtype, shape: tuple[int, ...], count: int) -> torch.Tensor:
        return torch.frombuffer(self.map, dtype=dtype, count=count, offset=_HEADER).view(shape)

    @property
    def taken(self) -> bool:
        return self.map[0] != 0

    @taken.setter
    def taken(self, value: bool) -> None:
        self.map[0] = value


class Arena:
    """The blocks that this rank's messages lie in until they are received."""

    def __init__(self):
        self.file = os.memfd_create("mlsyslab")
        self.size = 0
        self.blocks: dict[int, deque[_Block]] = defaultdict(deque)  # by size

    @property
    def address(self) -> str:
        return f"/proc/{os.getpid()}/fd/{self.file}"

    def put(self, tensor: torch.Tensor) -> int:
        """Copy `tensor` into a block; returns the block's offset."""
        block = self._take(block_size(tensor.nbytes))
        block.view(tensor.dtype, tensor.shape, tensor.numel()).copy_(tensor)
        return block.offset

    def _take(self, size: int) -> _Block:
        blocks = self.blocks[size]
        for block in islice(blocks, 64):  # the first free one is the one used last, so it is still in the cache
            if not block.taken:
                break
        else:
            os.ftruncate(self.file, self.size + size)
            block = _Block(self.file, self.size, size)
            blocks.rotate(-64)
            blocks.appendleft(block)
            self.size += size
        block.taken = True
        return block


class Window:
    """Another rank's arena, seen from here."""

    def __init__(self, address: str):
        self.file = os.open(address, os.O_RDWR)
        self.blocks: dict[int, _Block] = {}

    def get(self, offset: int, out: torch.Tensor) -> None:
        """Copy the message that lies at `offset` into `out`, and free its block."""
        block = self.blocks.get(offset)
        if block is None:
            block = self.blocks[offset] = _Block(self.file, offset, block_size(out.nbytes))
        out.copy_(block.view(out.dtype, out.shape, out.numel()))
        block.taken = False


def block_size(nbytes: int) -> int:
    """Bytes of the block for a message of `nbytes`: a power of two, so that blocks fit again.

    What isn't touched of a block takes no memory.
    """
    return max(mmap.ALLOCATIONGRANULARITY, 1 << (nbytes + _HEADER - 1).bit_length())
