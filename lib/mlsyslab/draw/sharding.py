"""Which rank holds which part of each matrix in a formula such as X W = Y."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from mlsyslab.draw.picture import Picture

#: Fill of the parts of rank 0, 1, … (each part also carries its rank's number).
FILLS = ("send", "combine", "compute", "mark")
GAP, TOP, SHIFT = 16, 26, 7  # px: between what stands in the formula, above it, between the sheets of a sum


class Matrix(NamedTuple):
    """A matrix in a formula.

    rows, columns: px.  layout: "replicated" (each rank has all of it), "rows" or "columns" (each rank has its band of
    these), "partial" (each rank has a summand of the whole), or a rank (it has all, the others nothing).
    """

    name: str
    rows: float
    columns: float
    layout: str | int


def sharding(formula: Sequence[Matrix | str], title: str, ranks: int = 2) -> Picture:
    """Draw `formula`, matrices and the signs between them, with each part of a matrix marked by the rank that holds it."""
    if not 1 <= ranks <= len(FILLS):
        raise ValueError(f"sharding(ranks={ranks}): a picture tells 1 to {len(FILLS)} ranks apart")
    width = sum(_width(item, ranks) + GAP for item in formula)
    tallest = max(item.rows for item in formula if isinstance(item, Matrix)) + (ranks - 1) * SHIFT
    words = "; ".join(f"{item.name}: {_say(item)}" for item in formula if isinstance(item, Matrix))
    picture = Picture(width, TOP + tallest + 4, title, words)
    x, middle = GAP / 2, TOP + tallest / 2
    for item in formula:
        if isinstance(item, Matrix):
            _draw(picture, item, x, middle - item.rows / 2, ranks)
            picture.text(x + item.columns / 2, middle - tallest / 2 - 8, item.name, "bold mid")
        else:
            picture.text(x + _width(item, ranks) / 2, middle + 5, item, "mid")
        x += _width(item, ranks) + GAP
    return picture


def _width(item: Matrix | str, ranks: int) -> float:
    if isinstance(item, str):
        return 8 * len(item)
    return item.columns + ((ranks - 1) * SHIFT if item.layout == "partial" else 0)


def _say(matrix: Matrix) -> str:
    return {"replicated": "all of it on each rank", "rows": "a band of rows on each rank",
            "columns": "a band of columns on each rank", "partial": "a summand on each rank"}.get(
                matrix.layout, f"on rank {matrix.layout} only")


def _draw(picture: Picture, matrix: Matrix, x: float, y: float, ranks: int) -> None:
    name, rows, columns, layout = matrix
    if layout == "replicated":
        _box(picture, x, y, columns, rows, "quiet", "all")
    elif layout == "rows":
        for rank in range(ranks):
            _box(picture, x, y + rank * rows / ranks, columns, rows / ranks, FILLS[rank], str(rank))
    elif layout == "columns":
        for rank in range(ranks):
            _box(picture, x + rank * columns / ranks, y, columns / ranks, rows, FILLS[rank], str(rank))
    elif layout == "partial":
        for rank in reversed(range(ranks)):
            shift = rank * SHIFT
            picture.rect(x + shift, y + shift - (ranks - 1) * SHIFT / 2, columns, rows, FILLS[rank])
        signs = " + ".join(map(str, range(ranks)))
        picture.text(x + columns / 2, y + rows / 2 + 1, signs, "mid")
    elif layout in range(ranks):
        _box(picture, x, y, columns, rows, FILLS[layout], str(layout))
    else:
        raise ValueError(f"Matrix({name!r}, layout={layout!r}): a layout is 'replicated', 'rows', 'columns', 'partial' or a "
                         f"rank, 0 … {ranks - 1}")


def _box(picture: Picture, x: float, y: float, width: float, height: float, fill: str, label: str) -> None:
    picture.rect(x, y, width, height, fill)
    picture.text(x + width / 2, y + height / 2 + 4, label, "mid")
