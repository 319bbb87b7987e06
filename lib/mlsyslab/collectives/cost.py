"""What a collective costs: closed forms in alpha, beta and gamma, lower bounds, and bandwidth as benchmarks report it.

The model is that of `Link` (Chan et al. 2007, section 2): a message of n bytes takes alpha + n beta, combining n bytes takes
n gamma, and a rank sends one message and receives one message at a time.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from math import ceil

from mlsyslab.collectives.halving import Fold
from mlsyslab.comm import Link, Nodes


@dataclass(frozen=True)
class Cost:
    """alpha messages one after another, beta bytes one after another, gamma bytes combined."""

    alpha: float = 0
    beta: float = 0
    gamma: float = 0

    def __add__(self, other: Cost) -> Cost:
        return Cost(self.alpha + other.alpha, self.beta + other.beta, self.gamma + other.gamma)

    def __sub__(self, other: Cost) -> Cost:
        return Cost(self.alpha - other.alpha, self.beta - other.beta, self.gamma - other.gamma)

    def time(self, link: Link) -> float:
        """Seconds on this link."""
        return self.alpha * link.alpha + self.beta * link.beta + self.gamma * link.gamma


@dataclass(frozen=True)
class TwoLevelCost:
    """What is spent inside the nodes, and what between them by `lanes` ranks of each node side by side."""

    inside: Cost
    between: Cost
    lanes: int = 1

    def time(self, network: Nodes) -> float:
        """Seconds on `network`, on which the lanes that share a card take turns."""
        turns = ceil(self.lanes / network.nics)
        link = Link(turns * network.between.alpha, turns * network.between.beta, network.gamma)
        return self.inside.time(network.inside) + self.between.time(link)


def cost(op: str, algorithm: str, p: int, n: float, root: int = 0, node: int | None = None) -> Cost | TwoLevelCost:
    """The cost of `collectives.<op>(…, algorithm=…)` on p ranks.

    n: bytes of the whole vector: what is broadcast or reduced, or all parts together.  root: where the operation has one.
    node: ranks a node, for "hierarchical", which gives a `TwoLevelCost`; p is a multiple of it.

    Equal to the simulated time for every p and root when the parts are equal (p divides the vector); "hierarchical" so with
    the root on rank 0 and a card for each rank (`nics=node`). Where ranks share a card it is a little more than simulated,
    for then some combine while others send.
    """
    known(op, algorithm)
    if p < 1 or n < 0 or not 0 <= root < p:
        raise ValueError(f"p={p}, n={n}, root={root}: p is 1 or more, n is 0 or more, root is 0 … p-1")
    if algorithm != "hierarchical":
        return _COSTS[op, algorithm](p, n, root)
    if node is None or node < 1 or p % node:
        raise ValueError(f"node={node}: the ranks a node, a divisor of p={p}")
    return _TWO_LEVEL[op](node, p // node, n)


def algorithms(op: str) -> list[str]:
    """What `op` can be done by."""
    names = [name for operation, name in _COSTS if operation == op]
    if not names:
        raise ValueError(f"op={op!r}: an operation is one of {', '.join(dict.fromkeys(name for name, _ in _COSTS))}")
    return names + ["hierarchical"] * (op in _TWO_LEVEL)


def known(op: str, algorithm: str) -> None:
    """Raise an error unless `algorithm` can do `op`."""
    if algorithm not in algorithms(op):
        raise ValueError(f"algorithm={algorithm!r}: {op} can be done by {', '.join(algorithms(op))}")


# -- along the tree ---------------------------------------------------------------------------------------------------


def rounds(p: int) -> int:
    """L = ceil(log2 p)."""
    return (p - 1).bit_length()


@cache
def scattered(p: int, root: int) -> int:
    """Parts that leave one after another on the longest way of an MST scatter: p-1 for a power of two, else p-1 or more.

    The root's side sends the other half's parts, then each half goes on from the root or from its far end.
    """
    if p == 1:
        return 0
    left = (p + 1) // 2
    right = p - left
    if root < left:
        return right + max(scattered(left, root), scattered(right, right - 1))
    return left + max(scattered(left, 0), scattered(right, root - left))


def _mst_broadcast(p: int, n: float, root: int = 0) -> Cost:
    return Cost(rounds(p), rounds(p) * n, 0)


def _mst_reduce(p: int, n: float, root: int = 0) -> Cost:
    return Cost(rounds(p), rounds(p) * n, rounds(p) * n)


def _mst_scatter(p: int, n: float, root: int = 0) -> Cost:
    return Cost(rounds(p), scattered(p, root) * n / p, 0)


# -- round the ring ---------------------------------------------------------------------------------------------------


def _ring_all_gather(p: int, n: float, root: int = 0) -> Cost:
    return Cost(p - 1, (p - 1) * n / p, 0)


def _ring_reduce_scatter(p: int, n: float, root: int = 0) -> Cost:
    return Cost(p - 1, (p - 1) * n / p, (p - 1) * n / p)


# -- halving and doubling: rank 0, which has the most parts in every exchange, is never waiting -----------------------


def _exchanged(p: int, n: float) -> Cost:
    """The exchanges of blocks, without the folding of spare ranks."""
    fold = Fold(p)
    k = rounds(fold.q)
    return Cost(k, sum(fold.first(1 << i) for i in range(k)) * n / p, 0)


def _folded(p: int, nbytes: float) -> Cost:
    """A message between the ranks of a pair, where there are pairs."""
    return Cost() if Fold(p).q == p else Cost(1, nbytes, 0)


def _halving_all_gather(p: int, n: float, root: int = 0) -> Cost:
    return _folded(p, n / p) + _exchanged(p, n) + _folded(p, n)


def _halving(p: int, n: float) -> Cost:
    folded, exchanged = _folded(p, n), _exchanged(p, n)
    return folded + exchanged + Cost(0, 0, folded.beta + exchanged.beta)


def _halving_reduce_scatter(p: int, n: float, root: int = 0) -> Cost:
    return _halving(p, n) + _folded(p, n / p)


def _halving_all_reduce(p: int, n: float, root: int = 0) -> Cost:
    return _halving(p, n) + _exchanged(p, n) + _folded(p, n)


def _doubling_all_reduce(p: int, n: float, root: int = 0) -> Cost:
    steps = rounds(Fold(p).q) + (Fold(p).q < p)
    return Cost(steps, steps * n, steps * n) + _folded(p, n)


# -- all-to-all -------------------------------------------------------------------------------------------------------


def _bruck(p: int, n: float, root: int = 0) -> Cost:
    """In round k those of p slots move whose number has bit k set."""
    return Cost(rounds(p), sum(i.bit_count() for i in range(p)) * n / p, 0)


# -- the table --------------------------------------------------------------------------------------------------------

_COSTS: dict[tuple[str, str], Callable[..., Cost]] = {
    ("broadcast", "mst"): _mst_broadcast,
    ("broadcast", "ring"): lambda p, n, root: _mst_scatter(p, n, root) + _ring_all_gather(p, n),
    ("broadcast", "halving"): lambda p, n, root: _mst_scatter(p, n, root) + _halving_all_gather(p, n),
    ("reduce", "mst"): _mst_reduce,
    ("reduce", "ring"): lambda p, n, root: _ring_reduce_scatter(p, n) + _mst_scatter(p, n, root),
    ("reduce", "halving"): lambda p, n, root: _halving_reduce_scatter(p, n) + _mst_scatter(p, n, root),
    ("scatter", "mst"): _mst_scatter,
    ("gather", "mst"): _mst_scatter,
    ("all_gather", "mst"): lambda p, n, root: _mst_scatter(p, n) + _mst_broadcast(p, n),
    ("all_gather", "ring"): _ring_all_gather,
    ("all_gather", "halving"): _halving_all_gather,
    ("reduce_scatter", "mst"): lambda p, n, root: _mst_reduce(p, n) + _mst_scatter(p, n),
    ("reduce_scatter", "ring"): _ring_reduce_scatter,
    ("reduce_scatter", "halving"): _halving_reduce_scatter,
    ("all_reduce", "mst"): lambda p, n, root: _mst_reduce(p, n) + _mst_broadcast(p, n),
    ("all_reduce", "ring"): lambda p, n, root: _ring_reduce_scatter(p, n) + _ring_all_gather(p, n),
    ("all_reduce", "halving"): _halving_all_reduce,
    ("all_reduce", "doubling"): _doubling_all_reduce,
    ("all_to_all", "bruck"): _bruck,
    ("all_to_all", "pairwise"): _ring_all_gather,
    ("barrier", "mst"): lambda p, n, root: Cost(2 * rounds(p)),
    ("barrier", "dissemination"): lambda p, n, root: Cost(rounds(p)),
}

#: (inside, between) for g ranks a node on k nodes; a lane carries n/g bytes
_TWO_LEVEL: dict[str, Callable[[int, int, float], TwoLevelCost]] = {
    "broadcast": lambda g, k, n: TwoLevelCost(_mst_scatter(g, n) + _ring_all_gather(g, n), _mst_broadcast(k, n / g), g),
    "reduce": lambda g, k, n: TwoLevelCost(_ring_reduce_scatter(g, n) + _mst_scatter(g, n), _mst_reduce(k, n / g), g),
    "scatter": lambda g, k, n: TwoLevelCost(_mst_scatter(g, n / k), _mst_scatter(k, n)),
    "gather": lambda g, k, n: TwoLevelCost(_mst_scatter(g, n / k), _mst_scatter(k, n)),
    "all_gather": lambda g, k, n: TwoLevelCost(_ring_all_gather(g, n), _ring_all_gather(k, n / g), g),
    "reduce_scatter": lambda g, k, n: TwoLevelCost(_ring_reduce_scatter(g, n), _ring_reduce_scatter(k, n / g), g),
    "all_reduce": lambda g, k, n: TwoLevelCost(_ring_reduce_scatter(g, n) + _ring_all_gather(g, n),
                                               _ring_reduce_scatter(k, n / g) + _ring_all_gather(k, n / g), g),
}


# -- what no algorithm can beat ---------------------------------------------------------------------------------------

#: of n, how much one rank must send or receive, and how much it must combine; c = (p-1)/p
_BOUNDS: dict[str, Callable[[float], tuple[float, float]]] = {
    "broadcast": lambda c: (1, 0),
    "reduce": lambda c: (1, c),
    "scatter": lambda c: (c, 0),
    "gather": lambda c: (c, 0),
    "all_gather": lambda c: (c, 0),
    "reduce_scatter": lambda c: (c, c),
    "all_reduce": lambda c: (2 * c, c),
    "all_to_all": lambda c: (c, 0),
    "barrier": lambda c: (0, 0),
}


def lower_bound(op: str, p: int, n: float) -> Cost:
    """What no algorithm can beat, each coefficient for itself (Chan et al. 2007, table of lower bounds).

    alpha: data doubles its holders at best in every round.  beta: what one rank has to send or receive.
    gamma: (p-1) n combinations, shared evenly.  n: bytes of the whole vector.
    """
    if op not in _BOUNDS:
        raise ValueError(f"op={op!r}: an operation is one of {', '.join(_BOUNDS)}")
    if p == 1:
        return Cost()
    beta, gamma = _BOUNDS[op]((p - 1) / p)
    return Cost(rounds(p), beta * n, gamma * n)


def algbw(n: float, seconds: float) -> float:
    """Algorithm bandwidth, bytes/s: the size of the problem over its time (nccl-tests, doc/PERFORMANCE.md)."""
    return n / seconds


def busbw(op: str, p: int, n: float, seconds: float) -> float:
    """Bus bandwidth, bytes/s: what a link carried if the algorithm met the lower bound (nccl-tests, doc/PERFORMANCE.md).

    It can be compared with the bandwidth of the hardware, whatever p.  n: bytes of the whole vector, all parts together.
    """
    if op == "barrier":
        raise ValueError("op='barrier': a barrier moves no data, so it has no bandwidth")
    return algbw(n, seconds) * _BOUNDS[op]((p - 1) / p)[0]
