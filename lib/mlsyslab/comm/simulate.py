"""Every rank in this process, one at a time, on a virtual clock.

A rank is a thread, but only the one that holds the baton runs; it hands the baton on when it has to wait. When every
rank waits, virtual time moves: of all messages whose sender and receiver are both there, the one that was ready first
travels (`_World._carry`), and whoever waited for it goes on. Nothing depends on the machine, so two runs of the same
function are the same to the last event.
"""

from __future__ import annotations

import contextvars
import ctypes
import heapq
import os
import threading
import traceback
from collections import defaultdict, deque
from collections.abc import Callable, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import torch

from mlsyslab.comm.communicator import Communicator, Run, describe
from mlsyslab.comm.errors import CommError, Deadlock, RankFailed, Wait
from mlsyslab.comm.link import Link, Network
from mlsyslab.comm.stack import caller
from mlsyslab.comm.trace import Trace


def simulate(fn: Callable[[Communicator, Any], Any], inputs: Sequence[Any], link: Network | None = None, *,
             buffered: bool = False, timeout: float | None = None) -> Run:
    """Run `fn(comm, inputs[rank])` on every rank, in this process, on a virtual clock.

    fn:       what one rank does.  inputs: one entry a rank, so `len(inputs)` is the world size.
    link:     what messages cost: a `Link(alpha, beta, gamma)` between all ranks, or a network with structure
              (`Nodes`, `Mesh`, `Uneven`, `Failing`). By default messages are free, and only their order counts.
    buffered: let a send end once its message is on the way, instead of when it is received. Programs that need this
              to end can deadlock on a real backend.
    timeout:  real seconds after which a run that still goes on (an endless loop, say) is ended by a `Deadlock`.

    Returns a `Run`: `.results` (what each rank returned), `.trace`, `.time` (virtual seconds).
    Raises `Deadlock` when no rank can go on, `RankFailed` (from the rank's own exception) when one raises.
    """
    inputs = list(inputs)
    if not inputs:
        raise ValueError("inputs is empty: it holds one entry a rank, and a run needs at least one rank")
    network = Link() if link is None else link
    if not isinstance(network, Network):
        raise TypeError(f"link={link!r}: give a Link(alpha, beta, gamma) or another network, not {type(link).__name__}")
    network.check(len(inputs))
    return _World(len(inputs), network, buffered).run(fn, inputs, timeout)


class _Ended(BaseException):
    """Raised in every other rank when the run ends early, so that its thread ends too."""


class _Post:
    """A send or receive that a rank has posted; also the `Work` it gets back."""

    __slots__ = ("world", "kind", "rank", "peer", "group", "tag", "tensor", "time", "end", "awaited")

    def __init__(self, world, kind, rank, peer, group, tag, tensor):
        self.world, self.kind, self.rank, self.peer, self.group, self.tag = world, kind, rank, peer, group, tag
        self.tensor = tensor.detach() if tensor.requires_grad else tensor
        self.time = world.clock[rank]
        self.end: float | None = None  # virtual time at which it is done; None while it is under way
        self.awaited = False

    def wait(self) -> None:
        self.world.wait(self.rank, (self,))


