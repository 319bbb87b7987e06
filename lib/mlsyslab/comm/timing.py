"""Virtual time: which message travels when, and how far each lane has come.

When every lane waits, virtual time moves: of all messages whose sender and receiver are both there, the one that was ready
first travels (`_carry`), and whoever waited for it goes on. Nothing depends on the machine, nor on how far the lanes have
run ahead, so two runs of the same function are the same to the last event.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from heapq import heappop, heappush
from typing import TYPE_CHECKING, Any

import torch

from mlsyslab.comm.communicator import alike, check_fits
from mlsyslab.comm.errors import CommError
from mlsyslab.comm.lane import Lane, Post, Way
from mlsyslab.comm.link import Network
from mlsyslab.comm.trace import Trace

if TYPE_CHECKING:
    from mlsyslab.comm.deaths import Deaths


class Timing:
    """The calendar of a simulated world, its channels, and the messages on their way."""

    deaths: Deaths

    def __init__(self, network: Network, buffered: bool, trace: Trace):
        self.network, self.buffered, self.trace = network, buffered, trace
        self.time = 0.0  # of what happened last
        self.busy = 0  # lanes that have something to do
        self.runnable: deque[Lane] = deque()
        # What happens next, by time: (send, recv), a message that can travel, or (None, call); and these times as a heap.
        self.calendar: dict[float, deque[tuple]] = {}
        self.times: list[float] = []
        self.ways: dict[tuple[int, int, int, int], Way] = {}  # by sender, receiver, group, tag
        self.routes: dict[tuple[int, int], tuple] = {}  # by sender, receiver
        self.channels: dict[Any, int] = {}  # their numbers
        self.free: list[float] = []  # when each is free again
        self.broken: list[tuple[Post, float]] = []  # messages that a broken link swallowed

    # -- what happens next --------------------------------------------------------------------------------------------

    def next(self) -> Lane | None:
        """Move on to where a lane's function is to go on, and return that lane; None when there is no such time."""
        runnable, calendar, times = self.runnable, self.calendar, self.times
        while True:
            while runnable:
                lane = runnable.popleft()
                if self.play(lane):
                    return lane
            if not times or not (self.busy or self._messages()):
                return None
            self.time = time = times[0]
            happenings = calendar[time]
            send, then = happenings.popleft()
            if not happenings:
                del calendar[heappop(times)]
            if send is None:
                then()
            else:
                self._carry(time, send, then)

    def _messages(self) -> bool:
        """Whether anything is to travel yet."""
        return any(send is not None for happenings in self.calendar.values() for send, _ in happenings)

    def call_at(self, time: float, call: Callable[[], None]) -> None:
        """Have `call()` happen at virtual second `time`."""
        self._enter(time, None, call)

    def _enter(self, time: float, send: Post | None, then: Post | Callable[[], None] | None) -> None:
        if time in self.calendar:
            self.calendar[time].append((send, then))
        else:
            self.calendar[time] = deque(((send, then),))
            heappush(self.times, time)

    # -- what lanes do ------------------------------------------------------------------------------------------------

    def play(self, lane: Lane) -> bool:
        """Do what stands in a lane's script, until it has to wait; whether it came to the end."""
        script = lane.script
        if lane.until is not None:  # the wait that it was held by is over
            lane.clock, lane.until, lane.awaiting = lane.until, None, ()
            script.popleft()
        try:
            while script:
                item = script[0]
                if type(item) is tuple:
                    _, made, posts = item
                    for post in made:
                        if post.time is None:
                            self._reach(post)
                    if self._has_to_wait(lane, posts):
                        return False
                elif type(item) is int:
                    self.combine(lane, item)
                else:
                    self._reach(item)
                script.popleft()
        except CommError as error:
            script.clear()
            lane.fault = error
        return True

    def _reach(self, post: Post) -> None:
        """Virtual time has come to a post."""
        post.time = post.lane.clock
        if post.mate is not None and post.mate.time is not None:
            self._make_ready(post)

    def combine(self, lane: Lane, nbytes: int) -> None:
        """Charge a lane for a reduction."""
        start = lane.clock
        end = start + nbytes * self.network.gamma
        lane.advance(end)
        self.trace.add(lane.rank, "combine", start, end, nbytes)

    def _has_to_wait(self, lane: Lane, posts: Sequence[Post]) -> bool:
        """Whether `lane` lacks some of `posts` yet; when it doesn't, its clock moves to the last end."""
        missing, last = 0, lane.clock
        for post in posts:
            if post.end is None:
                post.awaited = True
                missing += 1
            elif post.lost:  # for the rank to hear, at once
                return False
            elif post.end > last:
                last = post.end
        if missing:
            lane.missing, lane.until, lane.awaiting = missing, last, posts
            return True
        lane.clock = last
        return False

    def finish(self, post: Post, end: float) -> None:
        """`post` is done at `end`; its lane can go on if that was all it waited for."""
        post.end = end
        post.tensor = post.mate = None
        if post.awaited:
            lane = post.lane
            if lane.any:
                self.call_at(end, lambda: self.wake(lane))
                return
            if not lane.missing:  # it has heard of a loss already
                return
            lane.missing -= 1
            if post.lost:
                lane.missing, lane.until = 0, lane.clock
            elif end > lane.until:
                lane.until = end
            if not lane.missing:
                self.runnable.append(lane)

    def wake(self, lane: Lane) -> None:
        """The first of several posts is done."""
        if lane.any:
            lane.any = False
            self.runnable.append(lane)

    # -- messages -----------------------------------------------------------------------------------------------------

    def way(self, source: int, to: int, group: int, tag: int) -> Way:
        """The way of messages between these ends."""
        ends = source, to, group, tag
        way = self.ways.get(ends)
        if way is None:
            way = self.ways[ends] = Way(ends)
        return way

    def take_up(self, post: Post) -> Post:
        """Take up what a lane posts. Once it has met its other half, and the time of both has come, a message can travel."""
        if self.buffered and self._take_up_buffered(post):
            return post
        waiting = post.way.waiting
        if waiting and waiting[0].kind != post.kind:
            mate = waiting.popleft()
            post.mate, mate.mate = mate, post
            post.fits = mate.fits = alike(post, mate)
            if post.time is not None and mate.time is not None:
                self._make_ready(post)
        elif not self.deaths.dead or not self.deaths.refuse(post):
            waiting.append(post)
        return post

    def _take_up_buffered(self, post: Post) -> bool:
        if post.kind == "send":
            post.tensor = post.tensor.clone()
            self._enter(post.time, post, None)
        elif post.way.arrived:
            self._receive(post, *post.way.arrived.popleft())
        else:
            return False
        return True

    def _make_ready(self, post: Post) -> None:
        send, recv = (post, post.mate) if post.kind == "send" else (post.mate, post)
        if not send.fits:
            check_fits(send, recv, send.rank, recv.rank)
        self._enter(send.time if send.time > recv.time else recv.time, send, recv)

    def _carry(self, start: float, send: Post, recv: Post | None) -> None:
        """Let one message travel: it starts when it is ready and its channels are free, and holds them till its end."""
        way, free, nbytes = send.way, self.free, send.nbytes
        source, to, _, _ = way.ends
        alpha, beta, channels, fails_at = way.route or self._find_route(way)
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
        if recv is None:
            self.trace.add(source, "send", start, end, nbytes, to)
            self._arrive(send, end)
        else:
            self.trace.message(source, to, start, end, nbytes)
            if recv.tensor is not None:
                recv.take(send.tensor)
            self.finish(recv, end)
        self.finish(send, end)

    def _find_route(self, way: Way) -> tuple[float, float, list[int], float]:
        """Alpha, beta, the numbers of the channels on the way, and when it breaks."""
        source, to, _, _ = way.ends
        if (source, to) not in self.routes:
            alpha, beta, channels, fails_at = self.network.route(source, to)
            numbers = [self.channels.setdefault(channel, len(self.channels)) for channel in channels]
            self.free += [0.0] * (len(self.channels) - len(self.free))
            self.routes[source, to] = alpha, beta, numbers, fails_at
        way.route = self.routes[source, to]
        return way.route

    def _arrive(self, send: Post, end: float) -> None:
        """A buffered message has come: hand it to the receive that waits for it, or keep it."""
        way = send.way
        if way.waiting:
            self._receive(way.waiting.popleft(), end, send.tensor)
        else:
            way.arrived = way.arrived or deque()
            way.arrived.append((end, send.tensor))

    def _receive(self, recv: Post, arrival: float, message: torch.Tensor) -> None:
        check_fits(message, recv.tensor, recv.peer, recv.rank)
        end = max(arrival, recv.time)
        self.trace.add(recv.rank, "recv", recv.time, end, message.nbytes, recv.peer)
        recv.take(message)
        self.finish(recv, end)
