"""A worker's end of the parameter server: pull, push, and whom to ask when a server has died."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from mlsyslab.comm import Communicator, PeerLost, Work
from mlsyslab.data_parallel import log
from mlsyslab.data_parallel.keys import Keys
from mlsyslab.data_parallel.messages import (
    CLOSE,
    GRADIENT,
    JOIN,
    PULL,
    PUSH,
    REPLY,
    REQUEST,
    VALUES,
    Message,
    room,
    tag,
    unpack,
)
from mlsyslab.data_parallel.replication import ShardLost
from mlsyslab.data_parallel.setup import Setup


class Client:
    """What a worker rank has of the parameter server.

    like: {name: tensor}, the shapes and dtype of the values.
    clock: the iteration that this worker is to do next: 0 at the start; when it has died and come back, where it goes on.

    `pull` and `push` take turns, one of each a clock.
    """

    def __init__(self, comm: Communicator, setup: Setup, like: Mapping[str, torch.Tensor]):
        self.comm, self.setup, self.keys = comm, setup, Keys(like, setup.servers)
        self.workers = setup.workers(comm.size)
        self.worker = comm.rank - setup.servers
        if self.worker < 0:
            raise ValueError(f"rank {comm.rank} is one of the {setup.servers} servers, and a client is a worker's")
        self.asking = {shard: setup.holders(shard)[0] for shard in range(setup.servers)}  # who seems to be primary
        self.replies: dict[tuple[int, int], tuple[Work, torch.Tensor]] = {}  # receives that stand, by (server, tag)
        self.pulled = False
        self.clock = self._come_back() if comm.life else 0

    def pull(self) -> dict[str, torch.Tensor]:
        """The values, as new tensors; returns when this worker may begin its clock."""
        if self.pulled:
            raise RuntimeError(f"worker {self.worker} has pulled for clock {self.clock} already: push a gradient first")
        answers = self._ask(dict.fromkeys(self.asking, self._request(PULL, self.clock)), REQUEST, VALUES)
        self.pulled = True
        log.write(self.comm, "began", -1, self.worker, self.clock, min(answer.version for answer in answers.values()))
        return self.keys.unpack([answers[shard].values for shard in self.asking])

    def push(self, gradients: Mapping[str, torch.Tensor]) -> None:
        """Hand in the gradient of this clock; returns when it is acknowledged by every shard. The next clock begins.

        With BSP the gradient is one of W that are averaged; else the shard takes 1/W of it at once. So the same rate means
        the same under every model of consistency.
        """
        if not self.pulled:
            raise RuntimeError(f"worker {self.worker} pushes for clock {self.clock} before it has pulled: pull first, "
                               "since that is where it waits for its turn")
        shards = self.keys.pack(gradients)
        self._ask({shard: self._request(PUSH, self.clock, shards[shard]) for shard in self.asking}, GRADIENT, REPLY)
        self.pulled = False
        self.clock += 1

    def close(self) -> None:
        """Say that this worker has done all its clocks. The servers end when all have."""
        self._ask(dict.fromkeys(self.asking, self._request(CLOSE, self.clock)), REQUEST, REPLY)

    def _come_back(self) -> int:
        """Where to go on: at the oldest clock that a shard lacks; where the dead are left out, at the newest."""
        offers = self._ask(dict.fromkeys(self.asking, self._request(JOIN, -1)), REQUEST, REPLY)
        clocks = [answer.version for answer in offers.values()]
        if not self.setup.elastic:
            return min(clocks)
        self._ask(dict.fromkeys(self.asking, self._request(JOIN, max(clocks))), REQUEST, REPLY)
        return max(clocks)

    # -- asking -------------------------------------------------------------------------------------------------------

    def _ask(self, requests: dict[int, Message], channel: int, answers_on: int) -> dict[int, Message]:
        """Ask for something at every shard at once; returns the answers by shard.

        A server that is dead, or isn't primary, is left for the other one. Asking twice does no harm, for a push that is
        there already changes nothing.
        """
        open = {shard: _Question(self, shard, request, channel, answers_on) for shard, request in requests.items()}
        answers: dict[int, Message] = {}
        while open:
            works = [(work, question) for question in open.values() for work in question.works]
            try:
                work, question = works[self.comm.wait_any([work for work, _ in works])]
            except PeerLost as loss:
                next(question for work, question in works if work is loss.work).lost(loss)
                continue
            answer = question.done(work)
            if answer is not None:
                answers[question.shard] = answer
                del open[question.shard]
                if answer.word == PUSH:
                    log.write(self.comm, "acknowledged", question.shard, self.worker, answer.clock)
        return answers

    def _request(self, word: int, clock: int, values: torch.Tensor | None = None) -> Message:
        return Message(word, self.worker, clock, self.comm.life, values=values)


class _Question:
    """A request to one shard, until it is answered."""

    def __init__(self, client: Client, shard: int, request: Message, channel: int, answers_on: int):
        self.client, self.shard, self.request = client, shard, request
        self.length, self.dtype = client.keys.lengths[shard], client.keys.dtype
        self.channel, self.answers_on = channel, answers_on
        self.refused: dict[int, float] = {}  # when a server was found dead
        self._send()

    @property
    def works(self) -> list[Work]:
        """What is under way: the request until it has gone, and the answer.

        In this order: of two that are lost at once the first is told, and a refused request says that the server is dead.
        """
        return [*self.sending, self.client.replies[self.place][0]]

    def _send(self) -> None:
        """Ask the server that seems to be primary. Its answer is expected once, however often it is asked."""
        client, server = self.client, self.client.asking[self.shard]
        self.place = server, tag(self.answers_on, self.shard)
        if self.place not in client.replies:
            self._expect()
        data = self.request.pack(self.length * (self.channel == GRADIENT), self.dtype)
        self.sending = [client.comm.isend(data, server, tag(self.channel, self.shard))]

    def _expect(self) -> None:
        data = room(self.length * (self.answers_on == VALUES), self.dtype)
        self.client.replies[self.place] = self.client.comm.irecv(data, *self.place), data

    def done(self, work: Work) -> Message | None:
        """Something of it is done; the answer, if that was it."""
        if work in self.sending:
            self.sending = []
            return None
        answer = unpack(self.client.replies.pop(self.place)[1], self.dtype)
        if (answer.clock, answer.life) != (self.request.clock, self.request.life):
            self._expect()  # that was the answer to a question of an earlier clock or life
        elif answer.word == self.request.word:
            return answer
        else:  # NOT_HERE
            self._turn()
        return None

    def lost(self, loss: PeerLost) -> None:
        """The server died: before it had the request, or before it answered."""
        if loss.work not in self.sending:
            del self.client.replies[self.place]
            self._send()  # if it is dead still, this is refused
            return
        client, holders = self.client, self.client.setup.holders(self.shard)
        self.refused[loss.rank] = client.comm.now()
        if all(self.refused.get(server) == client.comm.now() for server in holders):
            raise ShardLost(self.shard, holders)
        self._turn()

    def _turn(self) -> None:
        """Ask the other server."""
        holders = self.client.setup.holders(self.shard)
        self.client.asking[self.shard] = holders[holders.index(self.client.asking[self.shard]) - 1]
        self._send()
