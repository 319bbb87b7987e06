"""What the benchmarks of training steps say: the spread of a ratio, and the memory that a step needs."""

import math
import random
import sys

import pytest
import torch

from mlsyslab import launch
from mlsyslab.bench import steps


@pytest.mark.parametrize("n", [11, 31, 100])
def test_the_spread_holds_the_true_median_at_least_95_times_of_100(n):
    """And not much more often. Of skewed samples, as times are, around the median of 1."""
    draw, trials = random.Random(0), 2000
    held = 0
    for _ in range(trials):
        values = sorted(math.exp(draw.gauss(0, 0.3)) for _ in range(n))
        low = next(i for i in range(n) if values[n - 1 - i] - values[i] <= 2 * steps.spread_of_median(values) + 1e-15)
        held += values[low] <= 1.0 <= values[n - 1 - low]
    assert 0.94 <= held / trials <= 0.99


def test_a_few_values_are_their_own_spread():
    assert steps.spread_of_median([3.0]) == 0
    assert steps.spread_of_median([3.0, 1.0]) == 1


MEGABYTE = 1 << 18  # float32


def holding(comm, width):
    """A step that makes 12 MB for a moment, beside 20 MB that it keeps; next to nothing when `width` is small."""
    size = width * MEGABYTE // 1024
    kept = torch.ones(20 * size)

    def step():
        kept.add_(torch.ones(12 * size).mean())

    return step


@pytest.mark.skipif(sys.platform != "linux", reason="/proc is Linux's")
def test_the_peak_is_what_is_held_and_not_what_has_been_freed():
    for ranks in (1, 2):
        for found in launch(steps.peak, [(holding, 1024)] * ranks, backend="gloo").results:
            assert found == pytest.approx(32 << 20, rel=0.03)


@pytest.mark.skipif(sys.platform != "linux", reason="/proc is Linux's")
def test_a_row_compares_turn_by_turn():
    row = steps.compare(2, holding, holding, 256)
    assert row["p"] == 2 and row["ours"]["runs"] == row["torch"]["runs"] == steps.STEPS
    assert 0.5 < row["ratio"] < 2 and row["±"] >= 0
    assert row["memory ratio"] == pytest.approx(1, abs=0.05)