class _World:
    """The ranks of one run, the messages between them and the baton."""

    def __init__(self, size: int, network: Network, buffered: bool):
        self.size, self.network, self.buffered = size, network, buffered
        self.trace = Trace(size=size)
        self.clock = [0.0] * size
        self.batons = [threading.Lock() for _ in range(size)]
        for baton in self.batons:
            baton.acquire()
        self.runnable: deque[int] = deque(range(size))
        self.missing = [0] * size  # how many awaited posts each rank still lacks
        self.awaiting: list[Sequence[_Post]] = [()] * size
        # What has been posted and not met its other half, by (sender, receiver, group, tag); and buffered messages.
        self.sends: dict[tuple, deque[_Post]] = defaultdict(deque)
        self.recvs: dict[tuple, deque[_Post]] = defaultdict(deque)
        self.arrived: dict[tuple, deque[tuple[float, torch.Tensor]]] = defaultdict(deque)
        self.ready: list[tuple[float, int, _Post, _Post | None]] = []  # a heap of messages that can travel
        self.order = 0
        self.free: dict[Any, float] = {}  # when each channel is free again
        self.routes: dict[tuple[int, int], Any] = {}
        self.lost: list[tuple[_Post, float]] = []  # messages that a broken link swallowed
        self.meetings: dict[tuple, dict[int, tuple[Any, float]]] = defaultdict(dict)  # who has come to a barrier or split
        self.meeting_at: dict[int, tuple[tuple, Sequence[int]]] = {}  # where a waiting rank is, and who else is to come
        self.groups: dict[tuple, int] = {}  # numbers of the groups made by split
        self.running: int | None = None
        self.finished: list[bool] = [False] * size
        self.results: list[Any] = [None] * size
        self.error: BaseException | None = None
        self.done = threading.Lock()
        self.done.acquire()
        self.threads: list[threading.Thread] = []

    # -- the run ------------------------------------------------------------------------------------------------------

    def run(self, fn, inputs, timeout) -> Run:
        for rank in range(self.size):
            context = contextvars.copy_context()
            body = (context.run, self._rank, fn, rank, inputs[rank])
            self.threads.append(threading.Thread(target=body[0], args=body[1:], name=f"rank {rank}", daemon=True))
        for thread in self.threads:
            thread.start()
        try:
            self._hand_on()
            if not self.done.acquire(timeout=-1 if timeout is None else timeout):
                self._end(Deadlock([self._still_running()], self.size, f"still going on after {timeout:g} s"))
        except BaseException as error:  # KeyboardInterrupt: leave no thread behind
            self._end(error)
        for thread in self.threads:
            thread.join(timeout=5)
        if self.error is not None:
            if isinstance(self.error, CommError):
                self.error.trace = self.trace
            raise self.error
        return Run(self.results, self.trace, max(self.clock))

    def _rank(self, fn, rank: int, given: Any) -> None:
        """The life of one rank, on its own thread."""
        stay_until_blocked()
        try:
            self.batons[rank].acquire()
            if self.error is None:
                comm = SimulatedCommunicator(self, rank, list(range(self.size)))
                self.results[rank] = fn(comm, given)
                self.finished[rank] = True
                self._hand_on()
        except _Ended:
            pass
        except BaseException as error:
            if self.error is None:
                failure = RankFailed(rank, self.size, summary(error))
                failure.__cause__ = error
                self._end(failure)

    def _end(self, error: BaseException) -> None:
        """End the run with `error`: every waiting rank wakes to raise `_Ended`, a running one is interrupted."""
        self.error = error
        here, running = threading.get_ident(), self.running
        for rank, baton in enumerate(self.batons):
            if rank != running and baton.locked():
                baton.release()
        if running is not None and self.threads[running].ident != here and self.threads[running].is_alive():
            ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(self.threads[running].ident), ctypes.py_object(_Ended))
        if self.done.locked():
            self.done.release()

    # -- the baton ----------------------------------------------------------------------------------------------------

    def _hand_on(self, here: int | None = None) -> None:
        """Give the baton to the next rank that can run, moving virtual time on where none can."""
        while not self.runnable:
            if self.ready:
                self._carry(*heapq.heappop(self.ready))
            elif all(self.finished):
                self.running = None
                self.done.release()
                return
            else:
                self._end(Deadlock(self._waits(), self.size))
                if here is not None:
                    raise _Ended
                return
        rank = self.running = self.runnable.popleft()
        if rank != here:
            self.batons[rank].release()
            if here is not None:
                self._await_baton(here)

    def _await_baton(self, rank: int) -> None:
        self.batons[rank].acquire()
        if self.error is not None:
            raise _Ended

    # -- messages -----------------------------------------------------------------------------------------------------

    def send(self, post: _Post) -> _Post:
        """Take up a send; when its receive is there already, the message is ready to travel."""
        if self.buffered:
            post.tensor = post.tensor.clone()
            self._make_ready(post.time, post, None)
            return post
        ends = post.rank, post.peer, post.group, post.tag
        waiting = self.recvs[ends]
        if waiting:
            self._match(post, waiting.popleft())
        else:
            self.sends[ends].append(post)
        return post

    def recv(self, post: _Post) -> _Post:
        """Take up a receive; when its send is there already, the message is ready to travel."""
        ends = post.peer, post.rank, post.group, post.tag
        waiting = self.sends[ends]
        if waiting:
            self._match(waiting.popleft(), post)
        elif self.buffered and self.arrived[ends]:
            self._receive(post, *self.arrived[ends].popleft())
        else:
            self.recvs[ends].append(post)
        return post

    def _match(self, send: _Post, recv: _Post) -> None:
        fits(send.tensor, recv.tensor, send.rank, recv.rank)
        self._make_ready(max(send.time, recv.time), send, recv)

    def _make_ready(self, time: float, send: _Post, recv: _Post | None) -> None:
        self.order += 1
        heapq.heappush(self.ready, (time, self.order, send, recv))

    def _carry(self, ready: float, _order: int, send: _Post, recv: _Post | None) -> None:
        """Let one message travel: it starts when it is ready and its channels are free, and holds them till its end."""
        source, to = send.rank, send.peer
        route = self.routes.get((source, to))
        if route is None:
            route = self.routes[source, to] = self.network.route(source, to)
        free, nbytes, start = self.free, send.tensor.nbytes, ready
        for channel in route.channels:
            if free.get(channel, 0.0) > start:
                start = free[channel]
        end = start + route.alpha + nbytes * route.beta
        if end > route.fails_at:
            self.lost.append((send, route.fails_at))
            return
        for channel in route.channels:
            free[channel] = end
        self.trace.add(source, "send", start, end, nbytes, to)
        if recv is None:
            self._arrive(send, end)
        else:
            self.trace.add(to, "recv", start, end, nbytes, source)
            recv.tensor.copy_(send.tensor)
            self._finish(recv, end)
        self._finish(send, end)

    def _arrive(self, send: _Post, end: float) -> None:
        """A buffered message has come: hand it to the receive that waits for it, or keep it."""
        ends = send.rank, send.peer, send.group, send.tag
        waiting = self.recvs[ends]
        if waiting:
            self._receive(waiting.popleft(), end, send.tensor)
        else:
            self.arrived[ends].append((end, send.tensor))

    def _receive(self, recv: _Post, arrival: float, message: torch.Tensor) -> None:
        fits(message, recv.tensor, recv.peer, recv.rank)
        end = max(arrival, recv.time)
        self.trace.add(recv.rank, "recv", recv.time, end, message.nbytes, recv.peer)
        recv.tensor.copy_(message)
        self._finish(recv, end)

    def _finish(self, post: _Post, end: float) -> None:
        post.end = end
        post.tensor = None
        if post.awaited:
            rank = post.rank
            self.missing[rank] -= 1
            if not self.missing[rank]:
                self.runnable.append(rank)

    def wait(self, rank: int, posts: Sequence[_Post]) -> None:
        """Hold `rank` until all of `posts` are done; its clock moves to the last end."""
        missing = 0
        for post in posts:
            if post.end is None:
                post.awaited = True
                missing += 1
        if missing:
            self.missing[rank] = missing
            self.awaiting[rank] = posts
            self._hand_on(rank)
            self.awaiting[rank] = ()
        for post in posts:
            if post.end > self.clock[rank]:
                self.clock[rank] = post.end

    # -- meetings: barrier and split, which cost nothing and leave no message in the trace ----------------------------

    def meet(self, rank: int, place: tuple, ranks: Sequence[int], word: Any) -> dict[int, Any]:
        """Wait until all of `ranks` have come to `place`; returns what each of them said."""
        came = self.meetings[place]
        came[rank] = word, self.clock[rank]
        if len(came) < len(ranks):
            self.meeting_at[rank] = place, ranks
            self._hand_on(rank)
        else:
            for other in ranks:
                if other != rank:
                    del self.meeting_at[other]
                    self.runnable.append(other)
        self.clock[rank] = max(time for _, time in came.values())
        return {other: said for other, (said, _) in came.items()}

    # -- who waits for whom -------------------------------------------------------------------------------------------

    def _waits(self) -> list[Wait]:
        waits = []
        for rank in range(self.size):
            if rank in self.meeting_at:
                place, ranks = self.meeting_at[rank]
                absent = [other for other in ranks if other not in self.meetings[place]]
                hint = f"not there: rank {', '.join(map(str, absent))}" if absent else ""
                waits.append(Wait(rank, "barrier", absent[0] if len(absent) == 1 else None, 0, 0,
                                  *caller(self.threads[rank].ident), hint))
            elif not self.finished[rank]:
                post = next((p for p in self.awaiting[rank] if p.end is None), None)
                if post is not None:
                    waits.append(Wait(rank, post.kind, post.peer, post.tensor.nbytes, post.tag,
                                      *caller(self.threads[rank].ident), self._hint(post)))
        return waits

    def _hint(self, post: _Post) -> str:
        """Why this never comes, where it can be told."""
        for send, when in self.lost:
            if {send.rank, send.peer} == {post.rank, post.peer}:
                return f"the link between rank {send.rank} and rank {send.peer} failed at {when:g} s"
        if self.finished[post.peer]:
            return f"rank {post.peer} has already returned"
        source, to = (post.rank, post.peer) if post.kind == "send" else (post.peer, post.rank)
        for (sender, receiver, group, tag), waiting in (self.recvs if post.kind == "send" else self.sends).items():
            if waiting and (sender, receiver) == (source, to):
                other = f"tag {tag} instead of {post.tag}" if tag != post.tag else f"in another group ({group})"
                return f"rank {post.peer} did post a {waiting[0].kind}, but with {other}"
        return ""

    def _still_running(self) -> Wait:
        rank = self.running or 0
        return Wait(rank, "a part that doesn't end", None, 0, 0, *caller(self.threads[rank].ident))


