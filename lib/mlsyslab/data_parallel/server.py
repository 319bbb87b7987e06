"""A server: it answers pushes and pulls, and lets a worker wait when its model of consistency says so."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from mlsyslab.comm import Communicator
from mlsyslab.data_parallel import log
from mlsyslab.data_parallel.events import Events
from mlsyslab.data_parallel.keys import Keys
from mlsyslab.data_parallel.messages import (
    CLOSE,
    END,
    GRADIENT,
    JOIN,
    LEAVE,
    NOT_HERE,
    OK,
    PULL,
    REPLY,
    REQUEST,
    VALUES,
    Message,
    room,
    tag,
    unpack,
)
from mlsyslab.data_parallel.replication import Replica
from mlsyslab.data_parallel.setup import Setup
from mlsyslab.data_parallel.shard import Shard


def serve(comm: Communicator, setup: Setup, values: Mapping[str, torch.Tensor]) -> dict[int, Shard]:
    """What a server rank runs, until every worker has closed; returns the shards that it has, by number.

    values: {name: tensor} to begin with, the same on every server.
    """
    return Server(comm, setup, values).run()


class Server:
    """One server rank.

    replicas: the shards that it has, as primary or as backup.  held: the pulls that wait for slower workers, by shard.
    """

    def __init__(self, comm: Communicator, setup: Setup, values: Mapping[str, torch.Tensor]):
        self.comm, self.setup = comm, setup
        self.workers = setup.workers(comm.size)
        self.events = Events(comm, self._lost, self._gone)
        self.leaving = False  # all workers have closed
        self.ended: set[int] = set()  # servers that are leaving too
        shards = Keys(values, setup.servers).pack(values)
        self.held: dict[int, list[Message]] = {index: [] for index in setup.held(comm.rank)}
        self.replicas: dict[int, Replica] = {}
        for index in setup.held(comm.rank):
            shard = Shard(shards[index], self.workers, setup.consistency, setup.rule)
            self.replicas[index] = Replica(self.events, index, setup.holders(index), shard,
                                           lambda index=index: self._take_over(index),
                                           lambda index=index: self._returned(index))
            self._listen(index)
        self.partners = sorted({replica.partner for replica in self.replicas.values()} - {None})
        for partner in self.partners:
            self.events.expect(partner, tag(END), room(), lambda _, partner=partner: self.ended.add(partner))

    def _listen(self, index: int) -> None:
        """Expect the requests of all workers for one shard."""
        values = self.replicas[index].shard.values
        for worker in range(self.workers):
            rank = self.setup.servers + worker
            self.events.expect(rank, tag(REQUEST, index), room(), lambda data, index=index: self._asked(index, unpack(data)))
            self.events.expect(rank, tag(GRADIENT, index), room(len(values), values.dtype),
                               lambda data, index=index, dtype=values.dtype: self._asked(index, unpack(data, dtype)))

    def run(self) -> dict[int, Shard]:
        """Handle one event after another until nobody will ask again."""
        while not self._all_closed():
            self.events.next()
        self.leaving = True
        for partner in self.partners:
            self._say_goodbye(partner)
        while not self.ended.issuperset(self.partners) or self.events.sending(tag(END)):
            self.events.next()
        return {index: replica.shard for index, replica in self.replicas.items()}

    def _say_goodbye(self, partner: int) -> None:
        """A server that comes back needs its partners, so none of them leaves before all can."""
        self.events.send(Message(OK).pack(), partner, tag(END))

    def _all_closed(self) -> bool:
        everyone = set(range(self.workers))
        return all(replica.role != "returning" and not replica.sent and replica.shard.closed == everyone
                   for replica in self.replicas.values())

    # -- requests -----------------------------------------------------------------------------------------------------

    def _asked(self, index: int, message: Message) -> None:
        """A worker pulls, pushes, joins or closes."""
        replica = self.replicas[index]
        if replica.role != "primary":
            self._answer(index, message._replace(word=NOT_HERE), VALUES if message.word == PULL else REPLY)
        elif message.word == PULL:
            self.held[index].append(message)
            self._open_gate(index)
        elif message.word == JOIN and not self.setup.elastic:
            self._answer(index, message._replace(version=replica.shard.clocks[message.worker]))
        else:
            self._submit(index, message)

    def _submit(self, index: int, operation: Message) -> None:
        """Change a shard; then some who wait may go on."""
        def done(clock: int) -> None:
            if operation.life >= 0:  # a worker asked, and not this server itself
                self._answer(index, operation._replace(version=clock))
            self._open_gate(index)
        self.replicas[index].submit(operation, done)

    def _open_gate(self, index: int) -> None:
        """Give the values to everyone who may begin the clock that they ask for."""
        shard, waiting = self.replicas[index].shard, self.held[index]
        for message in [m for m in waiting if shard.may_begin(m.clock)]:
            waiting.remove(message)
            log.write(self.comm, "read", index, message.worker, message.clock, shard.version, shard.slowest)
            self._answer(index, message._replace(version=shard.version, values=shard.values), VALUES)

    def _answer(self, index: int, answer: Message, channel: int = REPLY) -> None:
        """An answer repeats what was asked, with its clock and the life of who asked, so that it is taken for no other."""
        values = self.replicas[index].shard.values
        data = answer.pack(len(values), values.dtype) if channel == VALUES else answer._replace(values=None).pack()
        self.events.send(data, self.setup.servers + answer.worker, tag(channel, index))

    # -- deaths -------------------------------------------------------------------------------------------------------

    def _lost(self, rank: int) -> None:
        """A rank has died."""
        if rank < self.setup.servers:
            self.ended.discard(rank)
            for index, replica in self.replicas.items():
                if replica.partner == rank:
                    replica.partner_lost()
                    self._open_gate(index)
            return
        worker = rank - self.setup.servers
        for index, replica in self.replicas.items():
            self.held[index] = [message for message in self.held[index] if message.worker != worker]
            replica.unheard.add(worker)
            if replica.role == "primary":
                self._leave_out(index)

    def _gone(self, rank: int) -> None:
        """A rank has died and will not come back."""
        if rank < self.setup.servers:
            self.ended.add(rank)
            return
        for index, replica in self.replicas.items():
            if replica.role == "primary":
                self._close(index, rank - self.setup.servers)

    def _leave_out(self, index: int) -> None:
        """Let nobody wait for workers that are dead, where the setup says so."""
        if self.setup.elastic:
            for worker in list(self.replicas[index].unheard):
                self._submit(index, Message(LEAVE, worker, life=-1))

    def _close(self, index: int, worker: int) -> None:
        """Close for a worker that can't."""
        shard = self.replicas[index].shard
        if worker in shard.closed:
            return
        if not self.setup.elastic:
            raise RuntimeError(f"worker {worker} (rank {self.setup.servers + worker}) died for good at clock "
                               f"{shard.clocks[worker]}, and the others are not to go on without it: Setup(elastic=True) "
                               "leaves out the dead")
        self._submit(index, Message(CLOSE, worker, life=-1))

    def _take_over(self, index: int) -> None:
        """This server is now the primary of a shard, and sees to what the old one may not have done."""
        self._leave_out(index)
        for rank in self.events.left:
            if rank >= self.setup.servers:
                self._close(index, rank - self.setup.servers)

    def _returned(self, index: int) -> None:
        """The other server of a shard has come back, and may have missed that this one is leaving."""
        if self.leaving:
            self._say_goodbye(self.replicas[index].partner)
