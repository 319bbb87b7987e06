"""The pictures of the chapter on collective communication. All of them are read off runs of the library's own code."""

from __future__ import annotations

import datetime
import math
import os
import platform
from collections import defaultdict
from collections.abc import Mapping, Sequence

import numpy as np
import torch
from ipywidgets import VBox

from mlsyslab.collectives import ALGORITHMS
from mlsyslab.collectives.calibrate import MeasuredLink, Points
from mlsyslab.collectives.cost import cost, lower_bound
from mlsyslab.comm import Link, Mesh
from mlsyslab.draw.holdings import BeforeAfter, Holdings, Row
from mlsyslab.draw.picture import Picture, number
from mlsyslab.draw.plot import LEFT, RIGHT, WIDTH, Curve, loglog, size_of, time_of
from mlsyslab.draw.watch import Watched, watch
from mlsyslab.draw.widgets import explore

#: Operations as people write them, and algorithms as the chapter calls them.
TITLES = {"all_gather": "all-gather", "reduce_scatter": "reduce-scatter", "all_reduce": "all-reduce",
          "all_to_all": "all-to-all"}
NAMES = {"mst": "tree (MST)", "ring": "ring", "halving": "halving and doubling", "hierarchical": "hierarchical",
         "doubling": "doubling", "pairwise": "pairwise exchange", "bruck": "Bruck"}
PICTURED = ("broadcast", "reduce", "scatter", "gather", "all_gather", "reduce_scatter", "all_reduce", "all_to_all")


def operations(names: Sequence[str] = PICTURED, p: int = 4) -> Row:
    """What every rank holds before and after each operation."""
    return Row([BeforeAfter(watch(op, next(iter(ALGORITHMS[op])), p), TITLES.get(op, op)) for op in names])


def steps(op: str, algorithm: str, p: int = 4, *, root: int = 0, chunks: int | None = None, start: bool = True) -> Row:
    """Every step of one run: the messages, what each rank holds after them, and the time so far.

    The arguments are those of `watch`.  start: whether to show what ranks hold before the first message.
    """
    watched = watch(op, algorithm, p, root=root, chunks=chunks)
    return Row([_step(watched, k) for k in range(0 if start else 1, watched.steps + 1)])


def _step(watched: Watched, k: int, steady: bool = False) -> Holdings:
    title = f"step {k} of {watched.steps}" if k else "before"
    return Holdings(watched, k, title, f"time so far: {watched.costs[k]}", steady)


def walk(most: int = 8) -> VBox:
    """A widget that steps through any algorithm of any operation on 2 … `most` ranks, with the time so far."""
    watched: dict[tuple, Watched] = {}

    def run(operation: str, algorithm: str, p: int) -> Watched:
        if (operation, algorithm, p) not in watched:
            node = 2 if algorithm == "hierarchical" else None
            watched[operation, algorithm, p] = watch(operation, algorithm, p, node=node)
        return watched[operation, algorithm, p]

    return explore(
        lambda operation, algorithm, p, step: _step(run(operation, algorithm, p), step, steady=True),
        menus=("operation", "algorithm"),
        start={"operation": "all_reduce", "algorithm": "ring", "p": 4, "step": 1},
        operation={TITLES.get(op, op): op for op in PICTURED},
        p=range(2, most + 1),
        algorithm=lambda operation, p: {NAMES[name]: name for name in ALGORITHMS[operation]},
        step=lambda operation, p, algorithm: range(run(operation, algorithm, p).steps + 1))


# -- what it costs ----------------------------------------------------------------------------------------------------


class Markdown(str):
    """Markdown that a notebook and the book render."""

    def _repr_markdown_(self) -> str:
        return str(self)


def cost_table(operations: Sequence[str] = PICTURED) -> Markdown:
    """The closed forms of all algorithms, recovered from the numbers that `collectives.cost` gives."""
    rows = ["| operation | algorithm | time on $p = 2^k$ ranks |", "|---|---|---|"]
    for op in operations:
        rows += [f"| {TITLES.get(op, op)} | {NAMES[algorithm]} | ${closed_form(op, algorithm)}$ |"
                 for algorithm in flat_algorithms(op)]
        rows.append(f"| | *lower bound* | ${closed_form(op)}$ |")
    return Markdown("\n".join(rows))


