"""What a message costs: the alpha-beta-gamma model, on one link and on links with structure.

Every network answers one question, `route(source, to)`: how long does a message from `source` to `to` take, and which
channels does it occupy meanwhile? Two messages that want the same channel go one after the other. A rank's two ports
are always among the channels, so a rank sends one message and receives one message at a time (the single-port,
full-duplex model of Chan et al. 2007, section 2).
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple


class Route(NamedTuple):
    """The way of a message: alpha in s, beta in s/byte, the channels it holds, and when (s) the way breaks down."""

    alpha: float
    beta: float
    channels: tuple[Hashable, ...]
    fails_at: float = math.inf


def ports(source: int, to: int) -> tuple[Hashable, ...]:
    """The sender's way out and the receiver's way in."""
    return ("out", source), ("in", to)


class Network:
    """Base of everything that can stand between ranks."""

    #: seconds to combine one byte (a reduction) on a rank
    gamma: float = 0.0
    #: network cards a node, where ranks of a node share them
    nics: int = 1
    #: whether any pairs of ranks can talk side by side (a switch), or share wires (a mesh)
    switched: bool = True

    def route(self, source: int, to: int) -> Route:
        """The way from rank `source` to rank `to`."""
        raise NotImplementedError

    def node(self, rank: int) -> int:
        """The node (group of fast links) that `rank` belongs to."""
        return 0

    def link(self, ranks: Sequence[int]) -> Link:
        """One link to plan with for a group of ranks: the slowest way between neighbours in the order given."""
        if len(ranks) < 2:
            return Link(0.0, 0.0, self.gamma)
        ways = [self.route(a, b) for a, b in zip(ranks, [*ranks[1:], ranks[0]], strict=True)]
        return Link(max(way.alpha for way in ways), max(way.beta for way in ways), self.gamma)

    def check(self, size: int) -> None:
        """Raise ValueError if this network cannot hold `size` ranks."""


@dataclass(frozen=True)
class Link(Network):
    """Any two ranks joined by the same link: a message of n bytes takes alpha + n beta seconds.

    alpha: seconds before the first byte; beta: seconds a byte (1/bandwidth); gamma: seconds to combine a byte.
    """

    alpha: float = 0.0
    beta: float = 0.0
    gamma: float = 0.0

    def __post_init__(self):
        for name in ("alpha", "beta", "gamma"):
            value = getattr(self, name)
            if not (isinstance(value, (int, float)) and math.isfinite(value) and value >= 0):
                raise ValueError(f"Link({name}={value!r}): {name} is a finite number of seconds, 0 or more")

    def route(self, source: int, to: int) -> Route:
        return Route(self.alpha, self.beta, ports(source, to))

    def link(self, ranks: Sequence[int]) -> Link:
        return self

    def time(self, n: int) -> float:
        """Seconds for one message of n bytes."""
        return self.alpha + n * self.beta


@dataclass(frozen=True)
class Nodes(Network):
    """Machines of `size` ranks with fast links inside, joined by a slower network.

    Ranks 0 … size-1 are node 0, the next `size` node 1, and so on. Messages between nodes leave and enter through one of
    the node's `nics` network cards, which the ranks of a node share (rank i uses card i mod nics).
    """

    size: int
    inside: Link
    between: Link
    nics: int = 1

    def __post_init__(self):
        if self.size < 1 or self.nics < 1:
            raise ValueError(f"Nodes(size={self.size}, nics={self.nics}): both are 1 or more")

    @property
    def gamma(self) -> float:
        return self.inside.gamma

    def node(self, rank: int) -> int:
        return rank // self.size

    def route(self, source: int, to: int) -> Route:
        a, b = self.node(source), self.node(to)
        if a == b:
            return self.inside.route(source, to)
        cards = ("card out", a, source % self.size % self.nics), ("card in", b, to % self.size % self.nics)
        return Route(self.between.alpha, self.between.beta, ports(source, to) + cards)


@dataclass(frozen=True)
class Mesh(Network):
    """A grid of ranks, each wired to its neighbours: (rows, columns), (x, y, z), … ; a torus when the ends are joined.

    Ranks count row by row (the last coordinate runs fastest). A message is routed one dimension after the other and, by
    wormhole routing, holds every wire of its way for alpha + n beta; messages that share a wire wait for one another.
    """

    shape: tuple[int, ...]
    wire: Link
    torus: bool = False
    switched = False

    def __post_init__(self):
        object.__setattr__(self, "shape", tuple(self.shape))
        if not self.shape or any(not isinstance(d, int) or d < 1 for d in self.shape):
            raise ValueError(f"Mesh(shape={self.shape}): every dimension is a whole number, 1 or more")

    @property
    def gamma(self) -> float:
        return self.wire.gamma

    def check(self, size: int) -> None:
        if size > math.prod(self.shape):
            raise ValueError(f"{size} ranks don't fit a mesh of {' x '.join(map(str, self.shape))} "
                             f"= {math.prod(self.shape)} places")

    def coordinates(self, rank: int) -> tuple[int, ...]:
        """Where `rank` stands in the grid."""
        place = []
        for extent in reversed(self.shape):
            rank, coordinate = divmod(rank, extent)
            place.append(coordinate)
        return tuple(reversed(place))

    def way(self, source: int, to: int) -> list[tuple[tuple[int, ...], tuple[int, ...]]]:
        """The wires from `source` to `to`, each (from, to) in coordinates, dimension by dimension, the shorter way round."""
        here, there, wires = list(self.coordinates(source)), self.coordinates(to), []
        for axis, extent in enumerate(self.shape):
            distance = there[axis] - here[axis]
            if self.torus and 2 * abs(distance) > extent:
                distance -= math.copysign(extent, distance)
            for _ in range(int(abs(distance))):
                before = tuple(here)
                here[axis] = (here[axis] + (1 if distance > 0 else -1)) % extent
                wires.append((before, tuple(here)))
        return wires

    def route(self, source: int, to: int) -> Route:
        return Route(self.wire.alpha, self.wire.beta, ports(source, to) + tuple(self.way(source, to)))


@dataclass(frozen=True)
class _Over(Network):
    """A network that is like `base` but for its routes."""

    base: Network

    @property
    def gamma(self) -> float:
        return self.base.gamma

    @property
    def nics(self) -> int:
        return self.base.nics

    @property
    def switched(self) -> bool:
        return self.base.switched

    def check(self, size: int) -> None:
        self.base.check(size)

    def node(self, rank: int) -> int:
        return self.base.node(rank)


@dataclass(frozen=True)
class Uneven(_Over):
    """A network on which some links differ: {(source, to): Link}, or {rank: Link} for every link of that rank."""

    links: Mapping[int | tuple[int, int], Link]

    def route(self, source: int, to: int) -> Route:
        way = self.base.route(source, to)
        for key in ((source, to), source, to):
            if key in self.links:
                return way._replace(alpha=self.links[key].alpha, beta=self.links[key].beta)
        return way


@dataclass(frozen=True)
class Failing(_Over):
    """A network on which links break: {(source, to): seconds}, or {rank: seconds} for every link of that rank.

    A message that has not arrived by then never does.
    """

    fails: Mapping[int | tuple[int, int], float]

    def route(self, source: int, to: int) -> Route:
        way = self.base.route(source, to)
        times = [self.fails[key] for key in ((source, to), source, to) if key in self.fails]
        return way._replace(fails_at=min([way.fails_at, *times]))
