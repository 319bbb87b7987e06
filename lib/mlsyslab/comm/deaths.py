"""Ranks that die in the simulated world, what is lost with them, and what their peers are told."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from mlsyslab.comm.errors import PeerLost
from mlsyslab.comm.failure import Failure
from mlsyslab.comm.lane import Lane
from mlsyslab.comm.message import Loss, Message

if TYPE_CHECKING:
    from mlsyslab.comm.virtual import VirtualWorld


class Deaths:
    """Lets ranks die and come back as `failures` say.

    A message that has not arrived when one of its ranks dies is lost, and so is whatever that rank had posted. The other
    rank is told at that moment (PeerLost), as by a connection that breaks. A receive that is posted while the peer is dead
    waits for its next life; a send, and a receive from a rank that is gone for good, is refused at once.
    """

    def __init__(self, world: VirtualWorld, failures: Sequence[Failure]):
        self.world = world
        self.by_rank = lives(failures, world.size)
        self.expected = any(self.by_rank)
        self.dead: dict[int, Failure] = {}  # who is dead now

    def plan(self) -> None:
        """Put every death and return on the world's calendar."""
        for failure in [failure for failures in self.by_rank for failure in failures]:
            self.world.timing.call_at(failure.at, lambda failure=failure: self._die(failure))
            if failure.back is not None:
                self.world.timing.call_at(failure.back, lambda failure=failure: self._return(failure))

    def next(self, rank: int, life: int) -> float:
        """When `rank` dies in its `life`-th life, counted from 0: infinity when it doesn't."""
        failures = self.by_rank[rank]
        return failures[life].at if life < len(failures) else math.inf

    # -- dying and coming back ----------------------------------------------------------------------------------------

    def _die(self, failure: Failure) -> None:
        world, rank = self.world, failure.rank
        lanes = [lane for lane in world.lanes if lane.rank == rank and lane.dies_at == failure.at]
        if rank in world.returned:
            return  # nothing is left that could die
        self.dead[rank] = failure
        if failure.back is not None:
            world.timing.busy += 1  # the life to come
        for lane in lanes:
            lane.dead = True
            lane.script.clear()
            lane.missing, lane.until = 0, None
            if lane.place is not None:
                world.leave(lane)
            if lane.busy:
                lane.any = False
                world.timing.runnable.append(lane)
        unmet = [way.waiting for way in world.timing.ways.values() if way.waiting and rank in way.ends[:2]]
        for waiting in sorted(unmet, key=lambda waiting: waiting[0].sender is None):  # sends first
            for message in list(waiting):
                lane = message.sender or message.receiver
                if lane.rank == rank:
                    waiting.remove(message)
                elif self._lost(message, lane, failure):
                    waiting.remove(message)
                    self._lose(message, lane, failure)
        for lane in world.lanes:
            if lane.place is not None and rank in lane.place[1] and lane.rank != rank:
                world.timing.runnable.append(lane)

    def _return(self, failure: Failure) -> None:
        world = self.world
        if self.dead.pop(failure.rank, None):
            world.timing.busy -= 1
            world.begin(failure.rank, self.by_rank[failure.rank].index(failure) + 1, failure.back)

    # -- what is lost -------------------------------------------------------------------------------------------------

    def refuse(self, message: Message, lane: Lane) -> bool:
        """Whether the half that `lane` has posted is lost because its peer is dead; whoever waits for it is told."""
        _, peer, _ = message.seen_by(lane)
        failure = self.dead.get(peer)
        if failure is None or not self._lost(message, lane, failure):
            return False
        self._lose(message, lane, failure)
        return True

    def _lost(self, message: Message, lane: Lane, failure: Failure) -> bool:
        """Whether the half that `lane` has posted cannot outlive `failure` of its peer."""
        if failure.back is None or message.posted_at(lane) < failure.at:
            return True
        return message.sender is lane and message.sent < failure.back

    def swallow(self, message: Message, end: float) -> bool:
        """Whether one of its ranks dies before a message ends, which then doesn't."""
        sender, receiver = message.sender, message.receiver
        if end <= sender.dies_at and end <= receiver.dies_at:
            return False
        first, other = (sender, receiver) if sender.dies_at <= receiver.dies_at else (receiver, sender)
        if first.dies_at < other.dies_at:
            self._lose(message, other, self.by_rank[first.rank][first.life])
        return True

    def _lose(self, message: Message, lane: Lane, failure: Failure) -> None:
        if not lane.dead:
            end = max(message.posted_at(lane), failure.at)
            self.world.timing.lose(message, Loss(lane, PeerLost(failure.rank, failure.at), end))

    def absent(self, lane: Lane, ranks: Sequence[int]) -> None:
        """Raise PeerLost when one of `ranks`, who are to meet, is dead."""
        for rank in self.dead.keys() & set(ranks) - {lane.rank}:
            failure = self.dead[rank]
            lane.advance(failure.at)
            raise PeerLost(rank, failure.at)


def lives(failures: Sequence[Failure], size: int) -> list[list[Failure]]:
    """The failures of each rank in order of time; an error where they can't be."""
    by_rank: list[list[Failure]] = [[] for _ in range(size)]
    for failure in failures:
        if not isinstance(failure, Failure):
            raise TypeError(f"failures={failures!r}: give a list of Failure(rank, at, back)")
        if failure.rank >= size:
            raise ValueError(f"{failure}: there is no rank {failure.rank}; ranks are 0 … {size - 1}")
    for failure in sorted(failures, key=lambda failure: failure.at):
        before = by_rank[failure.rank]
        if before and (before[-1].back is None or failure.at <= before[-1].back):
            raise ValueError(f"{failure}: rank {failure.rank} is dead then, by {before[-1]}")
        before.append(failure)
    return by_rank
