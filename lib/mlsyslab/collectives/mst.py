"""Collectives along a minimum spanning tree: few rounds, for short vectors.

All four walk the same tree (Chan, Heimlich, Purkayastha and van de Geijn 2007, figure 3). The ranks stand
on a line, which is cut in the middle: the root exchanges one message with a rank of the half that it is not in, and then
both halves do the same, at the same time. After L = ceil(log2 p) rounds every rank stands alone.

n is the bytes of the whole vector, c = (p-1)/p.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch

from mlsyslab.collectives.parts import Parts
from mlsyslab.comm import Communicator


def halvings(rank: int, p: int, root: int) -> Iterator[tuple[int, int, slice]]:
    """The way of `rank` down the tree: for each cut (near, far, half).

    near: the root of the segment that is cut.  far: its partner, the far end of the half that does not hold `near`, and
    from then on the root of that half.  half: the ranks of that half.
    """
    left, right = 0, p - 1
    while left < right:
        mid = (left + right) // 2
        far, half = (right, slice(mid + 1, right + 1)) if root <= mid else (left, slice(left, mid + 1))
        yield root, far, half
        if half.start <= rank < half.stop:
            root = far
        left, right = (left, mid) if rank <= mid else (mid + 1, right)


def broadcast(comm: Communicator, tensor: torch.Tensor, root: int) -> None:
    """Copy the root's `tensor` into every rank's: L (alpha + n beta)."""
    for near, far, _ in halvings(comm.rank, comm.size, root):
        if comm.rank == near:
            comm.send(tensor, far)
        elif comm.rank == far:
            comm.recv(tensor, near)


def reduce(comm: Communicator, tensor: torch.Tensor, root: int, op: str) -> None:
    """Combine every rank's `tensor` into the root's, a broadcast run backwards: L (alpha + n beta + n gamma).

    On the other ranks `tensor` is left with a partial result.
    """
    incoming = torch.empty_like(tensor)
    for near, far, _ in reversed(list(halvings(comm.rank, comm.size, root))):
        if comm.rank == near:
            comm.recv(incoming, far)
            comm.combine(tensor, incoming, op)
        elif comm.rank == far:
            comm.send(tensor, near)


def scatter(comm: Communicator, parts: Parts, root: int) -> None:
    """Bring each rank its own part of the root's parts: L alpha + c n beta.

    A rank is sent what its half of the line needs and no more, so nothing travels twice.
    """
    for near, far, half in halvings(comm.rank, comm.size, root):
        if comm.rank == near:
            comm.send(parts[half], far)
        elif comm.rank == far:
            comm.recv(parts[half], near)


def gather(comm: Communicator, parts: Parts, root: int) -> None:
    """Bring every rank's own part to the root, a scatter run backwards: L alpha + c n beta."""
    for near, far, half in reversed(list(halvings(comm.rank, comm.size, root))):
        if comm.rank == near:
            comm.recv(parts[half], far)
        elif comm.rank == far:
            comm.send(parts[half], near)
