"""What runs in the simulated world: lanes."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from mlsyslab.comm.errors import CommError
from mlsyslab.comm.message import Message
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
    script: what the function has done and virtual time has not come to: messages of which it has posted its half; waits, as
    tuples of the line of code, whether what it waits for has been posted before (an exchange posts it as the wait begins),
    and these messages; and the bytes of reductions.
    baton: held while the lane must not run.
    """

    __slots__ = ("world", "rank", "life", "clock", "dies_at", "dead", "busy", "script", "ahead", "fault", "baton", "thread",
                 "missing", "until", "any", "awaiting", "place", "side", "started", "beside", "tasks")

    def __init__(self, world: VirtualWorld, rank: int, life: int, clock: float, dies_at: float):
        self.world, self.rank, self.life, self.clock, self.dies_at = world, rank, life, clock, dies_at
        self.dead = False
        self.busy = False  # whether it has something to do: its function, or tasks
        self.script: deque[Message | tuple | int] = deque()
        self.ahead = False  # whether the function may run ahead of virtual time
        self.fault: CommError | None = None  # what the function is to raise, since a step of the script has
        self.baton = threading.Lock()
        self.baton.acquire()
        self.thread: Thread | None = None
        self.missing = 0  # how many awaited messages it still lacks,
        self.until: float | None = None  # and the last end of the others, while it waits for all of them
        self.any = False  # whether one of them is enough
        self.awaiting: Sequence[Message] = ()
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