class SimulatedCommunicator(Communicator):
    """The communicator of one simulated rank."""

    device = torch.device("cpu")

    def __init__(self, world: _World, me: int, ranks: list[int], group: int = 0):
        self.world, self.me, self.group = world, me, group
        self.ranks, self.network = ranks, world.network
        self.rank, self.size = ranks.index(me), len(ranks)
        self.meetings = 0

    def _isend(self, tensor, to, tag):
        return self.world.send(_Post(self.world, "send", self.me, to, self.group, tag, tensor))

    def _irecv(self, out, source, tag):
        return self.world.recv(_Post(self.world, "recv", self.me, source, self.group, tag, out))

    def _wait(self, works):
        self.world.wait(self.me, works)

    def compute(self, seconds, label=""):
        if seconds < 0:
            raise ValueError(f"compute({seconds}): work takes 0 seconds or more")
        with self.work(label, seconds):
            pass

    @contextmanager
    def work(self, label="", seconds=0.0):
        start = self.now()
        yield
        self.world.clock[self.me] += seconds
        self.record("compute", start, self.now(), label=label)

    def _combined(self, start, nbytes):
        self.world.clock[self.me] = end = start + nbytes * self.network.gamma
        self.world.trace.add(self.me, "combine", start, end, nbytes)

    def now(self):
        return self.world.clock[self.me]

    def record(self, kind, start, end, bytes=0, peer=-1, label=""):
        self.world.trace.add(self.me, kind, start, end, bytes, peer, label)

    def _meet(self, word: Any) -> dict[int, Any]:
        self.meetings += 1
        return self.world.meet(self.me, (self.group, self.meetings), self.ranks, word)

    def barrier(self):
        self._meet(None)

    def split(self, color, key=None):
        said = self._meet((color, self.rank if key is None else key))
        members = [rank for rank in self.ranks if said[rank][0] == color]
        members.sort(key=lambda rank: said[rank][1])  # stable: ranks with the same key keep their order
        group = self.world.groups.setdefault((self.group, self.meetings, color), len(self.world.groups) + 1)
        return SimulatedCommunicator(self.world, self.me, members, group)


def stay_until_blocked() -> None:
    """Keep a thread that is woken from displacing the one that woke it, which is about to wait anyway.

    The woken thread could not run before it has Python's lock, so without this each baton costs two switches of the
    processor instead of one: 15 microseconds instead of 6 where it was measured. Linux alone knows the policy.
    """
    if hasattr(os, "SCHED_BATCH"):
        with suppress(OSError):
            os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))


def fits(sent: torch.Tensor, out: torch.Tensor, source: int, to: int) -> None:
    """Raise CommError when what is sent is not what the receiver expects."""
    if sent.shape != out.shape or sent.dtype != out.dtype:
        raise CommError(f"rank {source} sends {describe(sent)} to rank {to}, which expects {describe(out)}")


def summary(error: BaseException) -> str:
    """An exception in one line, as Python prints it."""
    return "".join(traceback.format_exception_only(error)).strip()
