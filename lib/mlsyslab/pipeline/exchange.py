"""The messages between stages, read off the schedule.

What an action gives out is sent as soon as it is there, without waiting (`isend`); what an action takes in is waited for
just before it. To whom, from whom and in which order follows from the schedule alone, and both ends read it there:

- A rank posts its receives from another rank in the order in which that rank sends, whatever the order in which it needs
  them, and always some messages ahead, so that they travel while the rank computes.
- A rank never waits for a send to end while it still has work to do. When a message comes from an action of rank b,
  whatever b needed for its actions up to that one has arrived, so those sends are done and their tensors can go.

So a schedule that is not circular cannot get stuck, whether or not the network buffers.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import torch

from mlsyslab.comm.communicator import Communicator, Work, describe
from mlsyslab.pipeline.columns import Columns, F

#: Receives under way besides the one that is waited for. With one, ZB-V waits for messages on slow links; more gain nothing.
AHEAD = 2
#: tags: the tensors themselves, and before the first of them what shape they have
TENSOR, SHAPE = 0, 1
#: a shape in a message: the number of the dtype, of dimensions, and the dimensions
DTYPES = (torch.float32, torch.float64, torch.bfloat16, torch.float16, torch.complex64, torch.complex128)
LONGEST = 10

Like = tuple[torch.Size, torch.dtype]


class _Sent(NamedTuple):
    """A send under way: the action elsewhere that takes the tensor in, and the tensor, which has to stay as it is."""

    taker: int
    tag: int
    work: Work
    tensor: torch.Tensor


@dataclass
class _Peer:
    """Another rank.

    coming: its actions whose results it sends here, in its order; the first `posted` of them have a receive.
    arriving: the receives under way, by action.  going: the sends under way, a heap by their taker.
    """

    coming: list[int]
    posted: int = 0
    arriving: dict[int, tuple[Work, torch.Tensor]] = field(default_factory=dict)
    going: list[_Sent] = field(default_factory=list)


class Exchange:
    """This rank's end of every message of a schedule. Actions are named by their number in `columns`."""

    def __init__(self, comm: Communicator, columns: Columns, like: Mapping[int, Like] | None = None):
        """like: (shape, dtype) of what each action gives out; without it, messages of the first step say so."""
        self.comm = comm
        first, last = columns.first[comm.rank], columns.first[comm.rank + 1]
        self.source: dict[int, int] = {}  # action: the action elsewhere whose result it takes in
        self.taker: dict[int, int] = {}  # action: the action elsewhere that takes its result in
        for taker in np.flatnonzero(columns.awaited >= 0).tolist():
            source = int(columns.awaited[taker])
            if first <= taker < last:
                self.source[taker] = source
            elif first <= source < last:
                self.taker[source] = taker
        self.rank_of = {i: int(columns.rank[i]) for i in (*self.source.values(), *self.taker.values())}
        coming: dict[int, list[int]] = {}
        for source in sorted(self.source.values()):
            coming.setdefault(self.rank_of[source], []).append(source)
        self.peers = {rank: _Peer(coming.get(rank, [])) for rank in set(self.rank_of.values())}
        self.forwards = {i for i in self.taker if columns.kind[i] == F}
        self.like: dict[int, Like] = dict(like or {})

    def begin(self) -> None:
        """Post the first receives of a step, as far as it is known what will come."""
        for peer in self.peers.values():
            peer.posted = 0
            self._post_ahead(peer)

    def expect(self, action: int, like: torch.Tensor) -> None:
        """What `action` takes in will have the shape and dtype of `like` (a gradient, those of the activation)."""
        source = self.source.get(action)
        if source is None:  # it comes from this rank
            return
        self.like[source] = like.shape, like.dtype
        self._post_ahead(self.peers[self.rank_of[source]])

    def receive(self, action: int) -> torch.Tensor:
        """What `action` takes in, once it is there."""
        source = self.source[action]
        peer = self.peers[self.rank_of[source]]
        while source not in peer.arriving:
            self._post(peer)
        self._post_ahead(peer, beside=source)
        work, tensor = peer.arriving.pop(source)
        work.wait()
        while peer.going and peer.going[0].taker <= source:
            heapq.heappop(peer.going).work.wait()
        return tensor

    def send(self, action: int, tensor: torch.Tensor) -> None:
        """Send the result of `action` on its way."""
        if action in self.forwards:  # what a backward gives out is like the activation that came the other way
            like = tensor.shape, tensor.dtype
            if action not in self.like:
                self._send(action, _encode(tensor).to(self.comm.device), SHAPE)
                self.like[action] = like
            elif self.like[action] != like:
                shape, dtype = self.like[action]
                expected = describe(torch.empty(shape, dtype=dtype, device="meta"))
                raise ValueError(f"the stage gives {describe(tensor)}; rank {self.rank_of[self.taker[action]]} expects "
                                 f"{expected}, as `shapes` says or as it was in the step before")
        self._send(action, tensor, TENSOR)

    def finish(self) -> None:
        """Wait until everything that was sent has been received."""
        for peer in self.peers.values():
            self.comm.wait_all([sent.work for sent in peer.going])
            peer.going.clear()

    def _send(self, action: int, tensor: torch.Tensor, tag: int) -> None:
        taker = self.taker[action]
        to = self.rank_of[taker]
        heapq.heappush(self.peers[to].going, _Sent(taker, tag, self.comm.isend(tensor, to, tag), tensor))

    def _post(self, peer: _Peer) -> None:
        """Post the next receive from a peer."""
        source = peer.coming[peer.posted]
        rank = self.rank_of[source]
        if source not in self.like:
            header = torch.empty(2 + LONGEST, dtype=torch.int64, device=self.comm.device)
            self.like[source] = _decode(self.comm.recv(header, rank, SHAPE))
        shape, dtype = self.like[source]
        tensor = torch.empty(shape, dtype=dtype, device=self.comm.device)
        peer.arriving[source] = self.comm.irecv(tensor, rank, TENSOR), tensor
        peer.posted += 1

    def _post_ahead(self, peer: _Peer, beside: int | None = None) -> None:
        """Have receives under way besides the one that is waited for, as far as it is known what will come."""
        while (len(peer.arriving) - (beside in peer.arriving) < AHEAD and peer.posted < len(peer.coming)
               and peer.coming[peer.posted] in self.like):
            self._post(peer)


def _encode(tensor: torch.Tensor) -> torch.Tensor:
    """Shape and dtype as a message."""
    if tensor.dtype not in DTYPES or tensor.dim() > LONGEST:
        raise TypeError(f"stages hand on floating-point tensors of at most {LONGEST} dimensions, not {describe(tensor)}")
    numbers = [DTYPES.index(tensor.dtype), tensor.dim(), *tensor.shape]
    return torch.tensor(numbers + [0] * (2 + LONGEST - len(numbers)), dtype=torch.int64)


def _decode(message: torch.Tensor) -> Like:
    dtype, dimensions, *shape = message.tolist()
    return torch.Size(shape[:dimensions]), DTYPES[dtype]
