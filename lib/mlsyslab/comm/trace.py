"""The one record of a run: who did what, when, with how many bytes."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from os import PathLike
from struct import Struct
from typing import NamedTuple

import numpy as np

_fields = Struct("7d").pack  # of one event, as it is kept at first
_MANY = 65536 * 56  # bytes of the events that are kept so before they go into columns


class Event(NamedTuple):
    """Something that a rank did.

    kind: "send", "recv", "combine" (a reduction), "compute", or what a layer adds ("alloc" and "free" of live memory).
    start, end: seconds since the run began.  bytes: of the message or buffer.  peer: the other rank, -1 for none.
    """

    rank: int
    kind: str
    start: float
    end: float
    bytes: int = 0
    peer: int = -1
    label: str = ""


class _Numbers(dict):
    """A number for each name, in the order in which they are first asked for."""

    def __missing__(self, name: str) -> int:
        self[name] = number = len(self)
        return number


class Trace(Sequence):
    """A list of `Event`, kept by columns so that millions of them fit a laptop.

    Simulated and real runs write the same events, so whatever is read from a trace can be compared between the two.
    """

    _COLUMNS = {"rank": np.int32, "kind": np.int32, "start": np.float64, "end": np.float64, "bytes": np.int64,
                "peer": np.int32, "label": np.int32}

    def __init__(self, events: Iterable[Event] = (), size: int = 0):
        self._size = size
        self._names = _Numbers()  # of kinds and labels
        self._new = bytearray()  # events not yet in columns: the fields of one after those of another
        self._blocks: list[tuple[np.ndarray, ...]] = []
        self.extend(events)

    # -- writing ------------------------------------------------------------------------------------------------------

    def add(self, rank: int, kind: str, start: float, end: float, bytes: int = 0, peer: int = -1, label: str = "") -> None:
        """Append one event."""
        new = self._new
        new += _fields(rank, self._names[kind], start, end, bytes, peer, self._names[label])
        if len(new) >= _MANY:
            self._pack()

    def message(self, source: int, to: int, start: float, end: float, bytes: int) -> None:
        """Append the two events of a message that `to` receives while `source` sends it."""
        new = self._new
        new += _fields(source, -1, start, end, bytes, to, 0)
        if len(new) >= _MANY:
            self._pack()

    def extend(self, events: Iterable[Event], shift: float = 0.0) -> None:
        """Append events, their times moved by `shift` seconds."""
        for e in events:
            self.add(e.rank, e.kind, e.start + shift, e.end + shift, e.bytes, e.peer, e.label)

    def extend_columns(self, rank, kind: str, start, end, bytes=0, peer=-1, labels: Sequence[str] = ("",), label=0) -> None:
        """Append many events of one kind from arrays (or single values that hold for all): `labels[label]` names each."""
        self._pack()
        length = len(np.atleast_1d(rank))
        numbers = np.array([self._names[name] for name in labels], np.int32)
        fields = (rank, self._names[kind], start, end, bytes, peer, numbers[label])
        self._append_block(tuple(np.broadcast_to(np.asarray(field, dtype), (length,)).copy()
                                 for field, dtype in zip(fields, self._COLUMNS.values(), strict=True)))

    def _append_block(self, block: tuple[np.ndarray, ...]) -> None:
        if len(block[0]):
            self._blocks.append(block)
            self._size = max(self._size, int(block[0].max()) + 1, int(block[5].max()) + 1)

    def _pack(self) -> None:
        """Move new events into columns: a million then take 36 MB."""
        if self._new:
            columns = np.frombuffer(self._new).reshape(-1, len(self._COLUMNS)).T
            self._new = bytearray()
            self._append_block(self._both_ends(*map(np.ndarray.astype, columns, self._COLUMNS.values())))

    def _both_ends(self, *columns: np.ndarray) -> tuple[np.ndarray, ...]:
        """A block in which every message, told by its kind -1, has become its two events."""
        message = columns[1] < 0
        rank, kind, *times, nbytes, peer, label = (np.repeat(column, 1 + message) for column in columns)
        sent = np.flatnonzero(kind < 0)[::2]
        if len(sent):
            kind[sent], kind[sent + 1] = self._names["send"], self._names["recv"]
            rank[sent + 1], peer[sent + 1] = peer[sent], rank[sent]
            label[sent] = label[sent + 1] = self._names[""]
        return rank, kind, *times, nbytes, peer, label

    def _packed(self) -> dict[str, np.ndarray]:
        """All columns, each in one array."""
        self._pack()
        if len(self._blocks) != 1:
            self._blocks = [tuple(np.concatenate(column) for column in zip(*self._blocks, strict=True))
                            if self._blocks else tuple(np.empty(0, dtype) for dtype in self._COLUMNS.values())]
        return dict(zip(self._COLUMNS, self._blocks[0], strict=True))

    # -- reading as a list --------------------------------------------------------------------------------------------

    def __len__(self) -> int:
        self._pack()
        return sum(len(block[0]) for block in self._blocks)

    def __getitem__(self, index):
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        rank, kind, start, end, nbytes, peer, label = (column[index].item() for column in self._packed().values())
        names = self.names
        return Event(rank, names[kind], start, end, nbytes, peer, names[label])

    def __iter__(self) -> Iterator[Event]:
        columns = [column.tolist() for column in self._packed().values()]
        names = self.names
        for rank, kind, start, end, nbytes, peer, label in zip(*columns, strict=True):
            yield Event(rank, names[kind], start, end, nbytes, peer, names[label])

    def __eq__(self, other) -> bool:
        return isinstance(other, Trace) and self.size == other.size and list(self) == list(other)

    __hash__ = None

    def __repr__(self) -> str:
        return (f"Trace({self.size} ranks, {len(self)} events, {self.messages()} messages, "
                f"{self.bytes_sent()} bytes, {self.time:.6g} s)")

    @property
    def size(self) -> int:
        """The world size."""
        self._pack()
        return self._size

    @property
    def names(self) -> list[str]:
        """Kinds and labels, by the number under which the columns hold them."""
        self._pack()
        return list(self._names)

    def column(self, name: str) -> np.ndarray:
        """One field of every event as an array (kinds and labels as numbers into `names`)."""
        return self._packed()[name]

    def _is(self, *kinds: str) -> np.ndarray:
        column = self.column("kind")
        numbers = [self._names[kind] for kind in kinds if kind in self._names]
        return np.logical_or.reduce([column == number for number in numbers]) if numbers else np.zeros(len(column), bool)

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
        order = np.lexsort((ends, starts))
        columns = (starts, ends, self.column("rank")[keep], self.column("peer")[keep])
        finished: list[list[tuple[float, int]]] = [[] for _ in range(self.size)]
        reached, longest = [0] * self.size, 0
        for begin, finish, *pair in zip(*(column[order].tolist() for column in columns), strict=True):
            for rank in pair:  # what has ended on this rank by now
                open_messages = []
                for end, depth in finished[rank]:
                    if end <= begin:
                        reached[rank] = max(reached[rank], depth)
                    else:
                        open_messages.append((end, depth))
                finished[rank] = open_messages
            depth = 1 + max(reached[pair[0]], reached[pair[1]])
            longest = max(longest, depth)
            for rank in pair:
                finished[rank].append((finish, depth))
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
