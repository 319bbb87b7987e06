"""All that a rank knows of the world."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any, Protocol

import torch

from mlsyslab.comm.errors import CommError
from mlsyslab.comm.link import Link, Network
from mlsyslab.comm.trace import Trace

MAX_TAG = 2**15 - 1


class Work(Protocol):
    """A send or receive that is under way."""

    def wait(self) -> None:
        """Return when it is done: the sent tensor may be changed, the received one may be read."""


class Task(Protocol):
    """A function that runs beside its rank."""

    def wait(self) -> Any:
        """Return what the function returned when it is done, or raise what it raised."""


@dataclass
class Run:
    """What `simulate` and `launch` give back.

    results: what each rank returned, by rank.  trace: what happened.  time: seconds, virtual or measured.
    """

    results: list[Any]
    trace: Trace
    time: float


#: How two partial results become one, in place of the first. A mean is a sum that the collective divides at its end.
COMBINE = {
    "sum": torch.Tensor.add_,
    "product": torch.Tensor.mul_,
    "min": lambda acc, incoming: torch.minimum(acc, incoming, out=acc),
    "max": lambda acc, incoming: torch.maximum(acc, incoming, out=acc),
    "mean": torch.Tensor.add_,
}


BESIDE = "start() inside of what was started: it runs on one lane, one after the other; call the function itself"


class Communicator(ABC):
    """One rank's end of a group of ranks.

    rank: this rank, 0 … size-1.  size: ranks in the group (the world size).  device: where this rank's tensors live.
    ranks: this group's members, as ranks of the world.  network: what the messages of a group are assumed to cost.

    A send ends when it has been received (rendezvous), so two ranks that both send first wait for ever: use `sendrecv`,
    or `isend` and `irecv`. Messages between two ranks with the same tag arrive in the order in which they were sent.
    """

    rank: int
    size: int
    device: torch.device
    ranks: Sequence[int]
    network: Network
    life: int = 0  #: how often this rank has died and come back (`Failure`)

    # -- messages -----------------------------------------------------------------------------------------------------

    def send(self, tensor: torch.Tensor, to: int, tag: int = 0) -> None:
        """Send `tensor` to rank `to`; returns when it has been received."""
        self._check(tensor, to, tag, "send(to")
        self._wait([self._isend_awaited(tensor, self.ranks[to], tag)])

    def recv(self, out: torch.Tensor, source: int, tag: int = 0) -> torch.Tensor:
        """Receive from rank `source` into `out`, of the same shape and dtype as the tensor that was sent; returns `out`."""
        self._check(out, source, tag, "recv(source")
        self._wait([self._irecv(out, self.ranks[source], tag)])
        return out

    def sendrecv(self, tensor: torch.Tensor, to: int, out: torch.Tensor, source: int, tag: int = 0) -> torch.Tensor:
        """Send `tensor` to rank `to` while receiving `out` from rank `source`; returns `out`."""
        self._check(tensor, to, tag, "sendrecv(to")
        self._check(out, source, tag, "sendrecv(source")
        received = self._irecv(out, self.ranks[source], tag)
        self._wait([self._isend_awaited(tensor, self.ranks[to], tag), received])
        return out

    def sendrecv_combine(self, tensor: torch.Tensor, to: int, acc: torch.Tensor, source: int, op: str = "sum",
                         tag: int = 0) -> torch.Tensor:
        """Send `tensor` to rank `to` while what comes from rank `source` is combined into `acc`; returns `acc`.

        A `sendrecv` and a `combine` in one, so that a world in which they can overlap may do so, piece by piece. Whoever
        is at the other end calls it too.
        """
        incoming = torch.empty_like(acc)
        self.sendrecv(tensor, to, incoming, source, tag)
        return self.combine(acc, incoming, op)

    def isend(self, tensor: torch.Tensor, to: int, tag: int = 0) -> Work:
        """Begin to send; do not change `tensor` before `.wait()` has returned."""
        self._check(tensor, to, tag, "isend(to")
        return self._isend(tensor, self.ranks[to], tag)

    def irecv(self, out: torch.Tensor, source: int, tag: int = 0) -> Work:
        """Begin to receive; do not read or change `out` before `.wait()` has returned."""
        self._check(out, source, tag, "irecv(source")
        return self._irecv(out, self.ranks[source], tag)

    def wait_all(self, works: Sequence[Work]) -> None:
        """Wait for several sends and receives at once."""
        self._wait(works)

    def wait_any(self, works: Sequence[Work]) -> int:
        """Wait for one of several sends and receives; returns the index of the one that was done first."""
        if not works:
            raise ValueError("wait_any([]): give at least one send or receive")
        return self._wait_any(works)

    # -- work ---------------------------------------------------------------------------------------------------------

    def combine(self, acc: torch.Tensor, incoming: torch.Tensor, op: str = "sum") -> torch.Tensor:
        """acc := op(acc, incoming), element by element, in place; returns `acc`.

        The one place where a reduction is computed, so that a simulated clock can charge gamma a byte for it.
        op: "sum", "product", "min", "max", or "mean" (which sums; whoever asked for the mean divides once, at the end).
        """
        check_combine(acc, incoming, op)
        start = self.now()
        COMBINE[op](acc, incoming)
        self._combined(start, acc.nbytes)
        return acc

    @abstractmethod
    def compute(self, seconds: float, label: str = "") -> None:
        """Spend `seconds` on modelled work: the simulated clock moves on, a real rank sleeps."""

    @abstractmethod
    def work(self, label: str = "", seconds: float = 0.0) -> Any:
        """A context: what runs inside is recorded as a "compute" event.

        A real rank records the time it took; a simulated one charges `seconds`, since its clock knows only modelled time.
        """

    @abstractmethod
    def now(self) -> float:
        """Seconds since the run began, on this rank's clock."""

    @abstractmethod
    def record(self, kind: str, start: float, end: float, bytes: int = 0, peer: int = -1, label: str = "") -> None:
        """Write an event of this rank into the trace."""

    # -- beside this rank ---------------------------------------------------------------------------------------------

    @abstractmethod
    def start(self, fn: Callable[..., Any], *args: Any) -> Task:
        """Begin `fn(side, *args)` beside what this rank goes on to do, as a GPU communicates while it computes.

        side: a communicator of the same group, whose messages never meet those of this one. What a rank starts runs one
        after the other, in the order it was started, and every rank of the group starts the same in the same order.
        """

    def ahead(self) -> Any:
        """A context for work that nobody sees before it is done: a simulated rank may run ahead of its clock there."""
        return nullcontext()

    # -- groups -------------------------------------------------------------------------------------------------------

    @abstractmethod
    def barrier(self) -> None:
        """Return when every rank of the group has called it. No message in the trace: `collectives.barrier` sends some."""

    @abstractmethod
    def split(self, color: int, key: int | None = None) -> Communicator:
        """A communicator of the ranks that gave the same `color`, ordered by `key`, then by rank.

        Every rank of the group must call it. Rows of a mesh: `split(rank // columns)`; columns: `split(rank % columns)`.
        """

    @property
    def node(self) -> int:
        """The node (machine, or group of fast links) of this rank."""
        return self.network.node(self.ranks[self.rank])

    @property
    def nodes(self) -> list[int]:
        """The node of each rank of the group."""
        return [self.network.node(rank) for rank in self.ranks]

    @property
    def link(self) -> Link:
        """One link to plan with for this group (`Network.link`)."""
        return self.network.link(self.ranks)

    # -- what a world provides ----------------------------------------------------------------------------------------

    @abstractmethod
    def _isend(self, tensor: torch.Tensor, to: int, tag: int) -> Work:
        """Begin to send to world rank `to`."""

    def _isend_awaited(self, tensor: torch.Tensor, to: int, tag: int) -> Work:
        """Begin a send that is waited for at once: a world may begin it later, if it needs less memory then."""
        return self._isend(tensor, to, tag)

    @abstractmethod
    def _irecv(self, out: torch.Tensor, source: int, tag: int) -> Work:
        """Begin to receive from world rank `source`."""

    @abstractmethod
    def _wait(self, works: Sequence[Work]) -> None:
        """Wait for all of `works`."""

    @abstractmethod
    def _wait_any(self, works: Sequence[Work]) -> int:
        """Wait for the first of `works`."""

    @abstractmethod
    def _combined(self, start: float, nbytes: int) -> None:
        """Charge or record a reduction of `nbytes` that began at `start` and is done now."""

    def _check(self, tensor: torch.Tensor, peer: int, tag: int, name: str) -> None:
        """Raise an error that says what was given and what is allowed."""
        if not (type(peer) is int and 0 <= peer < self.size and peer != self.rank and type(tag) is int
                and 0 <= tag <= MAX_TAG and isinstance(tensor, torch.Tensor)):
            raise self._complaint(tensor, peer, tag, name)

    def _complaint(self, tensor: torch.Tensor, peer: int, tag: int, name: str) -> Exception:
        if not isinstance(tensor, torch.Tensor):
            return TypeError(f"{name.split('(')[0]} takes a tensor, not {type(tensor).__name__}")
        if type(peer) is not int:
            return TypeError(f"{name}={peer!r}): a rank is an int, not {type(peer).__name__}")
        if not 0 <= peer < self.size:
            return ValueError(f"{name}={peer}): there is no rank {peer}; ranks are 0 … {self.size - 1}")
        if peer == self.rank:
            return ValueError(f"{name}={peer}): rank {peer} cannot send to or receive from itself; copy the tensor instead")
        return ValueError(f"tag={tag!r}: a tag is an int, 0 … {MAX_TAG}")


def check_combine(acc: torch.Tensor, incoming: torch.Tensor, op: str) -> None:
    """Raise an error unless `incoming` can be combined into `acc` by `op`."""
    if op not in COMBINE:
        raise ValueError(f"op={op!r}: a reduction is one of {', '.join(COMBINE)}")
    if not alike(incoming, acc):
        raise ValueError(f"combine needs two tensors of one shape and dtype, not {describe(acc)} and {describe(incoming)}")


def alike(sent: torch.Tensor, out: torch.Tensor) -> bool:
    """Whether what is sent can be received into `out`."""
    return sent.shape == out.shape and sent.dtype == out.dtype


def check_fits(sent: torch.Tensor, out: torch.Tensor, source: int, to: int) -> None:
    """Raise CommError when what is sent is not what the receiver expects."""
    if not alike(sent, out):
        raise CommError(f"rank {source} sends {describe(sent)} to rank {to}, which expects {describe(out)}")


def describe(tensor: torch.Tensor) -> str:
    """A tensor in an error message: `float32 of shape (3, 4)`."""
    return f"{str(tensor.dtype).removeprefix('torch.')} of shape {tuple(tensor.shape)}"
