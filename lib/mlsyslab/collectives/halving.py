"""Recursive halving and doubling: few rounds and little traffic, where any rank can reach any other at full speed.

Ranks meet in pairs at distance q/2, q/4, … 1 and each time halve what they still work on (Thakur, Rabenseifner and Gropp
2005). That needs q, a power of two: with p = q + e ranks, the first 2 e form e pairs, and the odd rank of a pair hands its
data to the even one and waits for the result. So there are q blocks of ranks, the first e of them pairs.

n is the bytes of the whole vector, c = (p-1)/p; costs are for p = q, others are in `cost`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from mlsyslab.collectives import mst
from mlsyslab.collectives.parts import Parts
from mlsyslab.comm import Communicator


@dataclass(frozen=True)
class Fold:
    """p ranks as q = 2^k blocks of one or two neighbours."""

    p: int

    @property
    def q(self) -> int:
        """The number of blocks: the largest power of two up to p."""
        return 1 << (self.p.bit_length() - 1)

    def first(self, block: int) -> int:
        """The rank that speaks for `block`; `first(q)` is p."""
        return block + min(block, self.p - self.q)

    def block(self, rank: int) -> int:
        """The block that `rank` belongs to."""
        return rank // 2 if rank < 2 * (self.p - self.q) else rank - (self.p - self.q)

    def spare(self, rank: int) -> bool:
        """Is `rank` the odd one of a pair, which hands its data to the rank before it and waits?"""
        return rank < 2 * (self.p - self.q) and rank % 2 == 1

    def leads_pair(self, rank: int) -> bool:
        """Is `rank` the even one of a pair, which works for the rank after it too?"""
        return rank < 2 * (self.p - self.q) and rank % 2 == 0

    def exchanges(self, rank: int) -> Iterator[tuple[int, slice, slice]]:
        """For each halving (other, mine, theirs): whom `rank` meets, the ranks of its half, the ranks of the other's."""
        block, low, high = self.block(rank), 0, self.q
        while high - low > 1:
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
    _hand_back(comm, parts, whole=False)


def all_gather(comm: Communicator, parts: Parts) -> None:
    """Bring every rank's own part to every rank: log2(p) alpha + c n beta."""
    fold, rank = Fold(comm.size), comm.rank
    if fold.spare(rank):
        comm.send(parts[rank], rank - 1)
    elif fold.leads_pair(rank):
        comm.recv(parts[rank + 1], rank + 1)
    _double(comm, parts)
    _hand_back(comm, parts, whole=True)


def all_reduce(comm: Communicator, parts: Parts, op: str) -> None:
    """Halve to reduce-scatter, double to all-gather: 2 log2(p) alpha + 2 c n beta + c n gamma (Rabenseifner)."""
    _halve(comm, parts, op)
    _double(comm, parts)
    _hand_back(comm, parts, whole=True)


def broadcast(comm: Communicator, parts: Parts, root: int) -> None:
    """Scatter along the tree, then all-gather by doubling: 2 log2(p) alpha + 2 c n beta (van de Geijn)."""
    mst.scatter(comm, parts, root)
    all_gather(comm, parts)


def reduce(comm: Communicator, parts: Parts, root: int, op: str) -> None:
    """Reduce-scatter by halving, then gather along the tree: 2 log2(p) alpha + 2 c n beta + c n gamma."""
    reduce_scatter(comm, parts, op)
    mst.gather(comm, parts, root)


def _halve(comm: Communicator, parts: Parts, op: str) -> None:
    """Fold the spare ranks in, then combine: each block ends with its own parts complete."""
    fold, rank = Fold(comm.size), comm.rank
    if fold.spare(rank):
        comm.send(parts[:], rank - 1)
        return
    room = Parts(parts.tensor.new_empty(parts.tensor.shape), parts.lengths)
    if fold.leads_pair(rank):
        comm.recv(room[:], rank + 1)
        comm.combine(parts[:], room[:], op)
    for other, mine, theirs in fold.exchanges(rank):
        comm.sendrecv(parts[theirs], other, room[mine], other)
        comm.combine(parts[mine], room[mine], op)


def _double(comm: Communicator, parts: Parts) -> None:
    """From blocks with their own parts to blocks with all parts: the halvings backwards."""
    fold = Fold(comm.size)
    if not fold.spare(comm.rank):
        for other, mine, theirs in reversed(list(fold.exchanges(comm.rank))):
            comm.sendrecv(parts[mine], other, parts[theirs], other)


def _hand_back(comm: Communicator, parts: Parts, whole: bool) -> None:
    """Give the spare ranks what they wait for: the whole, or their own part."""
    fold, rank = Fold(comm.size), comm.rank
    if fold.spare(rank):
        comm.recv(parts[:] if whole else parts[rank], rank - 1)
    elif fold.leads_pair(rank):
        comm.send(parts[:] if whole else parts[rank + 1], rank + 1)
