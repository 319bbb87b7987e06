"""One process a rank, on this machine."""

from __future__ import annotations

import codecs
import importlib.util
import linecache
import os
import selectors
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import torch
import torch.distributed as dist

from mlsyslab.comm import forkserver, fresh, wire
from mlsyslab.comm.communicator import Communicator, Run
from mlsyslab.comm.errors import Deadlock, RankFailed, Wait
from mlsyslab.comm.forkserver import Started, status_of
from mlsyslab.comm.link import Network
from mlsyslab.comm.shared import available
from mlsyslab.comm.trace import Event, Trace
from mlsyslab.comm.world import Position, picture

BACKENDS = ("auto", "gloo", "nccl")

_LOOK = 0.25  # s between two looks at where the ranks are
_GRACE = 1.0  # s in which the first cause of a failure may come after what it caused


def launch(fn: Callable[[Communicator, Any], Any], inputs: Sequence[Any], backend: str = "auto", *,
           link: Network | None = None, timeout: float | None = None) -> Run:
    """Run `fn(comm, inputs[rank])` on every rank, each a process of this machine.

    fn:      what one rank does. It may be written anywhere: a module, a script, a notebook, a shell.
    inputs:  one entry a rank, so `len(inputs)` is the world size. Tensors arrive on the rank's `comm.device`.
    backend: "nccl" (a GPU for each rank), "gloo" (CPU), or "auto": NCCL where there is a GPU for each rank, else Gloo.
    link:    what algorithms that choose by cost shall assume of messages; by default typical values.
    timeout: seconds after which a run that still goes on is ended by a `Deadlock`. One in which no rank can go on any
             more is ended without it, within a second or so.

    Returns a `Run`: `.results` (what each rank returned; tensors on the CPU), `.trace`, `.time` (seconds).
    Raises `RankFailed` when a rank raises (with its traceback), exits or is killed, `Deadlock` when no rank can go on.
    What the ranks print appears where the caller's own output does. No process of the run outlives the call.

    Each rank has `torch.distributed` set up, so that `fn` may call that too.
    """
    inputs = list(inputs)
    if not callable(fn):
        raise TypeError(f"fn={fn!r}: give the function that one rank runs, fn(comm, input)")
    if not inputs:
        raise ValueError("inputs is empty: it holds one entry a rank, and a run needs at least one rank")
    if link is not None and not isinstance(link, Network):
        raise TypeError(f"link={link!r}: give a Link(alpha, beta, gamma) or another network, not {type(link).__name__}")
    if link is not None:
        link.check(len(inputs))
    if timeout is not None and not timeout > 0:
        raise ValueError(f"timeout={timeout!r}: give seconds, more than 0, or None")
    return _Launch(len(inputs), timeout).run(fn, inputs, choose_backend(backend, len(inputs)), link)


def choose_backend(backend: str, ranks: int) -> str:
    """The backend for so many ranks on this machine."""
    if backend not in BACKENDS:
        raise ValueError(f"backend={backend!r}: choose one of {', '.join(BACKENDS)}")
    if backend == "gloo":
        return backend
    gpus = torch.cuda.device_count() if dist.is_nccl_available() else 0
    if gpus >= ranks:
        return "nccl"
    if backend == "nccl":
        raise ValueError(f"backend='nccl' needs a GPU for each of the {ranks} ranks, and this machine has {gpus} that torch "
                         f"can use; take backend='gloo', or fewer ranks")
    return "gloo"


def can_fork() -> bool:
    """Whether ranks are forked from a helper that has imported torch; MLSYSLAB_FORK=0 says no."""
    return sys.platform == "linux" and os.environ.get("MLSYSLAB_FORK") != "0"


