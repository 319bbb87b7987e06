"""Curves of losses: every method's own, in its place."""

import math
import re

import pytest

from mlsyslab.draw.training import smooth, training
from mlsyslab.pipeline.convergence import Curve


def test_a_point_is_the_mean_of_a_window():
    points = smooth([float(i) for i in range(40)], 16)
    assert points[0] == (16, 7.5) and points[-1] == (40, 31.5)
    assert [end for end, _ in points] == list(range(16, 41, 4))


def test_curves_stand_where_their_losses_are_and_names_apart():
    curves = {"flat": Curve("flat", (1.0,) * 80, 1), "also flat": Curve("also flat", (1.01,) * 80, 1),
              "away": Curve("away", (0.5,) * 40 + (math.inf,) * 40, 1)}
    picture = training(curves, "losses")
    paths = re.findall(r'class="curve c(\d)" d="M([^"]+)"', picture.svg())
    assert len(paths) == 3
    for look, d in paths[:2]:
        for point in d.split("L"):
            assert float(point.split()[1]) == pytest.approx(picture.y((1.0, 1.01)[int(look)]), abs=0.1)
    last = [float(number) for number in paths[2][1].split("L")[-1].split()]
    assert last == pytest.approx([picture.x(80), picture.y(2.0)], abs=0.1)
    names = dict(re.findall(r'class="p(\d)"[^>]*>([a-z ]+)<', picture.svg()))
    assert list(names.values()) == list(curves), "each curve's name in its colour, in order"


@pytest.mark.parametrize("curves", [{}, {"short": Curve("short", (1.0,) * 8, 1)}])
def test_too_little_to_draw_is_refused(curves):
    with pytest.raises(ValueError, match="at least one curve, and at least window=16 losses"):
        training(curves, "losses")
