"""What each rank sends and combines: closed forms, rank by rank, for parts of any lengths.

`cost` says how long a collective takes; this says what its trace must hold, message for message.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import accumulate

from mlsyslab.collectives.cost import known, rounds
from mlsyslab.collectives.halving import Fold
from mlsyslab.collectives.hierarchical import Layout
from mlsyslab.collectives.parts import even_lengths


@dataclass(frozen=True)
class Count:
    """What one rank does: messages and bytes that it sends, bytes that it combines."""

    messages: int = 0
    sent: int = 0
    combined: int = 0

    def __add__(self, other: Count) -> Count:
        return Count(self.messages + other.messages, self.sent + other.sent, self.combined + other.combined)


def counts(op: str, algorithm: str, lengths: Sequence[int], width: int = 1, root: int = 0,
           nodes: Sequence[int] | None = None) -> list[Count]:
    """What each rank of `collectives.<op>(…, algorithm=…)` sends and combines.

    lengths: the rows of each rank's part; `even_lengths(rows, p)` where the operation cuts by itself. What is whole before
        and after (broadcast, reduce, all_reduce) is cut by elements: `even_lengths(tensor.numel(), p)`.
    width: bytes a row.  root: where the operation has one.  nodes: the node of each rank, for "hierarchical".
    """
    p = len(lengths)
    known(op, algorithm)
    if not 0 <= root < p:
        raise ValueError(f"root={root}: there is no rank {root}; ranks are 0 … {p - 1}")
    if algorithm == "hierarchical":
        by_rank = _HIERARCHICAL[op](list(lengths), root, Layout([0] * p if nodes is None else list(nodes)))
    else:
        by_rank = _COUNTS[op, algorithm](list(lengths), root)
    return [Count(count.messages, count.sent * width, count.combined * width) for count in by_rank]


Counts = list[Count]
Group = tuple[list[int], Counts]  # some ranks, and what each of them does


def _sum(*several: Counts) -> Counts:
    """One after the other."""
    return [sum(counts, Count()) for counts in zip(*several, strict=True)]


# -- along the tree ---------------------------------------------------------------------------------------------------


@cache
def tree(p: int, root: int) -> tuple[tuple[int, int, int], ...]:
    """For each rank (children, first, last): how many it hands on to; it and all below it are ranks first … last-1."""
    if p == 1:
        return ((0, 0, 1),)
    left = (p + 1) // 2
    right = p - left
    lower = tree(left, root if root < left else 0)
    upper = tree(right, root - left if root >= left else right - 1)
    ranks = [*lower, *((children, first + left, last + left) for children, first, last in upper)]
    ranks[root] = ranks[root][0] + 1, 0, p
    return tuple(ranks)


def _mst_broadcast(lengths: list[int], root: int = 0) -> Counts:
    n = sum(lengths)
    return [Count(children, children * n) for children, _, _ in tree(len(lengths), root)]


def _mst_reduce(lengths: list[int], root: int = 0) -> Counts:
    n = sum(lengths)
    return [Count(int(rank != root), n * (rank != root), children * n)
            for rank, (children, _, _) in enumerate(tree(len(lengths), root))]


def _mst_scatter(lengths: list[int], root: int = 0) -> Counts:
    return [Count(children, sum(lengths[first:last]) - lengths[rank])
            for rank, (children, first, last) in enumerate(tree(len(lengths), root))]


def _mst_gather(lengths: list[int], root: int = 0) -> Counts:
    return [Count() if rank == root else Count(1, sum(lengths[first:last]))
            for rank, (_, first, last) in enumerate(tree(len(lengths), root))]


# -- round the ring ---------------------------------------------------------------------------------------------------


def _ring_all_gather(lengths: list[int], root: int = 0) -> Counts:
    """A rank sends every part but that of its right neighbour, where the part ends its way."""
    p, n = len(lengths), sum(lengths)
    return [Count(p - 1, n - lengths[(rank + 1) % p]) for rank in range(p)]


def _ring_reduce_scatter(lengths: list[int], root: int = 0) -> Counts:
    """A rank sends every part but its own, and combines every part but that of its left neighbour, which begins with it."""
    p, n = len(lengths), sum(lengths)
    return [Count(p - 1, n - lengths[rank], n - lengths[rank - 1]) for rank in range(p)]


def _ring_all_reduce(lengths: list[int], root: int = 0) -> Counts:
    return _sum(_ring_reduce_scatter(lengths), _ring_all_gather(lengths))


# -- halving and doubling ---------------------------------------------------------------------------------------------


def _halved(lengths: list[int], reducing: bool) -> Counts:
    """The exchanges of blocks: at distance d a block's group of d blocks is kept, its sibling of d blocks is not."""
    fold, before = Fold(len(lengths)), [0, *accumulate(lengths)]

    def rows(group: int, d: int) -> int:
        return before[fold.first((group + 1) * d)] - before[fold.first(group * d)]

    distances = [1 << i for i in range(rounds(fold.q))]
    by_rank = []
    for rank in range(len(lengths)):
        block = fold.block(rank)
        kept = sum(rows(block // d, d) for d in distances)
        given = sum(rows(block // d ^ 1, d) for d in distances)
        exchanged = Count(len(distances), given, kept) if reducing else Count(len(distances), kept)
        by_rank.append(Count() if fold.spare(rank) else exchanged)
    return by_rank


def _folded(lengths: list[int], whole: bool, reducing: bool = False) -> Counts:
    """A spare rank hands the whole, or its part, to its partner, who may combine it."""
    fold, n = Fold(len(lengths)), sum(lengths)
    return [Count(1, n if whole else own) if fold.spare(rank) else
            Count(0, 0, n) if reducing and fold.leads_pair(rank) else Count() for rank, own in enumerate(lengths)]


def _handed_back(lengths: list[int], whole: bool) -> Counts:
    """Its partner hands it the whole, or its part."""
    p, n = len(lengths), sum(lengths)
    return [Count(1, n if whole else lengths[rank + 1]) if Fold(p).leads_pair(rank) else Count() for rank in range(p)]


def _halving_all_gather(lengths: list[int], root: int = 0) -> Counts:
    return _sum(_folded(lengths, whole=False), _halved(lengths, reducing=False), _handed_back(lengths, whole=True))


def _halving_reduce_scatter(lengths: list[int], root: int = 0) -> Counts:
    return _sum(_folded(lengths, whole=True, reducing=True), _halved(lengths, reducing=True),
                _handed_back(lengths, whole=False))


def _halving_all_reduce(lengths: list[int], root: int = 0) -> Counts:
    return _sum(_folded(lengths, whole=True, reducing=True), _halved(lengths, reducing=True),
                _halved(lengths, reducing=False), _handed_back(lengths, whole=True))


def _doubling_all_reduce(lengths: list[int], root: int = 0) -> Counts:
    fold, n = Fold(len(lengths)), sum(lengths)
    k = rounds(fold.q)
    exchanged = [Count() if fold.spare(rank) else Count(k, k * n, k * n) for rank in range(fold.p)]
    return _sum(_folded(lengths, whole=True, reducing=True), exchanged, _handed_back(lengths, whole=True))


# -- all-to-all -------------------------------------------------------------------------------------------------------


def _pairwise(lengths: list[int], root: int = 0) -> Counts:
    p, n = len(lengths), sum(lengths)
    return [Count(p - 1, n - own) for own in lengths]


def _bruck(lengths: list[int], root: int = 0) -> Counts:
    """In round k those slots i move that have bit k set; at rank r they hold what is for r + i without its lower bits."""
    p, by_rank = len(lengths), []
    for rank in range(p):
        moved = [lengths[(rank + (i >> k << k)) % p] for k in range(rounds(p)) for i in range(p) if i >> k & 1]
        by_rank.append(Count(rounds(p), sum(moved)))
    return by_rank


# -- two levels: the same within nodes and along lanes ----------------------------------------------------------------


def _spread(p: int, groups: Iterable[Group]) -> Counts:
    """What groups of ranks do, each group in its own order, by rank of the whole."""
    by_rank = [Count()] * p
    for ranks, counts in groups:
        for rank, count in zip(ranks, counts, strict=True):
            by_rank[rank] += count
    return by_rank


def _within(layout: Layout, of_lanes: list[int], stage: Callable[[list[int]], Counts]) -> list[Group]:
    """`stage` in every node, on a part for each lane's rank and empty ones for the ranks that lean."""
    return [(ranks, stage(of_lanes + [0] * (len(ranks) - layout.lanes))) for ranks in layout.members]


def _across(layout: Layout, of_lanes: list[list[int]], stage: Callable[[list[int]], Counts]) -> list[Group]:
    """`stage` along every lane, on a part for each node."""
    return [([ranks[lane] for ranks in layout.members], stage(parts)) for lane, parts in enumerate(of_lanes)]


def _shares(lengths: list[int], layout: Layout) -> tuple[list[int], list[list[int]]]:
    """The whole cut evenly: the part of each lane, and that again for each node."""
    shares = even_lengths(sum(lengths), layout.lanes)
    return shares, [even_lengths(share, len(layout.members)) for share in shares]


def _served(lengths: list[int], layout: Layout) -> tuple[list[int], list[list[int]]]:
    """The ranks' own parts: all that each lane works for, and that for each node."""
    by_node = [[sum(lengths[rank] for rank in ranks) for ranks in layout.served(lane)] for lane in range(layout.lanes)]
    return [sum(parts) for parts in by_node], by_node


def _two_level_all_reduce(lengths: list[int], root: int, layout: Layout) -> Counts:
    of_lanes, by_node = _shares(lengths, layout)
    return _spread(len(lengths), _within(layout, of_lanes, _ring_all_reduce) + _across(layout, by_node, _ring_all_reduce))


def _two_level_broadcast(lengths: list[int], root: int, layout: Layout) -> Counts:
    of_lanes, by_node = _shares(lengths, layout)
    node, at = layout.place(root)
    first = _within(layout, of_lanes, lambda parts: _mst_scatter(parts, at % len(parts)))[node]
    across = _across(layout, by_node, lambda parts: _mst_broadcast(parts, node))
    return _spread(len(lengths), [first, *across, *_within(layout, of_lanes, _ring_all_gather)])


def _two_level_reduce(lengths: list[int], root: int, layout: Layout) -> Counts:
    of_lanes, by_node = _shares(lengths, layout)
    node, at = layout.place(root)
    across = _across(layout, by_node, lambda parts: _mst_reduce(parts, node))
    last = _within(layout, of_lanes, lambda parts: _mst_gather(parts, at % len(parts)))[node]
    return _spread(len(lengths), [*_within(layout, of_lanes, _ring_reduce_scatter), *across, last])


def _two_level_all_gather(lengths: list[int], root: int, layout: Layout) -> Counts:
    of_lanes, by_node = _served(lengths, layout)
    leaning = [([rank], [Count(1, lengths[rank])]) for ranks in layout.members for rank in ranks[layout.lanes:]]
    across = _across(layout, by_node, _ring_all_gather)
    return _spread(len(lengths), [*leaning, *across, *_within(layout, of_lanes, _ring_all_gather)])


def _two_level_reduce_scatter(lengths: list[int], root: int, layout: Layout) -> Counts:
    of_lanes, by_node = _served(lengths, layout)
    across = _across(layout, by_node, _ring_reduce_scatter)
    back = [([own], [Count(1, lengths[rank])])
            for lane in range(layout.lanes) for own, *leaning in layout.served(lane) for rank in leaning]
    return _spread(len(lengths), [*_within(layout, of_lanes, _ring_reduce_scatter), *across, *back])


def _two_level_tree(stage: Callable[..., Counts], lengths: list[int], root: int, layout: Layout) -> Counts:
    """A scatter or gather between the nodes' leaders, and one in each node."""
    node, at = layout.place(root)
    leaders = [root if j == node else ranks[0] for j, ranks in enumerate(layout.members)]
    between = stage([sum(lengths[rank] for rank in ranks) for ranks in layout.members], node)
    inside = [(ranks, stage([lengths[rank] for rank in ranks], at if j == node else 0))
              for j, ranks in enumerate(layout.members)]
    return _spread(len(lengths), [(leaders, between), *inside])


# -- the table --------------------------------------------------------------------------------------------------------


_COUNTS: dict[tuple[str, str], Callable[[list[int], int], Counts]] = {
    ("broadcast", "mst"): _mst_broadcast,
    ("broadcast", "ring"): lambda parts, root: _sum(_mst_scatter(parts, root), _ring_all_gather(parts)),
    ("broadcast", "halving"): lambda parts, root: _sum(_mst_scatter(parts, root), _halving_all_gather(parts)),
    ("reduce", "mst"): _mst_reduce,
    ("reduce", "ring"): lambda parts, root: _sum(_ring_reduce_scatter(parts), _mst_gather(parts, root)),
    ("reduce", "halving"): lambda parts, root: _sum(_halving_reduce_scatter(parts), _mst_gather(parts, root)),
    ("scatter", "mst"): _mst_scatter,
    ("gather", "mst"): _mst_gather,
    ("all_gather", "mst"): lambda parts, root: _sum(_mst_gather(parts), _mst_broadcast(parts)),
    ("all_gather", "ring"): _ring_all_gather,
    ("all_gather", "halving"): _halving_all_gather,
    ("reduce_scatter", "mst"): lambda parts, root: _sum(_mst_reduce(parts), _mst_scatter(parts)),
    ("reduce_scatter", "ring"): _ring_reduce_scatter,
    ("reduce_scatter", "halving"): _halving_reduce_scatter,
    ("all_reduce", "mst"): lambda parts, root: _sum(_mst_reduce(parts), _mst_broadcast(parts)),
    ("all_reduce", "ring"): _ring_all_reduce,
    ("all_reduce", "halving"): _halving_all_reduce,
    ("all_reduce", "doubling"): _doubling_all_reduce,
    ("all_to_all", "bruck"): _bruck,
    ("all_to_all", "pairwise"): _pairwise,
    ("barrier", "mst"): lambda parts, root: _sum(_mst_reduce(parts), _mst_broadcast(parts)),
    ("barrier", "dissemination"): lambda parts, root: [Count(rounds(len(parts)))] * len(parts),
}

_HIERARCHICAL: dict[str, Callable[[list[int], int, Layout], Counts]] = {
    "broadcast": _two_level_broadcast,
    "reduce": _two_level_reduce,
    "scatter": lambda parts, root, layout: _two_level_tree(_mst_scatter, parts, root, layout),
    "gather": lambda parts, root, layout: _two_level_tree(_mst_gather, parts, root, layout),
    "all_gather": _two_level_all_gather,
    "reduce_scatter": _two_level_reduce_scatter,
    "all_reduce": _two_level_all_reduce,
}
