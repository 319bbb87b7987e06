"""TeraPipe: the time of a slicing, and its dynamic programme against all slicings there are."""

import itertools
import random

import pytest

from mlsyslab.pipeline import best_slicing, schedule, simulate


def all_slicings(tokens):
    for cuts in itertools.product([False, True], repeat=tokens - 1):
        points = [0, *(k + 1 for k, cut in enumerate(cuts) if cut), tokens]
        yield [b - a for a, b in itertools.pairwise(points)]


def latency(lengths, p, time):
    """T = sum t_j + (p-1) max t_j."""
    before = [sum(lengths[:j]) for j in range(len(lengths))]
    t = [time(length, context) for length, context in zip(lengths, before, strict=True)]
    return sum(t) + (p - 1) * max(t)


@pytest.mark.parametrize("seed", range(6))
def test_the_programme_finds_the_best_of_all_slicings(seed):
    draw = random.Random(seed)
    for tokens in range(1, 11):
        for p in (1, 2, 3, 8):
            table = {(n, c): draw.randint(1, 30) + n * (seed % 2) for n in range(1, tokens + 1) for c in range(tokens)}
            lengths, T = best_slicing(tokens, p, lambda n, c, table=table: table[n, c])
            best = min(latency(slicing, p, lambda n, c, table=table: table[n, c]) for slicing in all_slicings(tokens))
            assert sum(lengths) == tokens
            assert T == best == latency(lengths, p, lambda n, c, table=table: table[n, c]), (tokens, p)


def test_a_grain_keeps_lengths_to_multiples():
    def time(n, context):
        return 3 + n * (1 + context / 16)

    lengths, T = best_slicing(32, 4, time, grain=4)
    assert all(n % 4 == 0 for n in lengths) and sum(lengths) == 32
    best = min(latency([4 * n for n in slicing], 4, time) for slicing in all_slicings(8))
    assert best == T


def test_later_slices_are_shorter_since_they_attend_to_more():
    """Figure 6 of the paper: with attention's cost growing by context, equal slices are not the best."""
    lengths, _ = best_slicing(64, 8, lambda n, context: 1 + n + n * (context + n / 2) / 16, grain=2)
    assert lengths[0] > lengths[-1]
    assert lengths[0] == max(lengths)
    assert lengths[-1] == min(lengths)


def test_one_stage_needs_no_slices():
    assert best_slicing(16, 1, lambda n, context: 1 + n)[0] == [16]


def test_forward_takes_the_sum_and_p_minus_1_times_the_longest():
    draw = random.Random(7)
    for p in range(1, 9):
        for slices in range(1, 7):
            t = [draw.randint(1, 9) for _ in range(slices)]
            made = schedule("TeraPipe", p, 1, slices=slices)
            timeline = simulate(made, F=[t] * p, I=0, W=0)
            assert timeline.time == sum(t) + (p - 1) * max(t)
            whole = simulate(made, F=[t] * p, B=[[2 * x for x in t]] * p)
            assert whole.time == 3 * (sum(t) + (p - 1) * max(t))


def test_slices_divide_the_bubble_of_gpipe():
    """K equal slices of m microbatches are m K microbatches to the pipeline."""
    for p, m, K in itertools.product((2, 4), (1, 3, 8), (1, 2, 5)):
        assert simulate(schedule("TeraPipe", p, m, slices=K)).bubble == pytest.approx((p - 1) / (m * K + p - 1))


def test_lengths_found_go_into_the_schedule():
    lengths, T = best_slicing(24, 3, lambda n, context: 2 + n * (1 + context / 8))
    made = schedule("TeraPipe", 3, 2, slices=lengths)
    assert made.slices == tuple(lengths)
    t = [2 + n * (1 + sum(lengths[:j]) / 8) for j, n in enumerate(lengths)]
    one = schedule("TeraPipe", 3, 1, slices=lengths)
    assert simulate(one, F=[t] * 3, I=0, W=0).time == pytest.approx(T)


@pytest.mark.parametrize("tokens, p, grain", [(0, 1, 1), (8, 0, 1), (8, 1, 3), (8, 1, 0)])
def test_bad_sizes(tokens, p, grain):
    with pytest.raises(ValueError, match="tokens a multiple of grain"):
        best_slicing(tokens, p, lambda n, context: 1.0, grain)
