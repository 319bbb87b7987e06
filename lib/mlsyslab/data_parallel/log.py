"""What servers and workers write into the trace, and how it is read again.

Everything that is measured about a run is read from here, so it is the same for simulated and for real ranks, and it
outlives the rank that wrote it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from mlsyslab.comm import Communicator, Trace

#: At a server: a worker was given the values; a gradient was taken up, or its copy at the backup was; a worker was left out,
#: or came back, or had done all. At a worker: it had the values; their loss on all points, and on its own; an update was
#: acknowledged.
KINDS = ("read", "update", "copy", "leave", "join", "close", "began", "loss", "own loss", "acknowledged")


class Entry(NamedTuple):
    """One line of the log.

    kind: one of KINDS.  time: s.  rank: who wrote it.  shard: which, -1 where it is no shard's.  worker, clock: whose.
    version: how many updates the values had (after an update).  slowest: the least clock of the workers that count.
    value: of a loss.
    """

    kind: str
    time: float
    rank: int
    shard: int
    worker: int
    clock: int
    version: int = 0
    slowest: int = 0
    value: float = 0.0


def write(comm: Communicator, kind: str, shard: int, worker: int, clock: int, version: int = 0, slowest: int = 0,
          value: float = 0.0) -> None:
    now = comm.now()
    comm.record(kind, now, now, label=f"{shard} {worker} {clock} {version} {slowest} {value!r}")


def read(trace: Trace, *kinds: str) -> list[Entry]:
    """The lines of these kinds, in order of time."""
    return sorted(_entries(trace, kinds), key=lambda entry: entry.time)


def _entries(trace: Trace, kinds: tuple[str, ...]) -> Iterator[Entry]:
    for event in trace:
        if event.kind in kinds:
            *whole, value = event.label.split()
            yield Entry(event.kind, event.start, event.rank, *map(int, whole), float(value))


def reads(trace: Trace) -> list[Entry]:
    """Whenever a worker was given the values of a shard."""
    return read(trace, "read")


def updates(trace: Trace) -> list[Entry]:
    """Whenever a gradient was taken up by a shard."""
    return read(trace, "update")


def acknowledged(trace: Trace) -> list[Entry]:
    """Whenever a worker was told that its gradient is safe."""
    return read(trace, "acknowledged")