class _Launch:
    """One run, seen from the caller."""

    def __init__(self, size: int, timeout: float | None):
        self.size = size
        self.timeout, self.deadline = timeout, None
        self.ranks: list[Started] = []
        self.selector = selectors.DefaultSelector()
        self.reports: dict[int, tuple] = {}  # of the ranks that are done
        self.ended: dict[int, int | None] = {}  # how ranks ended
        self.failures: list[tuple] = []  # (rank, reason, traceback, cause, whether another rank's end explains it)
        self.positions: dict[int, Position] = {}
        self.looks = 0  # how often the ranks have been asked where they are
        self.last: dict[int, Position] = {}

    def run(self, fn, inputs, backend, link) -> Run:
        start = forkserver.start if can_fork() else fresh.start
        with _output(self.selector) as (out, err), _meeting_place() as store:
            try:
                job = _job(fn, link, self.size, backend, store)
                for rank, given in enumerate(inputs):
                    packed = wire.dumps(given)
                    self.ranks.append(start(out, err))
                    self._watch(rank)
                    with suppress(ConnectionError):  # a rank that died already is found out below
                        wire.send(self.ranks[rank].control, {**job, "rank": rank}, packed)
                self._follow()
                return self._result()
            finally:
                self._end()

    def _watch(self, rank: int) -> None:
        control, life = self.ranks[rank]
        inlet = wire.Inlet(control)
        self.selector.register(control, selectors.EVENT_READ, lambda: self._hear(rank, inlet))
        self.selector.register(life, selectors.EVENT_READ, lambda: self._bury(rank))

    # -- following the run --------------------------------------------------------------------------------------------

    def _follow(self) -> None:
        """Return when all ranks are done; raise what ends the run before."""
        look = time.monotonic() + _LOOK
        if self.timeout is not None:
            self.deadline = time.monotonic() + self.timeout
        while len(self.reports) < self.size:
            now = time.monotonic()
            until = look if self.deadline is None else min(look, self.deadline)
            self._listen(max(0.0, until - now))
            self._raise_failure()
            now = time.monotonic()
            if self.deadline is not None and now >= self.deadline:
                raise self._overdue()
            if now >= look:
                self._look()
                look = now + _LOOK

    def _listen(self, seconds: float) -> None:
        for key, _ in self.selector.select(seconds):
            key.data()

    def _hear(self, rank: int, inlet: wire.Inlet) -> None:
        """A rank says something."""
        try:
            for word, *rest in inlet.receive():
                if word == "done":
                    self.reports[rank] = rest
                elif word == "failed":
                    self.failures.append((rank, *rest))
                elif word == "here" and rest[0] == self.looks:
                    self.positions[rank] = rest[1]
        except EOFError:
            self.selector.unregister(inlet.socket)

    def _bury(self, rank: int) -> None:
        """A rank has ended."""
        life = self.ranks[rank].life
        self.ended[rank] = status_of(life)
        self.selector.unregister(life)

    def _raise_failure(self) -> None:
        """Raise what the ranks' failures come from: a rank that ended without a word, else the first that raised."""
        if self.failures and self.failures[0][-1]:
            until = time.monotonic() + _GRACE
            while not self._silent_end() and time.monotonic() < until:
                self._listen(0.05)
        silent = self._silent_end()
        if silent is not None:
            self._listen(0.0)
            if not any(failure[0] == silent for failure in self.failures):
                raise RankFailed(silent, self.size, _how_it_ended(self.ended[silent]))
        if self.failures:
            rank, reason, text, cause, _ = min(self.failures, key=lambda failure: failure[-1])
            failure = RankFailed(rank, self.size, reason, text)
            with suppress(Exception):
                failure.__cause__ = wire.loads(cause)
            raise failure

    def _silent_end(self) -> int | None:
        failed = {failure[0] for failure in self.failures}
        return next((rank for rank in self.ended if rank not in self.reports and rank not in failed), None)

    # -- who waits for whom -------------------------------------------------------------------------------------------

    def _look(self) -> None:
        """Judge the answers to the last look, once all are there, and ask again."""
        running = [rank for rank in range(self.size) if rank not in self.reports]
        if self.looks and any(rank not in self.positions for rank in running):
            return
        here = {rank: self.positions[rank] for rank in running} if self.looks else {}
        if here and here == self.last and self._nothing_moves(here):
            raise Deadlock(picture(here, self.reports), self.size)
        self.last = here
        self._ask(running)

    def _nothing_moves(self, here: dict[int, Position]) -> bool:
        """Whether no rank can ever go on: all wait, and every note that was written has been taken up.

        Exact when two looks in a row saw the same, since then it held at a moment between them (Mattern 1987, the four
        counters). So a long message, or a rank that computes for an hour, is never taken for a deadlock.
        """
        told = [position.told for position in here.values()] + [report[-1] for report in self.reports.values()]
        return all(p.waiting and p.heard == sum(row[rank] for row in told) for rank, p in here.items())

    def _ask(self, ranks: Sequence[int]) -> None:
        self.looks += 1
        self.positions = {}
        for rank in ranks:
            with suppress(OSError):
                wire.send(self.ranks[rank].control, "where", self.looks)

    def _overdue(self) -> Deadlock:
        """The picture at the deadline."""
        running = [rank for rank in range(self.size) if rank not in self.reports]
        self._ask(running)
        until = time.monotonic() + 2
        while any(rank not in self.positions for rank in running) and time.monotonic() < until:
            self._listen(0.05)
        mute = {rank: Position(Wait(rank, "a part that doesn't answer", None)) for rank in running}
        return Deadlock(picture({**mute, **self.positions}, self.reports), self.size,
                        f"still going on after {self.timeout:g} s")

    # -- the end ------------------------------------------------------------------------------------------------------

    def _result(self) -> Run:
        results = [wire.loads(self.reports[rank][0]) for rank in range(self.size)]
        events = [event for rank in range(self.size) for event in self.reports[rank][1]]
        return Run(results, merge(events, self.size), max(end for _, _, end, _ in self.reports.values()))

    def _end(self) -> None:
        """Let the ranks leave if all are done, end them if not; return when they are gone and their output is shown."""
        if len(self.reports) == self.size:
            for rank in self.ranks:
                with suppress(OSError):
                    wire.send(rank.control, "leave")
            self._await_ends(5)
        for rank in self.ranks:
            with suppress(OSError):
                rank.life.shutdown(1)
        self._await_ends(30)
        for rank in self.ranks:
            rank.control.close()
            rank.life.close()
        self.selector.close()

    def _await_ends(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        while len(self.ended) < len(self.ranks) and time.monotonic() < until:
            self._listen(0.1)


def merge(events: list[Event], size: int) -> Trace:
    """One trace of all ranks' events, in order of time."""
    return Trace(sorted(events, key=lambda event: (event.start, event.end)), size)


def _how_it_ended(status: int | None) -> str:
    if status is None:
        return "its process ended, nobody can tell how"
    if status < 0:
        name = signal.Signals(-status).name if -status in signal.valid_signals() else f"signal {-status}"
        return f"killed by {name}" + (" (out of memory, perhaps)" if name == "SIGKILL" else "")
    return f"its process exited with status {status} before its function returned"


def _job(fn, link, size: int, backend: str, store: str) -> dict:
    """What every rank is told."""
    environ = dict(os.environ)
    if backend == "gloo":
        environ.setdefault("GLOO_SOCKET_IFNAME", "lo" if sys.platform == "linux" else "lo0")
    return {"size": size, "backend": backend, "store": store, "work": _pack(fn, link), "environ": environ,
            "folder": os.getcwd(), "path": list(sys.path), "argv": list(sys.argv), "sources": _unwritten_sources()}


def _pack(fn, link) -> bytes:
    """`fn` by reference where the ranks can import it, else by value."""
    module = sys.modules.get(getattr(fn, "__module__", None) or "")
    with suppress(ValueError, ImportError):
        if module is not None and module.__name__ != "__main__" and importlib.util.find_spec(module.__name__) is not None:
            return wire.dumps((fn, link))
    return wire.dumps((fn, link), by_value=module)


def _unwritten_sources() -> dict[str, list[str]]:
    """Code that lies in no file, a notebook's cells: for tracebacks."""
    return {name: entry[2] for name, entry in list(linecache.cache.items())
            if len(entry) == 4 and entry[1] is None and not os.path.exists(name)}


@contextmanager
def _meeting_place() -> Iterator[str]:
    """A path at which the ranks find one another; on Linux that of a file without a name, which cannot stay behind."""
    if available():
        file = os.memfd_create("mlsyslab-store")
        try:
            yield f"/proc/{os.getpid()}/fd/{file}"
        finally:
            os.close(file)
        return
    with tempfile.TemporaryDirectory(prefix="mlsyslab-") as folder:
        yield os.path.join(folder, "store")


@contextmanager
def _output(selector: selectors.BaseSelector) -> Iterator[tuple[int, int]]:
    """Two pipes for what the ranks print, shown as it comes."""
    pumps = [_Pump("stdout"), _Pump("stderr")]
    for pump in pumps:
        selector.register(pump.reader, selectors.EVENT_READ, pump.show)
    try:
        yield pumps[0].writer, pumps[1].writer
    finally:
        for pump in pumps:
            pump.close()


class _Pump:
    """A pipe whose text goes to `sys.stdout` or `sys.stderr`, whatever that is now: a terminal, a cell, a test's capture."""

    def __init__(self, name: str):
        self.name = name
        self.reader, self.writer = os.pipe()
        os.set_blocking(self.reader, False)
        self.decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def show(self) -> bool:
        """Show what is there; whether there was anything."""
        try:
            data = os.read(self.reader, 1 << 16)
        except BlockingIOError:
            return False
        stream = getattr(sys, self.name)
        if data and stream is not None:
            stream.write(self.decoder.decode(data))
            stream.flush()
        return bool(data)

    def close(self) -> None:
        os.close(self.writer)
        while self.show():
            pass
        os.close(self.reader)
