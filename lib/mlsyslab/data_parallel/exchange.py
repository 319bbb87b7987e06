"""Push, sum, pull as plain messages: what a parameter server does to the links, and nothing else of it.

Whoever sends to several goes round them beginning with another one than its neighbours, so that no link has two messages
at once: round k of R pairs worker w with server (w + k) mod R.
"""

from __future__ import annotations

import torch

from mlsyslab.collectives import Parts, even_lengths
from mlsyslab.comm import Communicator


def through_servers(comm: Communicator, tensor: torch.Tensor, servers: int, colocated: bool = False) -> torch.Tensor | None:
    """The sum of all workers' tensors, on every worker; None on a rank that only serves.

    tensor: the same shape and dtype on every rank; what a server gives doesn't count.
    servers: ranks 0 … servers-1 have a shard each and no gradient.  colocated: every rank is a worker and a server.
    """
    if not colocated and not 1 <= servers < comm.size:
        raise ValueError(f"servers={servers}: of {comm.size} ranks at least one serves and at least one works")
    if colocated and servers != comm.size:
        raise ValueError(f"servers={servers}: colocated, all {comm.size} ranks serve")
    flat = tensor.detach().clone(memory_format=torch.contiguous_format).view(-1)
    parts = Parts(flat, even_lengths(len(flat), servers))
    if colocated:
        _among_all(comm, parts)
    elif comm.rank < servers:
        _serve(comm, parts[comm.rank], comm.size - servers, servers)
        return None
    else:
        _work(comm, parts, comm.size - servers)
    return flat.view(tensor.shape)


def _work(comm: Communicator, parts: Parts, workers: int) -> None:
    """Push every part to its server, then pull the sums."""
    servers, rounds = len(parts), max(workers, len(parts))
    order = [server for k in range(rounds) if (server := (comm.rank - servers + k) % rounds) < servers]
    for server in order:
        comm.send(parts[server], server)
    for server in order:
        comm.recv(parts[server], server)


def _serve(comm: Communicator, part: torch.Tensor, workers: int, servers: int) -> None:
    """Add up what the workers push, then let them have it."""
    rounds = max(workers, servers)
    order = [servers + worker for k in range(rounds) if (worker := (comm.rank - k) % rounds) < workers]
    comm.recv(part, order[0])
    incoming = torch.empty_like(part)
    for worker in order[1:]:
        comm.recv(incoming, worker)
        comm.combine(part, incoming)
    for worker in order:
        comm.send(part, worker)


def _among_all(comm: Communicator, parts: Parts) -> None:
    """Every rank is the server of its own part."""
    p, rank = comm.size, comm.rank
    incoming = torch.empty_like(parts[rank])
    for k in range(1, p):
        comm.sendrecv(parts[(rank + k) % p], (rank + k) % p, incoming, (rank - k) % p)
        comm.combine(parts[rank], incoming)
    for k in range(1, p):
        comm.sendrecv(parts[rank], (rank + k) % p, parts[(rank - k) % p], (rank - k) % p)
