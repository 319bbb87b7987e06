"""All-to-all, and the barrier: every rank has something to say to every other."""

from __future__ import annotations

import torch

from mlsyslab.collectives.parts import Parts
from mlsyslab.comm import Communicator


def pairwise(comm: Communicator, given: Parts, taken: Parts) -> None:
    """All-to-all by direct messages, for long vectors: (p-1) alpha + (p-1)/p n beta.

    In step k rank r sends to r+k and receives from r-k, so no two messages of a step meet at a rank.
    given: part j goes to rank j.  taken: part i is filled by rank i.
    """
    p, rank = comm.size, comm.rank
    taken[rank].copy_(given[rank])
    for k in range(1, p):
        to, source = (rank + k) % p, (rank - k) % p
        comm.sendrecv(given[to], to, taken[source], source)


def dissemination(comm: Communicator) -> None:
    """A barrier in ceil(log2 p) rounds of empty messages (Hensgen, Finkel and Manber 1988).

    After round k a rank has heard, directly or through others, of the 2^(k+1) - 1 ranks before it.
    """
    p, rank = comm.size, comm.rank
    word, heard = torch.empty(0), torch.empty(0)
    distance = 1
    while distance < p:
        comm.sendrecv(word, (rank + distance) % p, heard, (rank - distance) % p)
        distance *= 2
