"""A shard on two servers, so that either may die (primary and backup: Alsberg and Day 1976).

The primary sends every operation to the backup first, and carries it out, and answers, when the backup has it. So whatever
was acknowledged is on both. When the primary dies, the backup becomes primary; a server that comes back asks the other for
the whole shard and is its backup from then on.
"""

from __future__ import annotations

import io
from collections import deque
from collections.abc import Callable

import torch

from mlsyslab.data_parallel import log
from mlsyslab.data_parallel.events import Events
from mlsyslab.data_parallel.messages import (
    CLOSE,
    COPIED,
    COPY,
    JOIN,
    LEAVE,
    OK,
    PUSH,
    RETURN,
    SIZE,
    SNAPSHOT,
    Message,
    room,
    tag,
    unpack,
)
from mlsyslab.data_parallel.shard import Shard

Answer = Callable[[int], None]  # is given what the operation returned


class ShardLost(RuntimeError):
    """Every server that had a shard has died."""

    def __init__(self, shard: int, servers: list[int]):
        self.shard, self.servers = shard, servers
        who = f"its only server, rank {servers[0]}" if len(servers) == 1 else \
            f"both of its servers, ranks {servers[0]} and {servers[1]}, at once"
        advice = "Setup(replicas=2) keeps a copy." if len(servers) == 1 else "Two copies survive one death at a time."
        super().__init__(f"shard {shard} is lost: {who}, died. {advice}")


class Replica:
    """One server's copy of one shard.

    role: "primary", "backup", or "returning" while a server that has died waits for the shard.
    partner: the other server that has it, None where there is none.  alone: whether nobody else has it now.
    unheard: workers whose death this server knows of, and the shard doesn't yet.
    takes_over, returned: called when a backup becomes primary, and when the partner has come back.
    """

    def __init__(self, events: Events, index: int, holders: list[int], shard: Shard, takes_over: Callable[[], None],
                 returned: Callable[[], None]):
        self.events, self.comm, self.index, self.holders, self.shard = events, events.comm, index, holders, shard
        self.takes_over, self.returned = takes_over, returned
        self.unheard: set[int] = set()
        self.partner = next((server for server in holders if server != self.comm.rank), None)
        self.alone = self.partner is None
        self.role = "primary" if holders[0] == self.comm.rank else "backup"
        self.sent: deque[tuple[Message, Answer]] = deque()  # to the backup, and not yet there
        self.early: list[Message] = []  # copies that came before the shard itself
        if self.partner is not None:
            n, dtype = len(shard.values), shard.values.dtype
            events.expect(self.partner, tag(RETURN, index), room(), lambda _: self._give_shard())
            events.expect(self.partner, tag(COPY, index), room(n, dtype), lambda data: self._take_copy(unpack(data, dtype)))
            events.expect(self.partner, tag(COPIED, index), room(), lambda _: self._commit())
        if self.comm.life:
            self._ask_for_shard()

    # -- at the primary -----------------------------------------------------------------------------------------------

    def submit(self, operation: Message, answer: Answer = lambda _: None) -> None:
        """Have an operation done on both copies, then answer."""
        self.sent.append((operation, answer))
        if self.alone:
            self._commit()
        else:
            values = self.shard.values
            self.events.send(operation.pack(len(values), values.dtype), self.partner, tag(COPY, self.index))

    def _commit(self) -> None:
        """The backup has the oldest operation that it was sent, or there is no backup."""
        operation, answer = self.sent.popleft()
        answer(self._do(operation, "update"))

    def _do(self, operation: Message, kind: str) -> int:
        """Carry out an operation; what it gives. A push is noted under `kind`, the others under their own name."""
        word, worker, clock, *_ = operation
        shard = self.shard
        if word == PUSH:
            with self.comm.work("update", seconds=self.comm.network.gamma * shard.values.nbytes):
                done = shard.push(worker, clock, operation.values)
            if done:
                self._note(kind, worker, clock)
            return clock
        self.unheard.discard(worker)
        if word == JOIN:
            clock = shard.join(worker, None if clock < 0 else clock)
        elif word == LEAVE:
            shard.leave(worker)
        elif word == CLOSE:
            shard.close(worker)
        self._note({JOIN: "join", LEAVE: "leave", CLOSE: "close"}[word], worker, clock)
        return clock

    def _note(self, kind: str, worker: int, clock: int) -> None:
        log.write(self.comm, kind, self.index, worker, clock, self.shard.version, self.shard.slowest)

    # -- at the backup ------------------------------------------------------------------------------------------------

    def _take_copy(self, operation: Message) -> None:
        if self.role == "returning":
            self.early.append(operation)
            return
        self._do(operation, "copy")
        self.events.send(Message(OK).pack(), self.partner, tag(COPIED, self.index))

    # -- deaths and returns -------------------------------------------------------------------------------------------

    def partner_lost(self) -> None:
        """The other server has died: what it was sent counts as done, and a backup becomes primary."""
        if self.role == "returning":
            raise ShardLost(self.index, self.holders)
        self.alone = True
        while self.sent:
            self._commit()
        if self.role == "backup":
            self.role = "primary"
            self.takes_over()

    def _ask_for_shard(self) -> None:
        """This server has come back with nothing."""
        if self.partner is None:
            raise ShardLost(self.index, self.holders)
        self.role, self.alone = "returning", False
        size = torch.empty(1, dtype=torch.int64)
        self.events.expect(self.partner, tag(SIZE, self.index), size, self._expect_shard, once=True)
        self.events.send(Message(RETURN).pack(), self.partner, tag(RETURN, self.index))

    def _give_shard(self) -> None:
        """The other server has come back: it gets the whole shard, and every operation from now on."""
        if not self.alone:  # it died unnoticed
            self.partner_lost()
        file = io.BytesIO()
        torch.save(self.shard.snapshot(), file)
        data = torch.frombuffer(bytearray(file.getbuffer()), dtype=torch.uint8)
        self.events.send(torch.tensor([len(data)]), self.partner, tag(SIZE, self.index))
        self.events.send(data, self.partner, tag(SNAPSHOT, self.index))
        self.alone = False
        self.returned()

    def _expect_shard(self, size: torch.Tensor) -> None:
        like = torch.empty(size.item(), dtype=torch.uint8)
        self.events.expect(self.partner, tag(SNAPSHOT, self.index), like, self._load, once=True)

    def _load(self, data: torch.Tensor) -> None:
        self.shard.load(torch.load(io.BytesIO(data.numpy().tobytes()), weights_only=True))
        self.role = "backup"
        early, self.early = self.early, []
        for operation in early:
            self._take_copy(operation)
