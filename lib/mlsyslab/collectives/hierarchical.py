"""Collectives on two levels: nodes of fast links, joined by a slower network.

What can be done inside a node is done there, so that little crosses the slow network; and all ranks of a node work across
it side by side: rank i of a node talks to rank i of the others (Cho et al. 2019, "BlueConnect"). Those ranks are lane i.
There are as many lanes as the smallest node has ranks; further ranks of a larger node lean on a lane's rank in their node.
"""

from __future__ import annotations

import torch

from mlsyslab.collectives import composed, mst, ring
from mlsyslab.collectives.parts import Parts, even_lengths
from mlsyslab.comm import Communicator


class Layout:
    """Where the ranks of a group stand: on which node each, and on which lane.

    members[j]: the ranks of node j, in order.  lanes: how many ranks the smallest node has.
    by_node, by_lane: all ranks node by node, or lane by lane (and in a lane node by node).
    """

    def __init__(self, nodes: list[int]):
        self.members = [[rank for rank, at in enumerate(nodes) if at == node] for node in sorted(set(nodes))]
        self.lanes = min(map(len, self.members))
        self.by_node = [rank for ranks in self.members for rank in ranks]
        self.by_lane = [rank for lane in range(self.lanes) for ranks in self.served(lane) for rank in ranks]

    def served(self, lane: int) -> list[list[int]]:
        """For each node, the ranks that `lane` works for: the lane's own rank first, then those that lean on it."""
        return [ranks[lane::self.lanes] for ranks in self.members]

    def place(self, rank: int) -> tuple[int, int]:
        """The node of `rank`, and its place in it."""
        node = next(j for j, ranks in enumerate(self.members) if rank in ranks)
        return node, self.members[node].index(rank)


class Levels(Layout):
    """The layout as one rank sees it, with its two groups.

    inside: the ranks of its node.  across: the ranks at its place in all nodes, in the order of nodes.
    on_lane: does it work across (or does it lean)?  own: the rank of its lane in its node.  leaning: who leans on it.
    """

    def __init__(self, comm: Communicator):
        super().__init__(comm.nodes)
        self.node, self.at = self.place(comm.rank)
        self.inside = comm.split(self.node, self.at)
        self.across = comm.split(self.at, self.node)
        self.on_lane = self.at < self.lanes
        self.own, *self.leaning = self.served(self.at % self.lanes)[self.node]

    def shares(self, tensor: torch.Tensor) -> Parts:
        """`tensor` in a part for each lane, and empty ones for the node's further ranks."""
        return Parts(tensor, even_lengths(len(tensor), self.lanes) + [0] * (self.inside.size - self.lanes))

    def node_parts(self, parts: Parts) -> tuple[Parts, Parts]:
        """Parts that stand in the order of nodes: joined to one a node, and this node's to one for each of its ranks."""
        rows = dict(zip(self.by_node, parts.lengths, strict=True))
        across = Parts(parts.tensor, [sum(rows[rank] for rank in ranks) for ranks in self.members])
        return across, Parts(across[self.node], [rows[rank] for rank in self.members[self.node]])

    def lane_parts(self, parts: Parts) -> tuple[Parts, Parts]:
        """Parts that stand in the order of lanes: this lane's joined to one a node, and all to one for each rank inside."""
        rows = dict(zip(self.by_lane, parts.lengths, strict=True))
        lanes = [[sum(rows[rank] for rank in ranks) for ranks in self.served(lane)] for lane in range(self.lanes)]
        inside = Parts(parts.tensor, [sum(lane) for lane in lanes] + [0] * (self.inside.size - self.lanes))
        return Parts(inside[self.at], lanes[self.at] if self.on_lane else []), inside


