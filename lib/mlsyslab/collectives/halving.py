"""Recursive halving and doubling: few rounds and little traffic, where any ranks can talk side by side at full speed.

Ranks meet in pairs at distance q/2, q/4, … 1 and each time halve what they still work on (Thakur, Rabenseifner and Gropp
2005). That needs q to be a power of two. Of p = q + e ranks the first 2 e form e pairs, and the odd rank of a pair hands
its data to the even one and waits for the result: so there are q blocks of ranks, the first e of them pairs.

n is the bytes of the whole vector, c = (p-1)/p; costs are for p = q, others are in `cost`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch

from mlsyslab.collectives import mst
from mlsyslab.collectives.parts import Parts
from mlsyslab.comm import Communicator


@dataclass(frozen=True)
class Fold:
    """p ranks as q blocks of one or two neighbours."""

    p: int

    @property
    def q(self) -> int:
        """The number of blocks: the largest power of two up to p."""
        return 1 << (self.p.bit_length() - 1)

    @property
    def paired(self) -> int:
        """How many ranks, from 0 on, are in pairs."""
        return 2 * (self.p - self.q)

    def first(self, block: int) -> int:
        """The first rank of `block`, which speaks for it; `first(q)` is p."""
        return block + min(block, self.p - self.q)

    def block(self, rank: int) -> int:
        """The block that `rank` belongs to."""
        return rank // 2 if rank < self.paired else rank - (self.p - self.q)

    def last(self, rank: int) -> int:
        """The last rank of the block that `rank` belongs to."""
        return self.first(self.block(rank) + 1) - 1

    def leads_pair(self, rank: int) -> bool:
        """Does `rank` work for the rank after it too?"""
        return rank < self.paired and rank % 2 == 0

    def spare(self, rank: int) -> bool:
        """Does `rank` leave the work to the rank before it?"""
        return rank < self.paired and rank % 2 == 1

    def exchanges(self, rank: int) -> Iterator[tuple[int, slice, slice]]:
        """For each halving (other, mine, theirs): whom `rank` meets, the ranks of its half, the ranks of the other's."""
        block, low, high = self.block(rank), 0, self.q
        while high - low > 1 and not self.spare(rank):
            mid = (low + high) // 2
            lower, upper = (slice(self.first(a), self.first(b)) for a, b in ((low, mid), (mid, high)))
            if block < mid:
                yield self.first(block + mid - low), lower, upper
                high = mid
            else:
                yield self.first(block - (mid - low)), upper, lower
                low = mid


def reduce_scatter(comm: Communicator, parts: Parts, op: str) -> None:
    """Combine every rank's parts, rank r's part on rank r: log2(p) alpha + c n (beta + gamma)."""
    _halve(comm, parts, op)
    _hand_back(comm, parts[Fold(comm.size).last(comm.rank)])


def all_gather(comm: Communicator, parts: Parts) -> None:
    """Bring every rank's own part to every rank: log2(p) alpha + c n beta."""
    _take_in(comm, parts[Fold(comm.size).last(comm.rank)])
    _double(comm, parts)
    _hand_back(comm, parts[:])


def all_reduce(comm: Communicator, parts: Parts, op: str) -> None:
    """Reduce-scatter by halving, all-gather by doubling: 2 log2(p) alpha + 2 c n beta + c n gamma (Rabenseifner 2004)."""
    _halve(comm, parts, op)
    _double(comm, parts)
    _hand_back(comm, parts[:])


def all_reduce_whole(comm: Communicator, tensor: torch.Tensor, op: str) -> None:
    """All-reduce by exchanging whole vectors, for short ones: log2(p) (alpha + n beta + n gamma)."""
    _fold_in(comm, tensor, op)
    for other, _, _ in Fold(comm.size).exchanges(comm.rank):
        comm.sendrecv_combine(tensor, other, tensor, other, op)
    _hand_back(comm, tensor)


def broadcast(comm: Communicator, parts: Parts, root: int) -> None:
    """Scatter along the tree, then all-gather by doubling: 2 log2(p) alpha + 2 c n beta."""
    mst.scatter(comm, parts, root)
    all_gather(comm, parts)


def reduce(comm: Communicator, parts: Parts, root: int, op: str) -> None:
    """Reduce-scatter by halving, then gather along the tree: 2 log2(p) alpha + 2 c n beta + c n gamma."""
    reduce_scatter(comm, parts, op)
    mst.gather(comm, parts, root)


# -- steps ------------------------------------------------------------------------------------------------------------


def _halve(comm: Communicator, parts: Parts, op: str) -> None:
    """From vectors to blocks whose own parts are complete."""
    _fold_in(comm, parts[:], op)
    for other, mine, theirs in Fold(comm.size).exchanges(comm.rank):
        comm.sendrecv_combine(parts[theirs], other, parts[mine], other, op)


def _double(comm: Communicator, parts: Parts) -> None:
    """From blocks that have their own parts to blocks that have all: the halvings backwards."""
    for other, mine, theirs in reversed(list(Fold(comm.size).exchanges(comm.rank))):
        comm.sendrecv(parts[mine], other, parts[theirs], other)


def _fold_in(comm: Communicator, tensor: torch.Tensor, op: str) -> None:
    """Let a spare rank's vector be combined into its partner's."""
    leads = Fold(comm.size).leads_pair(comm.rank)
    given = torch.empty_like(tensor) if leads else tensor
    _take_in(comm, given)
    if leads:
        comm.combine(tensor, given, op)


def _take_in(comm: Communicator, tensor: torch.Tensor) -> None:
    """A spare rank's `tensor` goes to its partner."""
    fold, rank = Fold(comm.size), comm.rank
    if fold.spare(rank):
        comm.send(tensor, rank - 1)
    elif fold.leads_pair(rank):
        comm.recv(tensor, rank + 1)


def _hand_back(comm: Communicator, tensor: torch.Tensor) -> None:
    """The `tensor` that a spare rank waits for comes from its partner."""
    fold, rank = Fold(comm.size), comm.rank
    if fold.spare(rank):
        comm.recv(tensor, rank - 1)
    elif fold.leads_pair(rank):
        comm.send(tensor, rank + 1)
