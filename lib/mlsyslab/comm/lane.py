"""What runs in the simulated world, and what it posts."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch

from mlsyslab.comm.communicator import COMBINE
from mlsyslab.comm.errors import CommError, PeerLost
from mlsyslab.comm.kept import LONGEST, keep
from mlsyslab.comm.threads import Thread

if TYPE_CHECKING:
    from mlsyslab.comm.simulate import SimulatedCommunicator
    from mlsyslab.comm.virtual import VirtualWorld


class Ended(BaseException):
    """Raised in every lane that still waits when the run ends early, so that its thread ends too."""


class Died(BaseException):
    """Raised in the lanes of a rank that dies."""


class Lane:
    """One thread of control of a rank: the rank's function, or what the rank has started beside it.

    clock: virtual seconds.  life: how often the rank had come back when the lane began.  dies_at: when this life ends.
    script: what the function has done and virtual time has not come to: posts; waits, as tuples of the line of code, what
    is posted as the wait begins, and what it waits for; and the bytes of reductions.
    baton: held while the lane must not run.
    """

    __slots__ = ("world", "rank", "life", "clock", "dies_at", "dead", "busy", "script", "ahead", "fault", "baton", "thread",
                 "missing", "until", "any", "awaiting", "place", "side", "started", "beside", "tasks")

    def __init__(self, world: VirtualWorld, rank: int, life: int, clock: float, dies_at: float):
        self.world, self.rank, self.life, self.clock, self.dies_at = world, rank, life, clock, dies_at
        self.dead = False
        self.busy = False  # whether it has something to do: its function, or tasks
        self.script: deque[Post | tuple | int] = deque()
        self.ahead = False  # whether the function may run ahead of virtual time
        self.fault: CommError | None = None  # what the function is to raise, since a step of the script has
        self.baton = threading.Lock()
        self.baton.acquire()
        self.thread: Thread | None = None
        self.missing = 0  # how many awaited posts it still lacks,
        self.until: float | None = None  # and the last end of the others, while it waits for all of them
        self.any = False  # whether one of them is enough
        self.awaiting: Sequence[Post] = ()
        self.place: tuple[tuple, Sequence[int]] | None = None  # the meeting it waits at, and who else is to come
        self.side: Lane | None = None  # the lane of what this one has started,
        self.started: dict[SideTask, None] = {}  # which is this, as far as it was not waited for
        self.beside = False  # whether this is such a lane,
        self.tasks: deque[SideTask] = deque()  # and what is to run on it

    def advance(self, time: float) -> None:
        """Move the clock on to `time`, unless the rank dies before."""
        if time > self.clock:
            self.clock = time
        if self.clock >= self.dies_at:
            raise Died


class Way:
    """The way from one rank to another of the messages with one tag of one group, which arrive in the order they were sent.

    ends: sender, receiver, group, tag.
    """

    __slots__ = ("ends", "route", "waiting", "arrived")

    def __init__(self, ends: tuple[int, int, int, int]):
        self.ends = ends
        self.route: tuple | None = None  # what a message costs here, once that is known
        self.waiting: deque[Post] = deque()  # sends or receives that have not met their other half
        self.arrived: deque[tuple[float, torch.Tensor]] | None = None  # buffered messages that nobody has received


class Post:
    """A send or receive that a lane has posted; also the `Work` its rank gets back."""

    __slots__ = ("lane", "kind", "way", "tensor", "shape", "dtype", "nbytes", "op", "kept", "mate", "fits", "time",
                 "end", "awaited", "lost")

    def __init__(self, lane: Lane, kind: str, way: Way, tensor: torch.Tensor, op: str | None = None):
        self.lane, self.kind, self.way = lane, kind, way
        # What is sent, or what it was when it was kept; where to receive. None once it is not needed any more.
        self.tensor: torch.Tensor | bytes | None = tensor.detach() if tensor.requires_grad else tensor
        self.shape, self.dtype, self.nbytes = tensor.shape, tensor.dtype, tensor.nbytes
        self.op = op  # how a receive combines what comes into its tensor; None if it takes its place
        self.kept = self.awaited = False
        self.mate: Post | None = None  # the other half,
        self.fits = False  # whether that has the same shape and dtype
        self.time = None if lane.ahead else lane.clock  # virtual time at which it is posted; None while that is to come
        self.end: float | None = None  # virtual time at which it is done; None while it is under way
        self.lost: PeerLost | None = None

    @property
    def rank(self) -> int:
        return self.lane.rank

    @property
    def peer(self) -> int:
        source, to, _, _ = self.way.ends
        return to if self.kind == "send" else source

    @property
    def tag(self) -> int:
        return self.way.ends[3]

    def keep(self) -> bool:
        """Whether what is sent may change from now on: a short message is kept for its receiver."""
        if not self.kept and self.tensor is not None:
            if self.nbytes > LONGEST:
                return False
            self.tensor = keep(self.tensor, self.nbytes)
            self.kept = True
        return True

    def take(self, message: torch.Tensor | bytes) -> None:
        """What this receive waits for has come."""
        desk = self.lane.world.desk
        if self.op is None:
            desk.copy(message, self.tensor)
        else:
            COMBINE[self.op](self.tensor, desk.unfold(message, self.dtype, self.shape))
        self.tensor = None

    def wait(self) -> None:
        self.lane.world.wait(self.lane, (self,))


class SideTask:
    """A function that a rank has started beside itself; also the `Task` that the rank gets back."""

    def __init__(self, comm: SimulatedCommunicator, fn: Callable[..., Any], args: tuple):
        self.comm = comm
        self.fn: Callable[..., Any] | None = fn
        self.args = args
        self.owner, self.time = comm.lane, comm.lane.clock
        self.end: float | None = None  # virtual time at which it is done
        self.result: Any = None
        self.error: Exception | None = None
        self.awaited = False

    def run(self, lane: Lane) -> None:
        """Call the function on the side lane."""
        try:
            self.result = self.fn(self.comm.beside(lane), *self.args)
        except Exception as error:
            self.error = error
        self.fn, self.args = None, ()  # what they hold is not needed any more
        self.end = lane.clock

    def wait(self) -> Any:
        self.comm.world.wait_task(self)
        if self.error is not None:
            raise self.error
        return self.result
