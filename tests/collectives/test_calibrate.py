"""Calibration finds the link that the points were made with, and measures real ranks."""

import numpy as np
import pytest

from mlsyslab import collectives
from mlsyslab.collectives import calibrate, cost, measure
from mlsyslab.collectives.calibrate import SIZES, MeasuredLink, fit


@pytest.mark.parametrize(("alpha", "beta"), [(1e-5, 1e-9), (2e-6, 1e-11), (0.0, 1e-9), (1e-5, 0.0)])
def test_the_fit_finds_the_line_that_the_points_lie_on(alpha, beta):
    found = fit([(n, alpha + n * beta) for n in SIZES])
    assert found == pytest.approx((alpha, beta), rel=1e-6, abs=1e-15)


def test_a_few_wild_points_don_t_move_the_line():
    rng = np.random.default_rng(7)
    alpha, beta = 2e-5, 3e-10
    points = [(n, (alpha + n * beta) * factor) for n, factor in zip(SIZES, rng.normal(1, 0.02, len(SIZES)), strict=True)]
    points[2], points[7] = (points[2][0], 30 * points[2][1]), (points[7][0], 10 * points[7][1])
    assert fit(points) == pytest.approx((alpha, beta), rel=0.1)


def test_a_line_never_falls():
    assert min(fit([(100, 2e-5), (1000, 1e-5)])) >= 0
    assert min(fit([(1000, 1e-6), (1000000, 1e-2)])) >= 0


def test_real_ranks_are_measured_and_the_points_are_kept():
    link = calibrate(2, "gloo", sizes=[64, 4096, 262144], repeats=3)
    assert isinstance(link, MeasuredLink)
    assert [n for n, _ in link.messages] == [n for n, _ in link.combinations] == [64, 4096, 262144]
    assert all(seconds > 0 for _, seconds in link.messages + link.combinations)
    assert link.alpha > 0
    assert cost("all_reduce", "ring", 2, 1 << 20).time(link) > 0


def test_collectives_are_measured():
    for op in collectives.ALGORITHMS:
        points = measure(op, "auto", 2, [64, 65536], "gloo", repeats=1)
        assert [n for n, _ in points] == [64, 65536]
        assert all(seconds > 0 for _, seconds in points)


def test_what_cannot_be_measured():
    with pytest.raises(ValueError, match="ranks is 2 or more"):
        calibrate(1)
    with pytest.raises(ValueError, match="two different sizes"):
        calibrate(2, sizes=[8])
    with pytest.raises(ValueError, match="an operation is one of"):
        measure("allreduce", "ring", 2, [8, 16])
    with pytest.raises(ValueError, match="can be done by"):
        measure("all_reduce", "rings", 2, [8, 16])
