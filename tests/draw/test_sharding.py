"""Pictures of who holds which part of a matrix."""

from __future__ import annotations

from xml.etree import ElementTree

import pytest

from mlsyslab.draw import Matrix, sharding
from mlsyslab.draw.sharding import FILLS


def parts(layout, ranks) -> list[tuple[str, float]]:
    """(class, area) of each box of a matrix of 60 x 48 px."""
    svg = ElementTree.fromstring(sharding([Matrix("W", 60, 48, layout)], "W", ranks).svg())
    return [(box.get("class"), float(box.get("width")) * float(box.get("height"))) for box in svg.findall(".//{*}rect")]


@pytest.mark.parametrize("ranks", [1, 2, 3, 4])
@pytest.mark.parametrize("layout", ["rows", "columns"])
def test_ranks_share_a_cut_matrix_evenly(layout, ranks):
    assert parts(layout, ranks) == [(FILLS[rank], pytest.approx(60 * 48 / ranks)) for rank in range(ranks)]


@pytest.mark.parametrize("ranks", [2, 3, 4])
def test_a_summand_has_the_size_of_the_whole(ranks):
    assert sorted(parts("partial", ranks)) == sorted((FILLS[rank], 60 * 48) for rank in range(ranks))


def test_what_one_rank_holds_and_what_all_hold():
    assert parts(1, 2) == [(FILLS[1], 60 * 48)]
    assert parts("replicated", 2) == [("quiet", 60 * 48)]


@pytest.mark.parametrize(("layout", "ranks", "told"), [("diagonal", 2, "'rows', 'columns'"), (2, 2, "0 … 1"),
                                                       ("rows", 5, "1 to 4")])
def test_what_cannot_be_drawn_is_refused(layout, ranks, told):
    with pytest.raises(ValueError, match=told):
        parts(layout, ranks)