def closed_form(op: str, algorithm: str | None = None) -> str:
    """A cost in LaTeX, as a sum of L = log2 p, p-1 and c = (p-1)/p: the one that agrees with `cost` for p = 2 … 1024.

    algorithm: None for the lower bound.
    """
    ps = [2**k for k in range(1, 11)]
    costs = [lower_bound(op, p, 1.0) if algorithm is None else cost(op, algorithm, p, 1.0) for p in ps]
    terms = []
    for unit, symbol in (("alpha", r"\alpha"), ("beta", r"n\beta"), ("gamma", r"n\gamma")):
        basis = {"L": [math.log2(p) for p in ps], "(p-1)": [p - 1 for p in ps]} if unit == "alpha" else {
            "L": [math.log2(p) for p in ps], "c": [(p - 1) / p for p in ps], "": [1.0] * len(ps)}
        wanted = np.array([getattr(c, unit) for c in costs])
        found = np.linalg.lstsq(np.array(list(basis.values())).T, wanted, rcond=None)[0].round(6)
        if not np.allclose(np.array(list(basis.values())).T @ found, wanted):
            raise ValueError(f"the {unit} of {op} by {algorithm} is no sum of {', '.join(basis)}")
        factors = {1: "", 0.5: r"\tfrac12 "}
        parts = [(factors.get(k, f"{k:g}") if name else f"{k:g}") + name for k, name in zip(found, basis, strict=True) if k]
        if parts:
            sum_of = " + ".join(parts)
            shown = "" if sum_of == "1" else f"({sum_of})" if len(parts) > 1 else sum_of
            terms.append(f"{shown}\\,{symbol}" if shown else symbol)
    return " + ".join(terms)


#: Networks that readers meet. alpha: what NCCL plans with for a step of a ring (hwLatencies in its src/graph/tuning.cc,
#: Simple protocol), and for TCP what a message takes from kernel to kernel; beta: the bandwidth one way, by the data sheets.
#: gamma: to combine a byte an accelerator reads two and writes one, and an H100's memory moves 3.35 TB/s.
_GAMMA = 3 / 3.35e12
NETWORKS = {"NVLink 4": Link(3.4e-6, 1 / 450e9, _GAMMA), "InfiniBand NDR": Link(14e-6, 1 / 50e9, _GAMMA),
            "Ethernet, TCP": Link(50e-6, 8 / 25e9, _GAMMA)}
SIZES = [2**k for k in range(8, 31)]


def crossover(op: str = "all_reduce", p: int = 8, link: Link = NETWORKS["InfiniBand NDR"], *,
              algorithms: Sequence[str] | None = None, sizes: Sequence[int] = SIZES,
              limits: tuple[float, float] | None = None) -> Picture:
    """Time over vector length for each algorithm, the stretch where each is the fastest, and the lower bound.

    algorithms: by default all that take ranks to be equally near.  sizes: bytes.  limits: seconds that the axis spans.
    """
    flat = flat_algorithms(op) if algorithms is None else list(algorithms)
    times = {name: [(n, cost(op, name, p, n).time(link)) for n in sizes] for name in flat}
    curves = [Curve(short_name(name), times[name], look=look_of(name)) for name in flat]
    curves.append(Curve("lower bound", [(n, lower_bound(op, p, n).time(link)) for n in sizes], look=4))
    won = []
    for name in flat:
        best = [n for i, n in enumerate(sizes) if min(flat, key=lambda other: times[other][i][1]) == name]
        if best:
            halfway = (sizes[1] / sizes[0]) ** 0.5  # to the next length, where another may be the fastest
            won.append((max(best[0] / halfway, sizes[0]), min(best[-1] * halfway, sizes[-1]),
                        look_of(name), short_name(name)))
    said = "; ".join(f"{name} is fastest from {size_of(first)} to {size_of(last)}" for first, last, _, name in won)
    return loglog(curves, f"{TITLES.get(op, op)} on {p} ranks", said, won=won, limits=limits)


