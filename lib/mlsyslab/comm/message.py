"""Messages of the simulated world: what one rank sends and another receives."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, NamedTuple

import torch

from mlsyslab.comm.communicator import COMBINE
from mlsyslab.comm.errors import PeerLost
from mlsyslab.comm.kept import LONGEST, keep

if TYPE_CHECKING:
    from mlsyslab.comm.lane import Lane


class Way:
    """The way from one rank to another of the messages with one tag of one group, which arrive in the order they were sent.

    ends: sender, receiver, group, tag.
    """

    __slots__ = ("ends", "route", "waiting", "arrived")

    def __init__(self, ends: tuple[int, int, int, int]):
        self.ends = ends
        self.route: tuple | None = None  # what a message costs here, once that is known
        self.waiting: deque[Message] = deque()  # those of which one half has been posted: all sends, or all receives
        self.arrived: deque[tuple[float, torch.Tensor]] | None = None  # buffered messages that nobody has received


class Loss(NamedTuple):
    """What a lane is told at virtual second `end` whose peer dies: the peer itself is told nothing."""

    lane: Lane
    error: PeerLost
    end: float


class Message:
    """What one rank sends and another receives: two halves, of which either may be posted first."""

    __slots__ = ("way", "sender", "sent", "tensor", "dtype", "shape", "nbytes", "sender_waits",
                 "receiver", "expected", "out", "op", "receiver_waits", "fits", "end", "lost")

    def __init__(self, way: Way):
        self.way = way
        self.sender: Lane | None = None  # None until its half is posted
        self.sent: float | None = None  # virtual time at which that is; None while it is to come
        # What is sent, or what it was when it was kept; None once it is not needed any more.
        self.tensor: torch.Tensor | bytes | None = None
        self.nbytes = 0
        self.sender_waits = False
        self.receiver: Lane | None = None
        self.expected: float | None = None
        self.out: torch.Tensor | None = None  # where to receive; None once that is done
        self.op: str | None = None  # how what comes is combined into `out`; None if it takes its place
        self.receiver_waits = False
        self.fits = False  # whether both halves have the same shape and dtype
        self.end: float | None = None  # virtual time at which it is done; None while it is under way
        self.lost: Loss | None = None

    def send(self, lane: Lane, tensor: torch.Tensor) -> None:
        """`lane` posts the send."""
        self.sender, self.tensor = lane, tensor
        self.shape, self.dtype, self.nbytes = tensor.shape, tensor.dtype, tensor.nbytes
        if not lane.ahead:
            self.sent = lane.clock

    def receive(self, lane: Lane, out: torch.Tensor, op: str | None) -> None:
        """`lane` posts the receive."""
        self.receiver, self.out, self.op = lane, out, op
        if not lane.ahead:
            self.expected = lane.clock

    def keep(self) -> bool:
        """Whether what is sent may change from now on: a short message is kept for its receiver."""
        tensor = self.tensor
        if tensor is not None and type(tensor) is not bytes:
            if self.nbytes > LONGEST:
                return False
            self.tensor = keep(tensor, self.nbytes)
        return True

    def take(self) -> None:
        """Bring what is sent to where it is to be received."""
        desk = self.receiver.world.desk
        if self.op is None:
            desk.copy(self.tensor, self.out)
        else:
            COMBINE[self.op](self.out, desk.unfold(self.tensor, self.dtype, self.shape))
        self.tensor = self.out = None

    def loss(self, lane: Lane) -> Loss | None:
        """What `lane`, one of the two, is told when this is lost to it."""
        return self.lost if self.lost is not None and self.lost.lane is lane else None

    def await_by(self, lane: Lane, waits: bool) -> None:
        """Note whether `lane`, one of the two, waits for it."""
        if self.sender is lane:
            self.sender_waits = waits
        else:
            self.receiver_waits = waits

    def posted_at(self, lane: Lane) -> float | None:
        """When one of the two has posted its half; None where that is to come."""
        return self.sent if self.sender is lane else self.expected

    def seen_by(self, lane: Lane) -> tuple[str, int, int]:
        """What it is to one of the two: "send" or "recv", the other rank, and how many bytes."""
        source, to, _, _ = self.way.ends
        if self.sender is lane:
            return "send", to, self.nbytes
        return "recv", source, self.nbytes if self.out is None else self.out.nbytes


class Posted:
    """A send or receive that a rank has begun, as it gets it: the `Work` that is its half of a message."""

    __slots__ = ("lane", "message")

    def __init__(self, lane: Lane, message: Message):
        self.lane, self.message = lane, message

    def wait(self) -> None:
        self.lane.world.wait(self.lane, (self,))
