"""Running a student's function in the simulated world, and noting what its ranks said to one another.

`run` and `call` are the only places where a check calls it. What goes in and comes out is plain data: numbers, strings,
lists, tensors, and a `Communicator`.
"""

from __future__ import annotations

import sys
import weakref
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from mlsyslab.check.elsewhere import Elsewhere
from mlsyslab.check.live import Live
from mlsyslab.check.messages import Forbidden
from mlsyslab.comm import Communicator, Network, Trace, simulate

COLLECTIVES = str(Path(__file__).parents[1] / "collectives")


@dataclass(frozen=True)
class Sent:
    """A message as it left: which rank sent it, to whom, as its how-manieth (from 0), with what in it."""

    rank: int
    to: int
    step: int
    tensor: torch.Tensor


@dataclass
class Outcome:
    """A run that came to its end.

    results: by rank.  trace: of the run.  sent: every message, in each rank's own order.
    changed: the ranks whose arguments are no longer what they were.
    held: (rank, source): the most tensors that `rank` still had at one time of those that it received from `source`.
    live: by rank, the memory of the tensors that it made; only of a run that was asked to watch it.
    """

    results: list[Any]
    trace: Trace
    sent: list[Sent]
    changed: list[int]
    held: dict[tuple[int, int], int]
    live: list[Live]

    def by(self, rank: int) -> list[Sent]:
        """What `rank` sent, in order."""
        return [message for message in self.sent if message.rank == rank]

    def to(self, rank: int) -> list[Sent]:
        """What was sent to `rank`."""
        return [message for message in self.sent if message.to == rank]


class Held:
    """Counts the received tensors that somebody still has a name for.  most: by (rank, source)."""

    def __init__(self):
        self.most: dict[tuple[int, int], int] = {}
        self._alive: dict[tuple[int, int], list[weakref.ref]] = {}

    def add(self, out: torch.Tensor, rank: int, source: int) -> None:
        """Count `out` from now on, when its receive begins."""
        alive = [ref for ref in self._alive.get((rank, source), ()) if ref() is not None]
        self._alive[rank, source] = [*alive, weakref.ref(out)]
        self.most[rank, source] = max(self.most.get((rank, source), 0), len(alive) + 1)


class Recorder(Communicator):
    """A rank's communicator that notes every message, contents and all, and keeps the library's collectives out.

    sent: where messages are noted.  received: where the tensors that they go into are watched.
    forbidden: names of functions of `mlsyslab.collectives` that may not be at work when a message is sent;
    None stands for all of them.
    live: what watches this rank's memory, if anything does.
    """

    def __init__(self, inner: Communicator, sent: list[Sent], received: Held, forbidden: Sequence[str] | None = (),
                 live: Live | None = None):
        self.inner, self.sent, self.received, self.forbidden, self.live = inner, sent, received, forbidden, live
        self.rank, self.size, self.device = inner.rank, inner.size, inner.device
        self.ranks = inner.ranks

    @property
    def network(self):
        keep_out(self.forbidden)  # a collective that reads it is about to choose its algorithm
        return self.inner.network

    def _isend(self, tensor, to, tag):
        keep_out(self.forbidden)
        me = self.ranks[self.rank]
        step = sum(message.rank == me for message in self.sent)
        with self.live.aside() if self.live else nullcontext():
            self.sent.append(Sent(me, to, step, tensor.detach().clone()))
        return self.inner._isend(tensor, to, tag)

    def _irecv(self, out, source, tag):
        keep_out(self.forbidden)
        self.received.add(out, self.ranks[self.rank], source)
        return self.inner._irecv(out, source, tag)

    def _wait(self, works):
        self.inner._wait(works)

    def _wait_any(self, works):
        return self.inner._wait_any(works)

    def start(self, fn, *args):
        def beside(side, *own):
            return fn(self._like(side), *own)

        return self.inner.start(beside, *args)

    def _combined(self, start, nbytes):
        self.inner._combined(start, nbytes)

    def compute(self, seconds, label=""):
        self.inner.compute(seconds, label)

    def work(self, label="", seconds=0.0):
        return self.inner.work(label, seconds)

    def now(self):
        return self.inner.now()

    def record(self, kind, start, end, bytes=0, peer=-1, label=""):
        self.inner.record(kind, start, end, bytes, peer, label)

    def barrier(self):
        self.inner.barrier()

    def split(self, color, key=None):
        return self._like(self.inner.split(color, key))

    def _like(self, inner: Communicator) -> Recorder:
        """A recorder of another communicator of this rank."""
        return Recorder(inner, self.sent, self.received, self.forbidden, self.live)


def keep_out(forbidden: Sequence[str] | None) -> None:
    """Raise Forbidden when a forbidden function of `mlsyslab.collectives` is among the callers."""
    frame, called = sys._getframe(1), None
    while frame is not None:
        code = frame.f_code
        if code.co_filename.startswith(COLLECTIVES) and (forbidden is None or code.co_name in forbidden):
            called = code.co_name  # the outermost is the one that the student called
        frame = frame.f_back
    if called:
        raise Forbidden(f"mlsyslab.collectives is called (its {called}): in this exercise you write that yourself")


def run(fn: Callable[..., Any], arguments: Sequence[tuple], link: Network, forbidden: Sequence[str] | None = (),
        timeout: float = 10.0, watch: bool = False) -> Outcome:
    """Call `fn(comm, *arguments[rank])` on every rank; raises what `simulate` raises.

    timeout: real seconds after which a run that still goes on is ended.
    watch: whether to watch the memory of each rank's tensors, which makes every operation on them slower.
    """
    if isinstance(fn, Elsewhere):
        return fn.run(arguments, link, forbidden, timeout, watch)
    sent: list[Sent] = []
    held = Held()
    given = [tuple(map(copied, own)) for own in arguments]
    live = [Live() for _ in given] if watch else []

    def rank(comm: Communicator, own: tuple) -> Any:
        memory = live[comm.rank] if watch else None
        with memory or nullcontext():
            return fn(Recorder(comm, sent, held, forbidden, memory), *own)

    done = simulate(rank, given, link, timeout=timeout)
    changed = [rank for rank, own in enumerate(arguments) if not all(map(same, own, given[rank]))]
    return Outcome(done.results, done.trace, sent, changed, held.most, live)


def call(fn: Callable[..., Any], arguments: tuple, timeout: float = 10.0) -> Any:
    """Call `fn(*arguments)`, with the same guard against endless loops."""
    return simulate(lambda comm, own: fn(*own), [arguments], timeout=timeout).results[0]


def copied(argument: Any) -> Any:
    if isinstance(argument, (list, tuple)):
        return type(argument)(map(copied, argument))
    return argument.clone() if isinstance(argument, torch.Tensor) else argument


def same(a: Any, b: Any) -> bool:
    if isinstance(a, torch.Tensor):
        return isinstance(b, torch.Tensor) and a.shape == b.shape and a.dtype == b.dtype and \
            torch.allclose(a, b, 0, 0, equal_nan=True)
    if isinstance(a, (list, tuple)):
        return type(a) is type(b) and len(a) == len(b) and all(map(same, a, b))
    return a is b or a == b  # NaN is no other than itself


def which(tensor: torch.Tensor, parts: Sequence[torch.Tensor]) -> int | None:
    """The index of the (nonempty) part that `tensor` equals."""
    for index, part in enumerate(parts):
        if part.numel() and part.shape == tensor.shape and torch.equal(part, tensor):
            return index
    return None
