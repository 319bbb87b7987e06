"""The communicator of a rank that is a process."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from contextlib import contextmanager

import torch

from mlsyslab.comm.beside import StreamBeside, ThreadBeside
from mlsyslab.comm.carriers import mark
from mlsyslab.comm.communicator import BESIDE, COMBINE, MAX_TAG, Communicator, check_combine
from mlsyslab.comm.errors import CommError
from mlsyslab.comm.world import World

_PIECE = 1 << 20  # bytes that are still in the cache when the other rank combines them
_BESIDE = 1 << 31  # in the number of every group of what runs beside a rank
_MEETING = MAX_TAG + 1  # the tag of barriers and splits


class ProcessCommunicator(Communicator):
    """A communicator over processes: those that `launch` starts, or torchrun or Slurm.

    Messages between ranks of one machine go through shared memory, between machines through Gloo, between GPUs through
    NCCL. A message is copied into shared memory when it is sent and out of it when the receive is waited for;
    `sendrecv_combine` combines it right where it lies there.
    """

    def __init__(self, world: World, ranks: list[int], context: int = 0):
        self.world, self.ranks, self.context = world, ranks, context
        self.rank, self.size = ranks.index(world.rank), len(ranks)
        self.device, self.network = world.device, world.network
        self.meetings = 0
        self.side: ProcessCommunicator | None = None  # of the same group, for what runs beside
        self.beside = False  # whether this is such a one

    def _isend(self, tensor, to, tag):
        return self.world.post("send", tensor.detach(), to, self.context, tag)

    def _isend_awaited(self, tensor, to, tag):
        return self.world.post_in_turn(tensor.detach(), to, self.context, tag)

    def _irecv(self, out, source, tag):
        return self.world.post("recv", out.detach(), source, self.context, tag)

    def _wait(self, works):
        self.world.wait(works)

    def _wait_any(self, works):
        return self.world.wait_any(works)

    def sendrecv_combine(self, tensor, to, acc, source, op="sum", tag=0):
        if self.device.type == "cuda":
            return super().sendrecv_combine(tensor, to, acc, source, op, tag)
        self._check(tensor, to, tag, "sendrecv_combine(to")
        self._check(acc, source, tag, "sendrecv_combine(source")
        check_combine(acc, acc, op)
        start = self.now()
        combining = self._exchange(tensor, self.ranks[to], acc, self.ranks[source], COMBINE[op], tag)
        end = self.now()
        self.record("send", start, end, tensor.nbytes, self.ranks[to])
        self.record("recv", start, end, acc.nbytes, self.ranks[source])
        self.record("combine", end - combining, end, acc.nbytes)
        return acc

    def _exchange(self, tensor, to, acc, source, combine, tag) -> float:
        """Send, and combine what comes without a copy of it; returns seconds of combining.

        In pieces, so that the other rank begins with the first while the next ones are sent. All sends are through before
        the first piece is combined: `tensor` and `acc` may share memory. Receives are posted first, since the other rank may
        wait for them (`World.post_in_turn`).
        """
        seconds = 0.0

        def take(piece, incoming):
            nonlocal seconds
            start = time.monotonic()
            combine(piece, incoming)
            seconds += time.monotonic() - start

        post, context, into = self.world.post, self.context, acc if acc.is_contiguous() else acc.contiguous()
        receives = [post("recv", piece, source, context, tag, traced=False, take=take) for piece in pieces(into)]
        sends = [self.world.post_in_turn(piece, to, context, tag, traced=False) for piece in pieces(tensor.contiguous())]
        self.world.wait([*sends, *receives])
        if into is not acc:
            acc.copy_(into)
        return seconds

    def compute(self, seconds, label=""):
        if seconds < 0:
            raise ValueError(f"compute({seconds}): work takes 0 seconds or more")
        with self.work(label):
            time.sleep(seconds)

    @contextmanager
    def work(self, label="", seconds=0.0):
        if self.device.type == "cuda":
            start = mark()
            yield
            self.world.late.append(("compute", start, mark(), 0, -1, label))
        else:
            start = self.now()
            yield
            self.record("compute", start, self.now(), label=label)

    def combine(self, acc, incoming, op="sum"):
        if self.device.type == "cuda":  # a GPU works on its own, so its own clock tells when
            self.begun = mark()
        return super().combine(acc, incoming, op)

    def _combined(self, start, nbytes):
        if self.device.type == "cuda":
            self.world.late.append(("combine", self.begun, mark(), nbytes, -1, ""))
        else:
            self.world.record("combine", start, self.now(), nbytes)

    def now(self):
        return self.world.now()

    def record(self, kind, start, end, bytes=0, peer=-1, label=""):
        self.world.record(kind, start, end, bytes, peer, label)

    def start(self, fn, *args):
        world = self.world
        if world.beside is None:
            world.beside = StreamBeside(self.device) if self.device.type == "cuda" else ThreadBeside()
        if self.beside or threading.get_ident() == world.beside.thread:
            raise CommError(BESIDE)
        if self.side is None:
            self.side = ProcessCommunicator(world, self.ranks, self.context | _BESIDE)
            self.side.beside = True
        return world.beside.start(fn, self.side, args)

    def barrier(self):
        self.meet([])

    def split(self, color, key=None):
        said = self.meet([color, self.rank if key is None else key, self.world.contexts])
        colors = sorted({row[0] for row in said})
        first = 1 + max(row[2] for row in said)  # a number that no group of any of these ranks has had yet
        self.world.contexts = first + len(colors)
        members = sorted((i for i in range(self.size) if said[i][0] == color), key=lambda i: (said[i][1], i))
        group = ProcessCommunicator(self.world, [self.ranks[i] for i in members],
                                    first + colors.index(color) | self.context & _BESIDE)
        group.beside = self.beside
        return group

    def meet(self, words: list[int]) -> list[list[int]]:
        """Wait until every rank of the group has come; returns what each said, by rank.

        A dissemination all-gather (Bruck et al. 1997): after step k a rank knows the words of the 2^k ranks from itself on.
        """
        self.meetings += 1
        known = torch.tensor([words], dtype=torch.int64).reshape(1, len(words))
        here = threading.get_ident()
        self.world.meeting[here] = (self.context, self.meetings), list(self.ranks)
        while len(known) < self.size:
            step = len(known)
            count = min(step, self.size - step)
            come = torch.empty(count, len(words), dtype=torch.int64)
            source, to = self.ranks[(self.rank + step) % self.size], self.ranks[(self.rank - step) % self.size]
            received = self.world.post("recv", come, source, self.context, _MEETING, traced=False)
            sent = self.world.post("send", known[:count], to, self.context, _MEETING, traced=False)
            self.world.wait((sent, received))
            known = torch.cat([known, come])
        del self.world.meeting[here]
        return known.roll(self.rank, 0).tolist()


def pieces(tensor: torch.Tensor) -> Sequence[torch.Tensor]:
    """A contiguous tensor as it is where it is short, else in equal flat pieces of up to `_PIECE` bytes.

    Both ends of a message cut alike; where they disagree on its length, the first piece shows it.
    """
    count = -(-tensor.nbytes // _PIECE)
    return [tensor.detach()] if count <= 1 else tensor.detach().view(-1).split(-(-tensor.numel() // count))
