"""The one record of a run: who did what, when, with how many bytes."""

from __future__ import annotations

import json
from array import array
from collections.abc import Iterable, Iterator, Sequence
from os import PathLike
from typing import NamedTuple

import numpy as np


class Event(NamedTuple):
    """Something that a rank did.

    kind: "send", "recv", "combine" (a reduction), "compute", or what a library layer adds ("alloc" and "free" of live memory).
    start, end: seconds since the run began.  bytes: of the message or buffer.  peer: the other rank, -1 for none.
    """

    rank: int
    kind: str
    start: float
    end: float
    bytes: int = 0
    peer: int = -1
    label: str = ""


class Trace(Sequence):
    """A list of `Event`, kept by columns so that millions of them fit a laptop.

    Simulated and real runs write the same events, so whatever is read from a trace can be compared between the two.
    """

    _KEPT = ("rank", "kind", "start", "end", "bytes", "peer", "label")

    def __init__(self, events: Iterable[Event] = (), size: int = 0):
        self.size = size
        self._columns = dict(zip(self._KEPT, (array(code) for code in "iiddqii"), strict=True))
        self._names: dict[str, int] = {}
        self._appends = tuple(column.append for column in self._columns.values())
        for event in events:
            self.add(*event)

    # -- writing ------------------------------------------------------------------------------------------------------

    def add(self, rank: int, kind: str, start: float, end: float, bytes: int = 0, peer: int = -1, label: str = "") -> None:
        """Append one event."""
        names = self._names
        to_rank, to_kind, to_start, to_end, to_bytes, to_peer, to_label = self._appends
        to_rank(rank)
        to_kind(names.setdefault(kind, len(names)))
        to_start(start)
        to_end(end)
        to_bytes(bytes)
        to_peer(peer)
        to_label(names.setdefault(label, len(names)))
        if rank >= self.size:
            self.size = rank + 1

    def extend(self, events: Iterable[Event], shift: float = 0.0) -> None:
        """Append events, their times moved by `shift` seconds."""
        for e in events:
            self.add(e.rank, e.kind, e.start + shift, e.end + shift, e.bytes, e.peer, e.label)

    # -- reading as a list --------------------------------------------------------------------------------------------

    def __len__(self) -> int:
        return len(self._columns["rank"])

    def __getitem__(self, index):
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        rank, kind, start, end, nbytes, peer, label = (column[index] for column in self._columns.values())
        names = self.names
        return Event(rank, names[kind], start, end, nbytes, peer, names[label])

    def __iter__(self) -> Iterator[Event]:
        names = self.names
        for rank, kind, start, end, nbytes, peer, label in zip(*self._columns.values(), strict=True):
            yield Event(rank, names[kind], start, end, nbytes, peer, names[label])

    def __eq__(self, other) -> bool:
        return isinstance(other, Trace) and self.size == other.size and list(self) == list(other)

    __hash__ = None

    def __repr__(self) -> str:
        return (f"Trace({self.size} ranks, {len(self)} events, {self.messages()} messages, "
                f"{self.bytes_sent()} bytes, {self.time:.6g} s)")

    @property
    def names(self) -> list[str]:
        """Kinds and labels, by the number under which the columns hold them."""
        return list(self._names)

    def column(self, name: str) -> np.ndarray:
        """One field of every event as an array (kinds and labels as numbers into `names`)."""
        return np.array(self._columns[name])

    def _is(self, *kinds: str) -> np.ndarray:
        return np.isin(self.column("kind"), [self._names[kind] for kind in kinds if kind in self._names])

    def of(self, rank: int) -> list[Event]:
        """The events of one rank, in order of their start."""
        return sorted((self[int(i)] for i in np.flatnonzero(self.column("rank") == rank)), key=lambda e: (e.start, e.end))

    # -- what is read from it -----------------------------------------------------------------------------------------

    def _sent(self, rank: int | None) -> np.ndarray:
        sent = self._is("send")
        return sent if rank is None else sent & (self.column("rank") == rank)

    def messages(self, rank: int | None = None) -> int:
        """Messages sent by `rank`, or by all ranks."""
        return int(self._sent(rank).sum())

    def bytes_sent(self, rank: int | None = None) -> int:
        """Bytes sent by `rank`, or by all ranks."""
        return int(self.column("bytes")[self._sent(rank)].sum())

    def bytes_combined(self, rank: int | None = None) -> int:
        """Bytes that `rank` (or all ranks) reduced."""
        combined = self._is("combine")
        if rank is not None:
            combined &= self.column("rank") == rank
        return int(self.column("bytes")[combined].sum())

    @property
    def time(self) -> float:
        """Seconds from the start of the run to the end of its last event."""
        return float(self.column("end").max()) if len(self) else 0.0

    @property
    def rounds(self) -> int:
        """Length of the longest chain of messages of which each begins after the one before it, on one of its two ranks.

        Messages that a rank sends and receives at the same time count as one round.
        """
        keep = np.flatnonzero(self._is("send"))
        starts, ends = self.column("start")[keep], self.column("end")[keep]
        ranks, peers = self.column("rank")[keep], self.column("peer")[keep]
        finished: list[list[tuple[float, int]]] = [[] for _ in range(self.size)]
        reached, longest = [0] * self.size, 0
        for i in np.lexsort((ends, starts)):
            pair = int(ranks[i]), int(peers[i])
            for rank in pair:  # what has ended on this rank by now
                open_messages = []
                for end, depth in finished[rank]:
                    if end <= starts[i]:
                        reached[rank] = max(reached[rank], depth)
                    else:
                        open_messages.append((end, depth))
                finished[rank] = open_messages
            depth = 1 + max(reached[pair[0]], reached[pair[1]])
            longest = max(longest, depth)
            for rank in pair:
                finished[rank].append((ends[i], depth))
        return longest

    def busy(self, rank: int, kinds: Sequence[str] = ("compute", "combine")) -> float:
        """Seconds in which `rank` did something of these kinds (overlaps count once)."""
        chosen = self._is(*kinds) & (self.column("rank") == rank)
        starts, ends = self.column("start")[chosen], self.column("end")[chosen]
        total, covered = 0.0, -np.inf
        for i in np.argsort(starts, kind="stable"):
            total += max(0.0, ends[i] - max(starts[i], covered))
            covered = max(covered, ends[i])
        return float(total)

    @property
    def bubble(self) -> float:
        """Idle time over total time, of all ranks together: 1 - computing / (ranks x time)."""
        whole = self.size * self.time
        return 1 - sum(self.busy(rank) for rank in range(self.size)) / whole if whole else 0.0

    def peak_memory(self, rank: int) -> int:
        """The most bytes live at once on `rank`, from its "alloc" and "free" events."""
        live = peak = 0
        for event in self.of(rank):
            if event.kind in ("alloc", "free"):
                live += event.bytes if event.kind == "alloc" else -event.bytes
                peak = max(peak, live)
        return peak

    def to_chrome(self, path: str | PathLike) -> None:
        """Write the trace for chrome://tracing or ui.perfetto.dev: one track a rank, arrows for messages."""
        events = []
        for number, e in enumerate(self):
            name = e.label or (f"{e.kind} {'to' if e.kind == 'send' else 'from'} {e.peer}" if e.peer >= 0 else e.kind)
            events.append({"name": name, "cat": e.kind, "ph": "X", "pid": 0, "tid": e.rank, "ts": e.start * 1e6,
                           "dur": (e.end - e.start) * 1e6, "args": {"bytes": e.bytes, "peer": e.peer, "event": number}})
        names = [{"name": "thread_name", "ph": "M", "pid": 0, "tid": rank, "args": {"name": f"rank {rank}"}}
                 for rank in range(self.size)]
        with open(path, "w", encoding="utf-8") as file:
            json.dump({"traceEvents": names + events, "displayTimeUnit": "ms"}, file)
