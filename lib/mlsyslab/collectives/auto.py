"""Which algorithm is cheapest here: the closed forms of `cost`, evaluated for this network, p and n."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from weakref import WeakKeyDictionary

from mlsyslab.collectives.cost import TwoLevelCost, algorithms, cost
from mlsyslab.collectives.hierarchical import Layout
from mlsyslab.comm import Communicator, Link, Network, Nodes


@dataclass(frozen=True)
class Plan:
    """A group of ranks as the cost model sees it.

    p: ranks.  link: the slowest that neighbours have.  switched: whether any pairs of ranks can talk side by side.
    nodes: the two levels, where there are two; size of the largest of `count` nodes.  lanes: size of the smallest.
    """

    p: int
    link: Link
    switched: bool
    nodes: Nodes | None = None
    count: int = 1
    lanes: int = 1

    def time(self, op: str, algorithm: str, n: float) -> float:
        """Seconds that the closed form gives for a vector of n bytes."""
        if algorithm == "hierarchical":
            inside = cost(op, algorithm, self.nodes.size * self.count, n, node=self.nodes.size).inside
            between = cost(op, algorithm, self.lanes * self.count, n, node=self.lanes).between
            return TwoLevelCost(inside, between, self.lanes).time(self.nodes)
        if algorithm in ("mst", "halving", "doubling") and self._halves_at_nodes():
            between = cost(op, algorithm, self.count, n)
            return TwoLevelCost(cost(op, algorithm, self.p, n) - between, between).time(self.nodes)
        return cost(op, algorithm, self.p, n).time(self.link)

    def candidates(self, op: str) -> list[str]:
        """The algorithms whose closed form holds here: halving wants a switch, two levels want nodes."""
        unfit = ([] if self.switched else ["halving", "doubling"]) + ([] if self.nodes else ["hierarchical"])
        return [name for name in algorithms(op) if name not in unfit]

    def _halves_at_nodes(self) -> bool:
        """Whether cutting the line in halves first parts the nodes, so that the later rounds are all inside."""
        return self.nodes is not None and self.lanes == self.nodes.size and self.count.bit_count() == 1


def plan(network: Network, ranks: Sequence[int]) -> Plan:
    """What `network` is for a group of `ranks`."""
    link = network.link(ranks)
    layout = Layout([network.node(rank) for rank in ranks])
    largest = max(map(len, layout.members))
    if len(layout.members) == 1 or largest == 1:
        return Plan(len(ranks), link, network.switched)
    inside = [network.link([ranks[i] for i in members]) for members in layout.members]
    between = network.link([ranks[members[0]] for members in layout.members])
    slowest = Link(max(link.alpha for link in inside), max(link.beta for link in inside), link.gamma)
    switched = network.switched and network.nics >= layout.lanes  # a card that ranks share is no switch
    nodes = Nodes(largest, slowest, between, network.nics)
    return Plan(len(ranks), link, switched, nodes, len(layout.members), layout.lanes)


_plans: WeakKeyDictionary[Communicator, Plan] = WeakKeyDictionary()


def choose(op: str, n: float, plan: Plan) -> str:
    """The cheapest algorithm for a vector of n bytes; of equals the first in the table."""
    return min(plan.candidates(op), key=lambda algorithm: plan.time(op, algorithm, n))


def choose_for(comm: Communicator, op: str, n: float) -> str:
    """The same for the ranks of `comm`; every rank finds the same."""
    known = _plans.get(comm)
    if known is None:
        known = _plans[comm] = plan(comm.network, comm.ranks)
    return choose(op, n, known)