def explorer(op: str = "all_reduce", ps: Sequence[int] = (2, 4, 8, 16, 64, 256, 1024),
             lengths: Sequence[int] = SIZES[2::2]) -> VBox:
    """A widget: choose a network, the number of ranks and a length, and read off who wins there and by how much."""

    def limits(link: Link) -> tuple[float, float]:
        """The same for every p, so that the curves can be seen to move."""
        return link.alpha, max(cost(op, name, max(ps), SIZES[-1]).time(link) for name in flat_algorithms(op))

    return explore(lambda network, p, n: reading(op, p, network, n), menus=("network",),
                   above=lambda network, p: crossover(op, p, network, sizes=SIZES[::2], limits=limits(network)),
                   start={"p": 8, "n": 2**20}, network=NETWORKS, p=ps, n={size_of(n): n for n in lengths})


def reading(op: str, p: int, link: Link, n: int) -> Picture:
    """A pointer at n, to stand below the plot of a crossover, and the times there, the best first."""
    times = sorted((cost(op, name, p, n).time(link), short_name(name)) for name in flat_algorithms(op))
    said = " · ".join(f"{name} {time_of(t)}" for t, name in times)
    picture = Picture(WIDTH, 48, f"n = {size_of(n)}: {said}")
    x = LEFT + math.log(n / SIZES[0]) / math.log(SIZES[-1] / SIZES[0]) * (WIDTH - LEFT - RIGHT)
    picture._add("path", "tip", d=f"M{number(x)} 0l6 10h-12z")
    picture.text(LEFT, 26, f"n = {size_of(n)}, the fastest first:", "bold")
    picture.text(LEFT, 42, said)
    return picture


def flat_algorithms(op: str) -> list[str]:
    """The algorithms that take all ranks to be equally near."""
    return [name for name in ALGORITHMS[op] if name != "hierarchical"]


def look_of(algorithm: str) -> int:
    """Colour and dash of an algorithm, the same in every plot."""
    return ("mst", "ring", "halving", "doubling", "pairwise", "bruck").index(algorithm) % 4


def short_name(algorithm: str) -> str:
    """An algorithm in one word."""
    return NAMES[algorithm].split(" ")[0]


# -- what was measured ------------------------------------------------------------------------------------------------

def fitted(link: MeasuredLink) -> Picture:
    """Messages of a calibrated link as they were timed, and the line alpha + n beta through them."""
    line = [(n, link.time(n)) for n, _ in link.messages]
    return loglog([Curve("α + nβ", line, look=0), Curve("", link.messages, points=True, look=0)], "Messages, timed",
                  f"a latency of {time_of(link.alpha)}", x_name="length of the message", height=280)


def compared(predicted: Mapping[str, Points], measured: Mapping[str, Points], title: str) -> Picture:
    """Times of algorithms by name: predicted as lines, measured as points."""
    curves = [Curve(short_name(name), at, look=look_of(name)) for name, at in predicted.items()]
    curves += [Curve("", at, points=True, look=look_of(name)) for name, at in measured.items()]
    return loglog(curves, title, "lines are predictions, dots are measurements")


def this_machine() -> str:
    """What a measurement depends on: processor, cores, versions, and the day."""
    return (f"{processor()}, {os.cpu_count()} cores, Python {platform.python_version()}, "
            f"PyTorch {torch.__version__.split('+')[0]}, {datetime.date.today():%d %B %Y}")


def processor() -> str:
    """The name of the processor, as Linux knows it."""
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            return next((line.split(":")[1].strip() for line in file if line.startswith("model name")), platform.machine())
    except OSError:
        return platform.machine()


# -- where ranks stand ------------------------------------------------------------------------------------------------


class _Places(Picture):
    """Ranks as circles, wires as lines."""

    def place(self, x: float, y: float, name: str, kind: str = "send", radius: float = 13) -> None:
        """A rank."""
        self.circle(x, y, radius, kind)
        self.text(x, y + 4, name, "small mid")


