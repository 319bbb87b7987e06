"""All-to-all and barrier: every rank has something for every other.

n is the bytes of one rank's vector, part j of which goes to rank j.
"""

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


def bruck(comm: Communicator, given: Parts, taken: Parts) -> None:
    """All-to-all in few messages, for short vectors: L alpha + L n/2 beta for p = 2^L (Bruck et al. 1997).

    Slot i holds what has to go i ranks further. In round k the slots whose number has bit k set go 2^k ranks further, all
    in one message; after all rounds each has gone as far as its number says.
    """
    p, rank = comm.size, comm.rank
    slots = [given[(rank + i) % p] for i in range(p)]
    distance = 1
    while distance < p:
        moving = [i for i in range(p) if i & distance]
        come = [given.lengths[(rank - distance + (i & -distance)) % p] for i in moving]
        arrived = Parts(given.tensor.new_empty((sum(come), *given.tensor.shape[1:])), come)
        comm.sendrecv(torch.cat([slots[i] for i in moving]), (rank + distance) % p, arrived[:], (rank - distance) % p)
        for place, i in enumerate(moving):
            slots[i] = arrived[place]
        distance *= 2
    for i, slot in enumerate(slots):
        taken[(rank - i) % p].copy_(slot)


def dissemination(comm: Communicator) -> None:
    """A barrier of L = ceil(log2 p) rounds of empty messages: L alpha (Hensgen, Finkel and Manber 1988).

    After round k a rank has heard, directly or through others, from the 2^(k+1) - 1 ranks before it.
    """
    p, rank = comm.size, comm.rank
    word, heard = torch.empty(0), torch.empty(0)
    distance = 1
    while distance < p:
        comm.sendrecv(word, (rank + distance) % p, heard, (rank - distance) % p)
        distance *= 2
