"""The pictures of the chapter on collective communication. All of them are read off runs of the library's own code."""

from __future__ import annotations

from collections.abc import Sequence

from ipywidgets import VBox

from mlsyslab.collectives import ALGORITHMS
from mlsyslab.draw.holdings import BeforeAfter, Holdings, Row
from mlsyslab.draw.watch import Watched, watch
from mlsyslab.draw.widgets import explore

#: Operations as people write them, and algorithms as the chapter calls them.
TITLES = {"all_gather": "all-gather", "reduce_scatter": "reduce-scatter", "all_reduce": "all-reduce", "all_to_all": "all-to-all"}
NAMES = {"mst": "tree (MST)", "ring": "ring", "halving": "halving and doubling", "hierarchical": "hierarchical",
         "pairwise": "pairwise exchange"}
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


def _step(watched: Watched, k: int) -> Holdings:
    title = f"step {k} of {watched.steps}" if k else "before"
    return Holdings(watched, k, title, f"time so far: {watched.costs[k]}")


def walk(most: int = 8) -> VBox:
    """A widget that steps through any algorithm of any operation on 2 … `most` ranks, with the time so far."""
    watched: dict[tuple, Watched] = {}

    def run(operation: str, algorithm: str, p: int) -> Watched:
        if (operation, algorithm, p) not in watched:
            watched[operation, algorithm, p] = watch(operation, algorithm, p, node=2 if algorithm == "hierarchical" else None)
        return watched[operation, algorithm, p]

    return explore(
        lambda operation, algorithm, p, step: _step(run(operation, algorithm, p), step), menus=("operation", "algorithm"),
        p=range(2, most + 1),
        operation={TITLES.get(op, op): op for op in PICTURED},
        algorithm=lambda p, operation: {NAMES.get(name, name): name for name in ALGORITHMS[operation]},
        step=lambda p, operation, algorithm: range(run(operation, algorithm, p).steps + 1))
