"""The simulated world: its lanes, the messages between them, and the baton.

Only the lane that holds the baton runs; it hands the baton on when it has to wait. When every lane waits, virtual time
moves: of all messages whose sender and receiver are both there, the one that was ready first travels (`_carry`), and
whoever waited for it goes on. Nothing depends on the machine, so two runs of the same function are the same to the last
event.
"""

from __future__ import annotations

import contextvars
import heapq
import math
import threading
import time
import traceback
from collections import defaultdict, deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

import torch

from mlsyslab.comm.communicator import describe
from mlsyslab.comm.deaths import Deaths
from mlsyslab.comm.errors import CommError, Deadlock, RankFailed, Wait
from mlsyslab.comm.lane import Died, Ended, Lane, Post, SideTask
from mlsyslab.comm.link import Network
from mlsyslab.comm.stack import caller
from mlsyslab.comm.threads import Thread
from mlsyslab.comm.trace import Trace


class VirtualWorld:
    """The ranks of one run on their virtual clocks."""

    def __init__(self, size: int, network: Network, buffered: bool, failures=()):
        self.size, self.network, self.buffered = size, network, buffered
        self.trace = Trace(size=size)
        self.deaths = Deaths(self, failures)
        self.lanes: list[Lane] = []
        self.busy = 0  # lanes that have something to do
        self.runnable: deque[Lane] = deque()
        # What has been posted and not met its other half, by (sender, receiver, group, tag); and buffered messages.
        self.sends: dict[tuple, deque[Post]] = defaultdict(deque)
        self.recvs: dict[tuple, deque[Post]] = defaultdict(deque)
        self.arrived: dict[tuple, deque[tuple[float, torch.Tensor]]] = defaultdict(deque)
        # What happens next, as a heap: (time, order, send, recv), a message that can travel, or (time, order, None, call).
        self.ready: list[tuple] = []
        self.order = self.calls = 0
        self.time = 0.0  # of what happened last
        self.ways: dict[tuple[int, int], tuple] = {}  # by (sender, receiver)
        self.channels: dict[Any, int] = {}  # their numbers
        self.free: list[float] = []  # when each is free again
        self.broken: list[tuple[Post, float]] = []  # messages that a broken link swallowed
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
        lane = Lane(rank, life, clock, self.deaths.next(rank, life))
        self.lanes.append(lane)
        lane.thread = Thread(contextvars.copy_context().run, (self._live, live, lane), f"rank {rank}")
        return lane

    def wake(self, lane: Lane) -> None:
        """`lane` has something to do."""
        lane.busy = True
        self.busy += 1
        self.runnable.append(lane)

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
            self.busy -= 1

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
        """Give the baton to the next lane that can run, moving virtual time on where none can."""
        runnable = self.runnable
        while not runnable:
            if self.ready and (self.busy or len(self.ready) > self.calls):
                self.time, _, send, then = heapq.heappop(self.ready)
                if send is None:
                    self.calls -= 1
                    then()
                else:
                    self._carry(self.time, send, then)
            elif not self.busy:
                self.done.release()
                break
            else:
                self.end(Deadlock(self._waits(), self.size))
                if here is not None:
                    raise Ended
                return
        lane = self.running = runnable.popleft() if runnable else None
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

    def call_at(self, time: float, call: Callable[[], None]) -> None:
        """Have `call()` happen at virtual second `time`."""
        self.order += 1
        self.calls += 1
        heapq.heappush(self.ready, (time, self.order, None, call))

    # -- messages -----------------------------------------------------------------------------------------------------

    def send(self, post: Post) -> Post:
        """Take up a send; when its receive is there already, the message is ready to travel."""
        if self.buffered:
            post.tensor = post.tensor.clone()
            self._make_ready(post.time, post, None)
            return post
        ends = post.rank, post.peer, post.group, post.tag
        waiting = self.recvs[ends]
        if waiting:
            self._match(post, waiting.popleft())
        elif not self.deaths.refuse(post):
            self.sends[ends].append(post)
        return post

    def recv(self, post: Post) -> Post:
        """Take up a receive; when its send is there already, the message is ready to travel."""
        ends = post.peer, post.rank, post.group, post.tag
        waiting = self.sends[ends]
        if waiting:
            self._match(waiting.popleft(), post)
        elif self.buffered and self.arrived[ends]:
            self._receive(post, *self.arrived[ends].popleft())
        elif not self.deaths.refuse(post):
            self.recvs[ends].append(post)
        return post

    def _match(self, send: Post, recv: Post) -> None:
        fits(send.tensor, recv.tensor, send.rank, recv.rank)
        self._make_ready(send.time if send.time > recv.time else recv.time, send, recv)

    def _make_ready(self, time: float, send: Post, recv: Post | None) -> None:
        self.order += 1
        heapq.heappush(self.ready, (time, self.order, send, recv))

    def _carry(self, start: float, send: Post, recv: Post | None) -> None:
        """Let one message travel: it starts when it is ready and its channels are free, and holds them till its end."""
        source, to, free, nbytes = send.rank, send.peer, self.free, send.tensor.nbytes
        way = self.ways.get((source, to)) or self._way(source, to)
        alpha, beta, channels, fails_at = way
        for channel in channels:
            if free[channel] > start:
                start = free[channel]
        end = start + alpha + nbytes * beta
        if end > fails_at:
            self.broken.append((send, fails_at))
            return
        if end > send.lane.dies_at or (recv is not None and end > recv.lane.dies_at):
            self.deaths.swallow(send, recv)
            return
        for channel in channels:
            free[channel] = end
        self.trace.add(source, "send", start, end, nbytes, to)
        if recv is None:
            self._arrive(send, end)
        else:
            self.trace.add(to, "recv", start, end, nbytes, source)
            recv.take(send.tensor)
            self.finish(recv, end)
        self.finish(send, end)

    def _way(self, source: int, to: int) -> tuple[float, float, list[int], float]:
        """Alpha, beta, the numbers of the channels on the way, and when it breaks."""
        alpha, beta, channels, fails_at = self.network.route(source, to)
        numbers = [self.channels.setdefault(channel, len(self.channels)) for channel in channels]
        self.free += [0.0] * (len(self.channels) - len(self.free))
        way = self.ways[source, to] = alpha, beta, numbers, fails_at
        return way

    def _arrive(self, send: Post, end: float) -> None:
        """A buffered message has come: hand it to the receive that waits for it, or keep it."""
        ends = send.rank, send.peer, send.group, send.tag
        waiting = self.recvs[ends]
        if waiting:
            self._receive(waiting.popleft(), end, send.tensor)
        else:
            self.arrived[ends].append((end, send.tensor))

    def _receive(self, recv: Post, arrival: float, message: torch.Tensor) -> None:
        fits(message, recv.tensor, recv.peer, recv.rank)
        end = max(arrival, recv.time)
        self.trace.add(recv.rank, "recv", recv.time, end, message.nbytes, recv.peer)
        recv.take(message)
        self.finish(recv, end)

    # -- waiting ------------------------------------------------------------------------------------------------------

    def finish(self, post: Post, end: float) -> None:
        """`post` is done at `end`; its lane can go on if that was all it waited for."""
        post.end = end
        post.tensor = None
        if post.awaited:
            lane = post.lane
            if lane.any:
                self.call_at(end, lambda: self._wake(lane))
                return
            lane.missing -= 1
            if not lane.missing or (post.lost and lane.missing > 0):
                lane.missing = 0
                self.runnable.append(lane)

    def _wake(self, lane: Lane) -> None:
        if lane.any:
            lane.any = False
            self.runnable.append(lane)

    def wait(self, lane: Lane, posts: Sequence[Post]) -> None:
        """Hold `lane` until all of `posts` are done; its clock moves to the last end."""
        missing = 0
        for post in posts:
            if post.end is None:
                post.awaited = True
                missing += 1
            elif post.lost:
                self._lose(lane, posts, post)
        if missing:
            lane.missing = missing
            lane.awaiting = posts
            self._hand_on(lane)
            lane.awaiting = ()
        for post in posts:
            if post.lost:
                self._lose(lane, posts, post)
        last = lane.clock
        for post in posts:
            if post.end > last:
                last = post.end
        lane.advance(last)

    def wait_any(self, lane: Lane, posts: Sequence[Post]) -> int:
        """Hold `lane` until one of `posts` is done; the index of the first.

        Messages travel in the order in which they became ready, so one that ends earlier may still be to come until virtual
        time has reached the end of the first that is known.
        """
        while True:
            first = min((post for post in posts if post.end is not None), key=lambda post: post.end, default=None)
            if first is not None:
                if first.end <= max(lane.clock, self.time):
                    break
                self.call_at(first.end, lambda: self._wake(lane))
            for post in posts:
                post.awaited = post.end is None
            lane.any, lane.awaiting = True, posts
            self._hand_on(lane)
            lane.awaiting = ()
        if first.lost:
            self._lose(lane, posts, first)
        for post in posts:
            post.awaited = False
        lane.advance(first.end)
        return posts.index(first)

    def _lose(self, lane: Lane, posts: Sequence[Post], lost: Post) -> None:
        for post in posts:
            post.awaited = False
        lane.advance(lost.end)
        raise lost.lost

    # -- meetings: barrier and split, which cost nothing and leave no message in the trace ----------------------------

    def meet(self, lane: Lane, place: tuple, ranks: Sequence[int], word: Any) -> dict[int, Any]:
        """Wait until all of `ranks` have come to `place`; returns what each of them said."""
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
                    self.runnable.append(other)
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
                    self.runnable.append(task.owner)
            self.rest(lane)
            self._hand_on(lane)

    def wait_task(self, task: SideTask) -> None:
        """Hold the lane that started `task` until it is done."""
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
                post = next((p for p in lane.awaiting if p.end is None), None)
                if post is not None:
                    waits.append(Wait(lane.rank, post.kind, post.peer, post.tensor.nbytes, post.tag,
                                      *caller(lane.thread.ident), self._hint(post)))
        return waits

    def _hint(self, post: Post) -> str:
        """Why this never comes, where it can be told."""
        for send, when in self.broken:
            if {send.rank, send.peer} == {post.rank, post.peer}:
                return f"the link between rank {send.rank} and rank {send.peer} failed at {when:g} s"
        if not any(lane.rank == post.peer and lane.busy for lane in self.lanes):
            return f"rank {post.peer} has already returned"
        source, to = (post.rank, post.peer) if post.kind == "send" else (post.peer, post.rank)
        for (sender, receiver, group, tag), waiting in (self.recvs if post.kind == "send" else self.sends).items():
            if waiting and (sender, receiver) == (source, to):
                other = f"tag {tag} instead of {post.tag}" if tag != post.tag else f"in another group ({group})"
                return f"rank {post.peer} did post a {waiting[0].kind}, but with {other}"
        return ""

    def _still_running(self) -> Wait:
        lane = self.running or self.lanes[0]
        return Wait(lane.rank, "a part that doesn't end", None, 0, 0, *caller(lane.thread.ident))


def fits(sent: torch.Tensor, out: torch.Tensor, source: int, to: int) -> None:
    """Raise CommError when what is sent is not what the receiver expects."""
    if sent.shape != out.shape or sent.dtype != out.dtype:
        raise CommError(f"rank {source} sends {describe(sent)} to rank {to}, which expects {describe(out)}")


def summary(error: BaseException) -> str:
    """An exception in one line, as Python prints it."""
    return "".join(traceback.format_exception_only(error)).strip()
