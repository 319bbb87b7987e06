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

from mlsyslab.comm.communicator import check_fits
from mlsyslab.comm.errors import CommError
from mlsyslab.comm.lane import Lane
from mlsyslab.comm.link import Network
from mlsyslab.comm.message import Loss, Message, Way
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
        # What happens next, by time: messages that can travel, and calls; and these times as a heap.
        self.calendar: dict[float, deque[Message | Callable[[], None]]] = {}
        self.times: list[float] = []
        self.ways: dict[tuple[int, int, int, int], Way] = {}  # by sender, receiver, group, tag
        self.routes: dict[tuple[int, int], tuple] = {}  # by sender, receiver
        self.channels: dict[Any, int] = {}  # their numbers
        self.free: list[float] = []  # when each is free again
        self.broken: list[tuple[Message, float]] = []  # messages that a broken link swallowed

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
            event = happenings.popleft()
            if not happenings:
                del calendar[heappop(times)]
            if type(event) is Message:
                self._carry(time, event)
            else:
                event()

    def _messages(self) -> bool:
        """Whether anything is to travel yet."""
        return any(type(event) is Message for happenings in self.calendar.values() for event in happenings)

    def call_at(self, time: float, event: Message | Callable[[], None]) -> None:
        """Have a message travel, or call what is given, at virtual second `time`."""
        if time in self.calendar:
            self.calendar[time].append(event)
        else:
            self.calendar[time] = deque((event,))
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
                step = script[0]
                if type(step) is tuple:
                    _, begun, messages = step
                    if not begun:
                        self._exchange(lane, messages)
                        return False
                    if self._has_to_wait(lane, messages):
                        return False
                elif type(step) is int:
                    self.combine(lane, step)
                else:
                    self._reach(lane, step)
                script.popleft()
        except CommError as error:
            script.clear()
            lane.fault = error
        return True

    def _reach(self, lane: Lane, message: Message) -> None:
        """Virtual time has come to where `lane` posts its half of a message."""
        if message.sender is lane:
            message.sent = lane.clock
        else:
            message.expected = lane.clock
        if message.sent is not None and message.expected is not None:
            self._make_ready(message)

    def _exchange(self, lane: Lane, both: tuple[Message, Message]) -> None:
        """Virtual time has come to where `lane` posts a receive and a send, and waits for them."""
        received, sent = both
        received.expected = sent.sent = clock = lane.clock
        if received.sent is not None:
            self._make_ready(received)
        if sent.expected is not None:
            self._make_ready(sent)
        received.receiver_waits = sent.sender_waits = True
        lane.missing, lane.until, lane.awaiting = 2, clock, both

    def combine(self, lane: Lane, nbytes: int) -> None:
        """Charge a lane for a reduction."""
        start = lane.clock
        end = start + nbytes * self.network.gamma
        lane.advance(end)
        self.trace.add(lane.rank, "combine", start, end, nbytes)

    def _has_to_wait(self, lane: Lane, messages: Sequence[Message]) -> bool:
        """Whether `lane` lacks some of `messages` yet; when it doesn't, its clock moves to the last end."""
        lacking, last = [], lane.clock
        for message in messages:
            if message.loss(lane):  # for the rank to hear, at once
                return False
            if message.end is None:
                lacking.append(message)
            elif message.end > last:
                last = message.end
        if lacking:
            for message in lacking:
                message.await_by(lane, True)
            lane.missing, lane.until, lane.awaiting = len(lacking), last, messages
            return True
        lane.clock = last
        return False

    def finish(self, message: Message, end: float) -> None:
        """A message is done at `end`; lanes can go on if that was all they waited for."""
        message.end = end
        message.tensor = message.out = None
        if message.receiver_waits:
            self._hear(message.receiver, end)
        if message.sender_waits:
            self._hear(message.sender, end)

    def _hear(self, lane: Lane, end: float) -> None:
        """Something that `lane` waits for is done at `end`."""
        if lane.any:
            self.call_at(end, lambda: self.wake(lane))
            return
        if end > lane.until:
            lane.until = end
        lane.missing -= 1
        if not lane.missing:
            self.runnable.append(lane)

    def lose(self, message: Message, loss: Loss) -> None:
        """A message comes to nothing. If a lane waits for that, it waits for nothing else any more."""
        message.lost = loss
        message.tensor = message.out = None
        lane = loss.lane
        if not (message.sender_waits if message.sender is lane else message.receiver_waits):
            return
        if lane.any:
            self._hear(lane, loss.end)
        else:
            self.forget(lane, lane.awaiting)
            lane.until = lane.clock
            self.runnable.append(lane)

    def forget(self, lane: Lane, messages: Sequence[Message]) -> None:
        """`lane` doesn't wait for `messages` any more."""
        for message in messages:
            message.await_by(lane, False)

    def wake(self, lane: Lane) -> None:
        """The first of several messages is done."""
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

    def send(self, lane: Lane, way: Way, tensor: torch.Tensor) -> Message:
        """Take up a send. Once it has met its receive, and the time of both has come, the message can travel."""
        if tensor.requires_grad:
            tensor = tensor.detach()
        if self.buffered:
            return self._send_buffered(lane, way, tensor)
        waiting = way.waiting
        if waiting and waiting[0].sender is None:
            message = waiting.popleft()
            message.send(lane, tensor)
            self._meet(message)
        else:
            message = Message(way)
            message.send(lane, tensor)
            if not self.deaths.dead or not self.deaths.refuse(message, lane):
                waiting.append(message)
        return message

    def receive(self, lane: Lane, way: Way, out: torch.Tensor, op: str | None = None) -> Message:
        """Take up a receive, which `op` combines into `out`."""
        if out.requires_grad:
            out = out.detach()
        waiting = way.waiting
        if waiting and waiting[0].receiver is None:
            message = waiting.popleft()
            message.receive(lane, out, op)
            self._meet(message)
        else:
            message = Message(way)
            message.receive(lane, out, op)
            if way.arrived:
                self._receive(message, *way.arrived.popleft())
            elif not self.deaths.dead or not self.deaths.refuse(message, lane):
                waiting.append(message)
        return message

    def _meet(self, message: Message) -> None:
        """Both halves have been posted."""
        out = message.out
        message.fits = message.shape == out.shape and message.dtype == out.dtype
        if message.sent is not None and message.expected is not None:
            self._make_ready(message)

    def _make_ready(self, message: Message) -> None:
        if not message.fits:
            source, to, _, _ = message.way.ends
            check_fits(message, message.out, source, to)
        sent, expected = message.sent, message.expected
        self.call_at(sent if sent > expected else expected, message)

    def _carry(self, start: float, message: Message) -> None:
        """Let one message travel: it starts when it is ready and its channels are free, and holds them till its end."""
        way, free, nbytes = message.way, self.free, message.nbytes
        alpha, beta, channels, fails_at = way.route or self._find_route(way)
        for channel in channels:
            if free[channel] > start:
                start = free[channel]
        end = start + alpha + nbytes * beta
        if end > fails_at:
            self.broken.append((message, fails_at))
            return
        if self.deaths.expected and self.deaths.swallow(message, end):
            return
        for channel in channels:
            free[channel] = end
        source, to, _, _ = way.ends
        if self.buffered:
            self.trace.add(source, "send", start, end, nbytes, to)
            self._arrive(message, end)
        else:
            self.trace.message(source, to, start, end, nbytes)
            if message.out is not None:
                message.take()
        self.finish(message, end)

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

    # -- buffered: a send and its receive are two messages, since they end apart ----------------------------------------

    def _send_buffered(self, lane: Lane, way: Way, tensor: torch.Tensor) -> Message:
        message = Message(way)
        message.send(lane, tensor.clone())
        self.call_at(message.sent, message)
        return message

    def _arrive(self, sent: Message, end: float) -> None:
        """What was sent has come: hand it to the receive that waits for it, or leave it for that."""
        way = sent.way
        if way.waiting:
            self._receive(way.waiting.popleft(), end, sent.tensor)
        else:
            way.arrived = way.arrived or deque()
            way.arrived.append((end, sent.tensor))

    def _receive(self, message: Message, arrival: float, tensor: torch.Tensor) -> None:
        source, to, _, _ = message.way.ends
        check_fits(tensor, message.out, source, to)
        end = max(arrival, message.expected)
        self.trace.add(to, "recv", message.expected, end, tensor.nbytes, source)
        message.tensor, message.dtype, message.shape = tensor, tensor.dtype, tensor.shape
        message.take()
        self.finish(message, end)