def all_reduce(comm: Communicator, tensor: torch.Tensor, op: str) -> None:
    """Reduce-scatter inside, all-reduce across in each lane, all-gather inside."""
    levels = Levels(comm)
    shares = levels.shares(tensor)
    ring.reduce_scatter(levels.inside, shares, op)
    if levels.on_lane:
        mine = shares[levels.at]
        composed.all_reduce_long(levels.across, Parts(mine, even_lengths(len(mine), levels.across.size)), op)
    ring.all_gather(levels.inside, shares)


def broadcast(comm: Communicator, tensor: torch.Tensor, root: int) -> None:
    """Scatter inside the root's node, broadcast across in each lane, all-gather inside."""
    levels = Levels(comm)
    shares, (node, at) = levels.shares(tensor), levels.place(root)
    if levels.node == node:
        mst.scatter(levels.inside, shares, at)
    if levels.on_lane:
        mst.broadcast(levels.across, shares[levels.at], node)
    ring.all_gather(levels.inside, shares)


def reduce(comm: Communicator, tensor: torch.Tensor, root: int, op: str) -> None:
    """Reduce-scatter inside, reduce across in each lane, gather inside the root's node."""
    levels = Levels(comm)
    shares, (node, at) = levels.shares(tensor), levels.place(root)
    ring.reduce_scatter(levels.inside, shares, op)
    if levels.on_lane:
        mst.reduce(levels.across, shares[levels.at], node, op)
    if levels.node == node:
        mst.gather(levels.inside, shares, at)


def all_gather(comm: Communicator, parts: Parts) -> None:
    """All-gather across in each lane, then inside."""
    levels = Levels(comm)
    packed = parts.reordered(levels.by_lane)
    for rank in levels.leaning:
        theirs = packed[levels.by_lane.index(rank)]
        if comm.rank == rank:
            comm.send(theirs, levels.own)
        elif comm.rank == levels.own:
            comm.recv(theirs, rank)
    across, inside = levels.lane_parts(packed)
    if levels.on_lane:
        ring.all_gather(levels.across, across)
    ring.all_gather(levels.inside, inside)
    parts.restore(levels.by_lane, packed)


def reduce_scatter(comm: Communicator, parts: Parts, op: str) -> None:
    """Reduce-scatter inside, then across in each lane: an all-gather run backwards."""
    levels = Levels(comm)
    packed = parts.reordered(levels.by_lane)
    across, inside = levels.lane_parts(packed)
    ring.reduce_scatter(levels.inside, inside, op)
    if levels.on_lane:
        ring.reduce_scatter(levels.across, across, op)
    for rank in levels.leaning:
        theirs = packed[levels.by_lane.index(rank)]
        if comm.rank == levels.own:
            comm.send(theirs, rank)
        elif comm.rank == rank:
            comm.recv(theirs, levels.own)
    parts.restore(levels.by_lane, packed)


def scatter(comm: Communicator, parts: Parts, root: int) -> None:
    """Scatter each node's parts to one rank of it, then inside."""
    levels, leader, leaders = _led_by(comm, root)
    packed = parts.reordered(levels.by_node)
    across, inside = levels.node_parts(packed)
    if levels.at == leader:
        mst.scatter(leaders, across, levels.place(root)[0])
    mst.scatter(levels.inside, inside, leader)
    parts.restore(levels.by_node, packed)


def gather(comm: Communicator, parts: Parts, root: int) -> None:
    """Gather inside each node, then from one rank of each: a scatter run backwards."""
    levels, leader, leaders = _led_by(comm, root)
    packed = parts.reordered(levels.by_node)
    across, inside = levels.node_parts(packed)
    mst.gather(levels.inside, inside, leader)
    if levels.at == leader:
        mst.gather(leaders, across, levels.place(root)[0])
    parts.restore(levels.by_node, packed)


def _led_by(comm: Communicator, root: int) -> tuple[Levels, int, Communicator]:
    """The levels, the place in its node of this node's leader (the root, or else its first rank), and the leaders' group."""
    levels = Levels(comm)
    node, at = levels.place(root)
    leader = at if levels.node == node else 0
    return levels, leader, comm.split(int(levels.at != leader), levels.node)
