"""Collectives round a ring: every link busy in every step, for long vectors.

Each rank sends to its right neighbour and receives from its left one, p-1 times, and no part is ever sent further than it
must go: the bandwidth lower bound is met (the "bucket" algorithms of Chan et al. 2007).

n is the bytes of the whole vector, c = (p-1)/p.
"""

from __future__ import annotations

from mlsyslab.collectives.parts import Parts
from mlsyslab.comm import Communicator


def all_gather(comm: Communicator, parts: Parts) -> None:
    """Bring every rank's own part to every rank: (p-1) alpha + c n beta.

    In step k a rank passes on the part that it received in step k-1; it begins with its own.
    """
    p, rank = comm.size, comm.rank
    right, left = (rank + 1) % p, (rank - 1) % p
    part = parts[rank]
    for k in range(p - 1):
        part = comm.sendrecv(part, right, parts[(rank - k - 1) % p], left)


def reduce_scatter(comm: Communicator, parts: Parts, op: str) -> None:
    """Combine every rank's parts, rank r's part on rank r: (p-1) alpha + c n (beta + gamma).

    Part r starts out at rank r+1 and goes once round; every rank that it passes adds its own to it. The other parts are
    left with partial results.
    """
    p, rank = comm.size, comm.rank
    right, left = (rank + 1) % p, (rank - 1) % p
    part = parts[left]
    for k in range(p - 1):
        part = comm.sendrecv_combine(part, right, parts[(rank - k - 2) % p], left, op)
