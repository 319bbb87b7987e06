"""The simulated world: its lanes, and the baton.

Only the lane that holds the baton runs; it hands the baton on when it has to wait. What it did, virtual time plays through
(`Timing`); whose turn it is then, virtual time says.
"""

from __future__ import annotations

import contextvars
import math
import threading
import time
import traceback
from collections import defaultdict
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

from mlsyslab.comm import ahead
from mlsyslab.comm.deaths import Deaths
from mlsyslab.comm.errors import CommError, Deadlock, RankFailed, Wait
from mlsyslab.comm.kept import Desk
from mlsyslab.comm.lane import Died, Ended, Lane, SideTask
from mlsyslab.comm.link import Network
from mlsyslab.comm.message import Loss, Message, Posted
from mlsyslab.comm.stack import caller, text_of, this_place
from mlsyslab.comm.threads import Thread
from mlsyslab.comm.timing import Timing
from mlsyslab.comm.trace import Trace


class VirtualWorld:
    """The ranks of one run on their virtual clocks."""

    def __init__(self, size: int, network: Network, buffered: bool, failures=()):
        self.size, self.network = size, network
        self.trace = Trace(size=size)
        self.timing = Timing(network, buffered, self.trace)
        self.timing.deaths = self.deaths = Deaths(self, failures)
        self.desk = Desk()
        self.lanes: list[Lane] = []
        self.meetings: dict[tuple, dict[int, tuple[Any, float]]] = defaultdict(dict)  # who has come to a barrier or split
        self.groups: dict[tuple, int] = {}  # numbers of the groups made by split and start
        self.running: Lane | None = None
        self.results: list[Any] = [None] * size
        self.returned: set[int] = set()
        self.error: BaseException | None = None
        self.over = False
        self.done = threading.Lock()
        self.done.acquire()

    # -- the run ------------------------------------------------------------------------------------------------------

    def run(self, body: Callable[[Lane], Any], timeout: float | None) -> None:
        """Call `body(lane)` on a lane of every rank, until all have returned."""
        self.body = body
        for rank in range(self.size):
            self.begin(rank, 0, 0.0)
        self.deaths.plan()
        try:
            self._hand_on()
            if not self._wait_for_end(timeout):
                self.end(Deadlock([self._still_running()], self.size, f"still going on after {timeout:g} s"))
        except BaseException as error:  # KeyboardInterrupt: leave no thread behind
            self.end(error)
        self.over = True
        for lane in self.lanes:
            if lane.baton.locked():
                lane.baton.release()
        for lane in self.lanes:
            lane.thread.join(timeout=5)
        if self.error is not None:
            if isinstance(self.error, CommError):
                self.error.trace = self.trace
            raise self.error

    def _wait_for_end(self, timeout: float | None) -> bool:
        """Wait until the run is over; whether it was within `timeout`.

        It wakes now and then, since an interrupt that comes just before a thread begins to wait doesn't wake it.
        """
        until = math.inf if timeout is None else time.monotonic() + timeout
        while not self.done.acquire(timeout=max(0.0, min(0.5, until - time.monotonic()))):
            if time.monotonic() >= until:
                return False
        return True

    def begin(self, rank: int, life: int, clock: float) -> None:
        """Let a rank's function begin."""
        self.wake(self.lane(rank, life, clock, self._rank))

    def lane(self, rank: int, life: int, clock: float, live: Callable[[Lane], None]) -> Lane:
        """A new lane: a thread that calls `live(lane)` once it is handed the baton."""
        lane = Lane(self, rank, life, clock, self.deaths.next(rank, life))
        self.lanes.append(lane)
        lane.thread = Thread(contextvars.copy_context().run, (self._live, live, lane), f"rank {rank}")
        return lane

    def wake(self, lane: Lane) -> None:
        """`lane` has something to do."""
        lane.busy = True
        self.timing.busy += 1
        self.timing.runnable.append(lane)

    def _live(self, live: Callable[[Lane], None], lane: Lane) -> None:
        try:
            self._await_baton(lane)
            live(lane)
        except Ended:
            pass
        except Died:
            with suppress(Ended):
                self.rest(lane)
                self._hand_on()
        except BaseException as error:
            if self.error is None:
                failure = RankFailed(lane.rank, self.size, summary(error))
                failure.__cause__ = error
                self.end(failure)

    def _rank(self, lane: Lane) -> None:
        """The life of one rank."""
        lane.advance(lane.clock)
        self.results[lane.rank] = self.body(lane)
        self.returned.add(lane.rank)
        self.rest(lane)
        self._hand_on()

    def rest(self, lane: Lane) -> None:
        """`lane` has nothing to do any more, or for now."""
        if lane.busy:
            lane.busy = False
            self.timing.busy -= 1

    def end(self, error: BaseException) -> None:
        """End the run with `error`: every waiting lane wakes to raise `Ended`, a running one is interrupted."""
        self.error = error
        running = self.running
        for lane in self.lanes:
            if lane is not running and lane.baton.locked():
                lane.baton.release()
        if running is not None and running.thread.ident != threading.get_ident():
            running.thread.interrupt(Ended)
        if self.done.locked():
            self.done.release()

    # -- the baton ----------------------------------------------------------------------------------------------------

    def _hand_on(self, here: Lane | None = None) -> None:
        """Give the baton to the lane whose function is to go on next; `here` waits until that is itself."""
        lane = self.running = self.timing.next()
        if lane is None:
            if self.timing.busy:
                self.end(Deadlock(self._waits(), self.size))
                raise Ended
            self.done.release()
        if lane is not here:
            if lane is not None:
                lane.baton.release()
            if here is None:
                return
            self._await_baton(here)
        if here is not None and here.dead:
            raise Died

    def _await_baton(self, lane: Lane) -> None:
        lane.baton.acquire()
        if self.error is not None or self.over:
            raise Ended

    def settle(self, lane: Lane) -> None:
        """Hold `lane` until virtual time has come to all that it did."""
        if not self.timing.play(lane):
            self._hand_on(lane)
        if lane.fault is not None:
            fault, lane.fault = lane.fault, None
            raise fault

    # -- waiting ------------------------------------------------------------------------------------------------------

    def begun(self, lane: Lane, message: Message) -> Posted:
        """What a rank gets that has posted its half of a message."""
        if lane.ahead:
            lane.script.append(message)
        return Posted(lane, message)

    def exchange(self, lane: Lane, received: Message, sent: Message) -> None:
        """Hold `lane` until two messages that it has just posted are done, or what it receives is there.

        What `wait` does, in short: most messages are half of an exchange.
        """
        both = received, sent
        if lane.ahead and ahead.has_room(lane) and received.fits and sent.keep():
            received.take()
            lane.script.append((this_place(), False, both))
        else:
            lane.script.append((None, not lane.ahead, both))
            self._see(lane, both)

    def wait(self, lane: Lane, works: Sequence[Posted]) -> None:
        """Hold `lane` until all of `works` are done, or what they bring is there; its clock moves to the last end."""
        messages = tuple({work.message: None for work in works})  # each once
        if lane.ahead and ahead.passes(lane, messages):
            lane.script.append((this_place(), True, messages))
        else:
            lane.script.append((None, True, messages))
            self._see(lane, messages, works)

    def _see(self, lane: Lane, messages: Sequence[Message], works: Sequence[Posted] = ()) -> None:
        """Hold `lane` until virtual time has come to the end of its wait for `messages`."""
        self.settle(lane)
        for message in messages:
            if loss := message.loss(lane):
                self._tell(loss, message, works)
        lane.advance(lane.clock)

    def wait_any(self, lane: Lane, works: Sequence[Posted]) -> int:
        """Hold `lane` until one of `works` is done; the index of the first.

        Messages travel in the order in which they became ready, so one that ends earlier may still be to come until virtual
        time has reached the end of the first that is known.
        """
        self.settle(lane)
        messages = [work.message for work in works]
        while True:
            ends = [loss.end if (loss := message.loss(lane)) else message.end for message in messages]
            first = min((end for end in ends if end is not None), default=None)
            if first is not None:
                if first <= max(lane.clock, self.timing.time):
                    break
                self.timing.call_at(first, lambda: self.timing.wake(lane))
            for message, end in zip(messages, ends, strict=True):
                message.await_by(lane, end is None)
            lane.any, lane.awaiting = True, messages
            self._hand_on(lane)
            lane.awaiting = ()
        self.timing.forget(lane, messages)
        index = ends.index(first)
        if loss := messages[index].loss(lane):
            self._tell(loss, messages[index], works)
        lane.advance(first)
        return index

    def _tell(self, loss: Loss, message: Message, works: Sequence[Posted]) -> None:
        loss.lane.advance(loss.end)
        loss.error.work = next((work for work in works if work.message is message), None)
        raise loss.error

    # -- meetings: barrier and split, which cost nothing and leave no message in the trace ----------------------------

    def meet(self, lane: Lane, place: tuple, ranks: Sequence[int], word: Any) -> dict[int, Any]:
        """Wait until all of `ranks` have come to `place`; returns what each of them said."""
        self.settle(lane)
        self.deaths.absent(lane, ranks)
        came = self.meetings[place]
        came[lane.rank] = word, lane.clock, lane
        if len(came) < len(ranks):
            lane.place = place, ranks
            self._hand_on(lane)
            if lane.place is not None:  # somebody died
                self.leave(lane)
                self.deaths.absent(lane, ranks)
        else:
            del self.meetings[place]
            for _, _, other in came.values():
                if other is not lane:
                    other.place = None
                    self.timing.runnable.append(other)
        lane.advance(max(time for _, time, _ in came.values()))
        return {other: said for other, (said, _, _) in came.items()}

    def leave(self, lane: Lane) -> None:
        """`lane` gives up waiting for others to come."""
        place, _ = lane.place
        lane.place = None
        del self.meetings[place][lane.rank]

    def group(self, key: tuple) -> int:
        """The number of a group that its members know by the same `key`."""
        return self.groups.setdefault(key, len(self.groups) + 1)

    # -- beside a rank ------------------------------------------------------------------------------------------------

    def start(self, task: SideTask) -> None:
        """Take up what a rank has started."""
        owner = task.owner
        if owner.side is None:
            owner.side = self.lane(owner.rank, owner.life, task.time, self._beside)
            owner.side.beside = True
        lane = owner.side
        lane.tasks.append(task)
        owner.started[task] = None
        if not lane.busy:
            self.wake(lane)

    def _beside(self, lane: Lane) -> None:
        """The life of a side lane: one task after another."""
        while True:
            while lane.tasks:
                task = lane.tasks.popleft()
                lane.advance(task.time)
                task.run(lane)
                if task.awaited:
                    self.timing.runnable.append(task.owner)
            self.rest(lane)
            self._hand_on(lane)

    def wait_task(self, task: SideTask) -> None:
        """Hold the lane that started `task` until it is done."""
        self.settle(task.owner)
        if task.end is None:
            task.awaited = True
            self._hand_on(task.owner)
        task.owner.started.pop(task, None)
        task.owner.advance(task.end)

    # -- who waits for whom -------------------------------------------------------------------------------------------

    def _waits(self) -> list[Wait]:
        waits = []
        for lane in sorted(self.lanes, key=lambda lane: lane.rank):
            if lane.dead:
                continue
            if lane.place is not None:
                place, ranks = lane.place
                absent = [other for other in ranks if other not in self.meetings[place]]
                hint = f"not there: rank {', '.join(map(str, absent))}" if absent else ""
                waits.append(Wait(lane.rank, "barrier", absent[0] if len(absent) == 1 else None, 0, 0,
                                  *caller(lane.thread.ident), hint))
            elif lane.busy:
                message = next((message for message in lane.awaiting if message.end is None), None)
                if message is not None:
                    kind, peer, nbytes = message.seen_by(lane)
                    waits.append(Wait(lane.rank, kind, peer, nbytes, message.way.ends[3], *self._line(lane),
                                      self._hint(lane.rank, peer, message)))
        return waits

    def _line(self, lane: Lane) -> tuple[str, str]:
        """Where a lane waits: where its function is, unless that has run ahead."""
        line = lane.script[0][0] if lane.script else None
        return text_of(line) if line else caller(lane.thread.ident)

    def _hint(self, rank: int, peer: int, message: Message) -> str:
        """Why the other half of what `rank` waits for never comes, where it can be told."""
        for broken, when in self.timing.broken:
            source, to, _, _ = broken.way.ends
            if {source, to} == {rank, peer}:
                return f"the link between rank {source} and rank {to} failed at {when:g} s"
        if not any(lane.rank == peer and lane.busy for lane in self.lanes):
            return f"rank {peer} has already returned"
        source, to, _, tag = message.way.ends
        for way in self.timing.ways.values():
            if way.ends[:2] == (source, to) and way.waiting:
                its = way.waiting[0]
                lane = its.sender or its.receiver
                if lane.rank == peer and its.posted_at(lane) is not None:
                    _, _, group, its_tag = way.ends
                    other = f"with tag {its_tag} instead of {tag}" if its_tag != tag else f"in another group ({group})"
                    return f"rank {peer} did post a {its.seen_by(lane)[0]}, but {other}"
        return ""

    def _still_running(self) -> Wait:
        lane = self.running or self.lanes[0]
        return Wait(lane.rank, "a part that doesn't end", None, 0, 0, *caller(lane.thread.ident))


def summary(error: BaseException) -> str:
    """An exception in one line, as Python prints it."""
    return "".join(traceback.format_exception_only(error)).strip()