def ring_on_a_line(p: int = 8) -> Picture:
    """One step of a ring on ranks that are wired as a line: which message holds which wire.

    The wires are those that `Mesh` routes each message over; a wire carries a message each way.
    """
    mesh, apart, left, middle = Mesh((p,), Link()), 74, 40, 70
    users: dict[tuple[int, int], list[int]] = defaultdict(list)
    for rank in range(p):
        for here, there in mesh.way(rank, (rank + 1) % p):
            users[here[0], there[0]].append(rank)
    shared = max(len(ranks) for ranks in users.values())
    picture = _Places(2 * left + (p - 1) * apart, 140, "a ring on a line",
                      f"{len(users)} wires, each carries {shared} message{'s' if shared > 1 else ''} in a step")
    for (here, there), ranks in users.items():
        way = 1 if there > here else -1
        y, start = middle - 7 * way, left + here * apart + 16 * way
        picture.arrow(start, y, start + (apart - 32) * way, y)
        if way > 0 or here == p // 2:
            words = f"from {ranks[0]}" + ("" if way > 0 else ", all the way to 0")
            picture.text(start + (apart - 32) * way / 2, y + (-8 if way > 0 else 22), words, "small mid")
    for rank in range(p):
        picture.place(left + rank * apart, middle, str(rank))
    words = "each rank sends to its right neighbour, the last one to the first"
    picture.text(left + (p - 1) * apart / 2, 20, words, "soft mid")
    return picture


def clusters() -> Row:
    """Three ways to wire ranks: nodes inside a network, a two-dimensional torus, a three-dimensional mesh."""
    return Row([_nodes(), _torus(), _cube()])


def _nodes() -> Picture:
    picture = _Places(330, 190, "Nodes(4, inside, between)", "two nodes of four ranks, joined by one slow link each")
    picture.text(0, 13, "nodes of fast links", "bold")
    for node, left in enumerate((10, 190)):
        picture.rect(left, 30, 130, 120, "quiet", round=8)
        corners = [(left + 30 + 70 * (i % 2), 60 + 60 * (i // 2)) for i in range(4)]
        for i, (x1, y1) in enumerate(corners):
            for x2, y2 in corners[i + 1:]:
                picture.line(x1, y1, x2, y2)
        for i, (x, y) in enumerate(corners):
            picture.place(x, y, str(4 * node + i))
        picture.text(left + 65, 168, f"node {node}", "soft small mid")
    picture.line(140, 90, 190, 90)
    picture.text(165, 82, "slow", "soft small mid")
    return picture


def _torus() -> Picture:
    picture = _Places(250, 190, "Mesh((3, 4), wire, torus=True)", "three rows and four columns, the ends of each joined")
    picture.text(0, 13, "2-D torus", "bold")
    x, y = (lambda c: 40 + 52 * c), (lambda r: 50 + 48 * r)
    for r in range(3):
        picture.line(x(0), y(r), x(3), y(r))
        picture._add("path", "", d=f"M{x(0)} {y(r)}c-34-22 190-22 {x(3) - x(0)} 0")
    for c in range(4):
        picture.line(x(c), y(0), x(c), y(2))
        picture._add("path", "", d=f"M{x(c)} {y(0)}c24-34 24 130 0 {y(2) - y(0)}")
    for r in range(3):
        for c in range(4):
            picture.place(x(c), y(r), str(4 * r + c))
    return picture


def _cube() -> Picture:
    picture = _Places(250, 190, "Mesh((3, 3, 3), wire)", "three layers of three rows of three ranks, neighbours joined")
    picture.text(0, 13, "3-D mesh", "bold")

    def at(z: int, y: int, x: int) -> tuple[float, float]:
        return 40 + 56 * x + 22 * z, 160 - 44 * y - 17 * z

    places = [(z, y, x) for z in reversed(range(3)) for y in range(3) for x in range(3)]
    for place in places:
        for axis in range(3):
            if place[axis] < 2:
                there = (*place[:axis], place[axis] + 1, *place[axis + 1:])
                picture.line(*at(*place), *at(*there))
        picture.circle(*at(*place), 6, "send")
    return picture
