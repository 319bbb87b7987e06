"""Collectives made of other collectives.

For short vectors of those along the tree, for long vectors of those round the ring (Chan et al. 2007).
L = ceil(log2 p), c = (p-1)/p, n is the bytes of the whole vector.
"""

from __future__ import annotations

import torch

from mlsyslab.collectives import mst, ring
from mlsyslab.collectives.parts import Parts
from mlsyslab.comm import Communicator

# -- short vectors: few rounds ----------------------------------------------------------------------------------------


def all_gather_short(comm: Communicator, parts: Parts) -> None:
    """Gather, then broadcast: 2 L alpha + (L + c) n beta."""
    mst.gather(comm, parts, root=0)
    mst.broadcast(comm, parts[:], root=0)


def reduce_scatter_short(comm: Communicator, parts: Parts, op: str) -> None:
    """Reduce, then scatter: 2 L alpha + (L + c) n beta + L n gamma."""
    mst.reduce(comm, parts[:], 0, op)
    mst.scatter(comm, parts, root=0)


def all_reduce_short(comm: Communicator, tensor: torch.Tensor, op: str) -> None:
    """Reduce, then broadcast: 2 L alpha + 2 L n beta + L n gamma."""
    mst.reduce(comm, tensor, 0, op)
    mst.broadcast(comm, tensor, root=0)


# -- long vectors: every link busy ------------------------------------------------------------------------------------


def broadcast_long(comm: Communicator, parts: Parts, root: int) -> None:
    """Scatter, then all-gather: (L + p-1) alpha + 2 c n beta."""
    mst.scatter(comm, parts, root)
    ring.all_gather(comm, parts)


def reduce_long(comm: Communicator, parts: Parts, root: int, op: str) -> None:
    """Reduce-scatter, then gather: (p-1 + L) alpha + 2 c n beta + c n gamma."""
    ring.reduce_scatter(comm, parts, op)
    mst.gather(comm, parts, root)


def all_reduce_long(comm: Communicator, parts: Parts, op: str) -> None:
    """Reduce-scatter, then all-gather: 2 (p-1) alpha + 2 c n beta + c n gamma."""
    ring.reduce_scatter(comm, parts, op)
    ring.all_gather(comm, parts)
