"""Partitions against brute force: every way to cut, every number of replicas, every placement."""

import itertools
import math

import numpy as np
import pytest
import torch
from torch import nn

from mlsyslab.pipeline.partition import (
    LayerProfile,
    Placement,
    bubble,
    even,
    excess,
    partition,
    pipedream,
    profile,
    reinforce,
    step_time,
)


def cuts(n, p):
    """Every way to give n layers to p stages, at least one each."""
    for ends in itertools.combinations(range(1, n), p - 1):
        yield [b - a for a, b in itertools.pairwise((0, *ends, n))]


def stage_sums(values, sizes):
    ends = np.cumsum([0, *sizes])
    return [math.fsum(values[a:b]) for a, b in itertools.pairwise(ends)]


@pytest.mark.parametrize("method", ["dynamic", "linear"])
def test_the_slowest_stage_is_as_fast_as_any_cut_makes_it(method):
    random = np.random.default_rng(0)
    for n in range(1, 9):
        for p in range(1, n + 1):
            times = random.choice([random.uniform(1e-6, 1e-3, n), random.integers(0, 4, n).astype(float)])
            found = partition(times, p, method)
            assert found.bottleneck == pytest.approx(min(max(stage_sums(times, sizes)) for sizes in cuts(n, p)), rel=1e-9)
            assert sum(found.sizes) == n and min(found.sizes) >= 1
            assert found.times == pytest.approx(stage_sums(times, found.sizes))
            assert [l for stage in found.layers for l in stage] == list(range(n))


def test_dynamic_and_linear_agree_on_long_chains():
    random = np.random.default_rng(1)
    for n, p in [(24, 4), (30, 8), (40, 3)]:
        times = random.exponential(1.0, n)
        assert partition(times, p, "linear").bottleneck == pytest.approx(partition(times, p).bottleneck)


def test_even_stages_hold_as_many_layers_as_one_another():
    assert even([1.0] * 10, 4).sizes == (3, 3, 2, 2)


def test_an_even_cut_of_uneven_layers_is_slower_and_its_bubble_stays():
    times = [1, 1, 1, 1, 4, 4]
    balanced, uneven = partition(times, 3), partition(times, 3, "even")
    assert excess(balanced.bottleneck, balanced.bottleneck) == 0.0
    assert excess(uneven.bottleneck, balanced.bottleneck) == pytest.approx(8 / 4 - 1)
    assert bubble(balanced.times, 10**9) == pytest.approx(1 - balanced.balance, abs=1e-6) == pytest.approx(0, abs=1e-6)
    assert bubble(uneven.times, 10**9) == pytest.approx(1 - uneven.balance, abs=1e-6) == pytest.approx(0.5, abs=1e-6)


@pytest.mark.parametrize("p", [1, 2, 5, 8])
@pytest.mark.parametrize("m", [1, 3, 16])
def test_the_bubble_of_equal_stages_is_the_closed_form(p, m):
    assert bubble([0.3] * p, m) == pytest.approx((p - 1) / (m + p - 1))


# -- PipeDream ------------------------------------------------------------------------------------------------------------


def random_layers(random, n):
    return [LayerProfile(*random.uniform(0.1, 1, 2), int(random.integers(1, 100)), int(random.integers(1, 100)))
            for _ in range(n)]


def pipedream_time(layers, sizes, replicas, bandwidth):
    """Seconds of the slowest stage or cut, straight from the definition."""
    ends = np.cumsum([0, *sizes])
    slowest = []
    for (a, b), m in zip(itertools.pairwise(ends), replicas, strict=True):
        slowest.append(math.fsum(layer.time for layer in layers[a:b]) / m)
        slowest.append(2 * (m - 1) * sum(layer.weights for layer in layers[a:b]) / bandwidth / m)
    return max(slowest + [2 * layers[end - 1].activations / bandwidth for end in ends[1:-1]])


@pytest.mark.parametrize("bandwidth", [20.0, 100.0, 1e3, 1e9])
def test_pipedream_chooses_the_best_of_all_stages_and_replicas(bandwidth):
    random = np.random.default_rng(2)
    for n, workers in itertools.product(range(1, 6), range(1, 6)):
        layers = random_layers(random, n)
        best = min(pipedream_time(layers, sizes, replicas, bandwidth)
                   for p in range(1, min(n, workers) + 1) for sizes in cuts(n, p) for replicas in cuts(workers, p))
        found = pipedream(layers, workers, bandwidth)
        assert sum(found.sizes) == n and sum(found.replicas) == workers
        assert found.time == pytest.approx(best)
        assert found.time == pytest.approx(pipedream_time(layers, found.sizes, found.replicas, bandwidth))


def test_one_level_of_pipedream_is_the_outer_of_two_with_one_worker_a_machine():
    layers = random_layers(np.random.default_rng(3), 6)
    assert pipedream(layers, (1, 4), (1.0, 100.0)) == pipedream(layers, 4, 100.0)


def test_pipedream_replicates_light_weights_and_cuts_before_heavy_ones():
    """The paper's VGG-16: convolutions data parallel, fully connected layers on a worker of their own."""
    convolutions = [LayerProfile(1.0, 2.0, activations=100, weights=1)] * 5
    heavy = LayerProfile(0.3, 0.6, activations=1, weights=10_000)
    found = pipedream([*convolutions, heavy], 16, bandwidth=1000.0)
    assert found.sizes == (5, 1) and found.replicas == (15, 1)
    assert found.time == pytest.approx(1.0)


def test_pipedream_on_two_levels_keeps_what_is_costly_inside_a_machine():
    layers = [LayerProfile(1.0, 1.0, activations=size, weights=10) for size in (1000, 1000, 1000, 1, 1, 1)]
    found = pipedream(layers, (2, 2), (1e6, 100.0))
    assert sum(found.replicas) == 4
    assert found.time == pytest.approx(3.0), "4 workers share 12 s of work, and no costly cut lies between machines"


# -- learned placement ----------------------------------------------------------------------------------------------------


def test_step_time_of_contiguous_stages_is_gpipe():
    """T = sum t_s + (m-1) max t_s, forward and backward, with every backward twice its forward."""
    random = np.random.default_rng(4)
    for p, m in itertools.product((1, 2, 4), (1, 3, 8)):
        t = random.uniform(0.5, 2, 8)
        found = partition(3 * t, p)
        devices = [s for s, size in enumerate(found.sizes) for _ in range(size)]
        layers = [LayerProfile(x, 2 * x, 7) for x in t]
        total = sum(found.times) + (m - 1) * found.bottleneck
        assert step_time(devices, layers, m) == pytest.approx(total)
        assert step_time(devices, layers, 1, bandwidth=70.0) == pytest.approx(sum(found.times) + 2 * (p - 1) * 0.1)


def test_the_policy_finds_the_best_of_all_placements_of_a_small_chain():
    layers = [LayerProfile(x, 2 * x, 1) for x in (1.0, 2.0, 1.0, 3.0, 1.0, 1.0)]
    every = np.array(list(itertools.product(range(2), repeat=6)))
    best = step_time(every, layers, 4, bandwidth=2.0).min()
    found = reinforce(layers, 2, 4, bandwidth=2.0, rounds=40, trials=32)
    assert isinstance(found, Placement)
    assert found.time == pytest.approx(best) == pytest.approx(float(step_time(found.devices, layers, 4, bandwidth=2.0)))


def test_the_policy_learns_and_a_seed_repeats_it():
    layers = random_layers(np.random.default_rng(5), 12)
    learned = reinforce(layers, 3, 6, rounds=60, trials=32, seed=1)
    assert learned == reinforce(layers, 3, 6, rounds=60, trials=32, seed=1)
    assert list(learned.history) == sorted(learned.history, reverse=True) and learned.history[-1] == learned.time
    chance = step_time(np.random.default_rng(0).integers(0, 3, (60 * 32, 12)), layers, 6).min()
    assert learned.time < chance, "as many placements drawn blindly find nothing so good"


# -- measuring layers, and errors -----------------------------------------------------------------------------------------


def test_profile_measures_every_layer_and_changes_nothing():
    torch.manual_seed(0)
    layers = [nn.Embedding(10, 8), nn.Linear(8, 256), nn.ReLU(), nn.Linear(256, 4)]
    found = profile(layers, torch.randint(10, (32, 5)), repeats=3)
    assert [layer.weights for layer in found] == [4 * 80, 4 * (8 * 256 + 256), 0, 4 * (256 * 4 + 4)]
    assert [layer.activations for layer in found] == [4 * 160 * width for width in (8, 256, 256, 4)]
    assert all(layer.forward > 0 and layer.backward > 0 and layer.time == layer.forward + layer.backward for layer in found)
    assert all(parameter.grad is None for layer in layers for parameter in layer.parameters())


@pytest.mark.parametrize(("call", "message"), [
    (lambda: partition([1.0, 2.0], 3), "stages=3 for 2 layers: give 1 … 2"),
    (lambda: partition([1.0, 2.0], 0), "stages=0 for 2 layers"),
    (lambda: partition([1.0, -2.0], 1), r"times\[1\]=-2.0"),
    (lambda: partition([1.0, float("nan")], 1), r"times\[1\]=nan"),
    (lambda: partition([1.0], 1, "guess"), "method='guess': a partition is found by one of dynamic, linear, even"),
    (lambda: pipedream([], 2, 1.0), "layers is empty"),
    (lambda: pipedream([LayerProfile(1, 1)], (2, 2), 1.0), "2 levels of workers and 1 of bandwidth"),
    (lambda: pipedream([LayerProfile(1, 1)], 0, 1.0), "every level has 1 or more"),
    (lambda: pipedream([LayerProfile(1, 1)], 1, 0.0), "more than 0"),
    (lambda: reinforce([LayerProfile(1, 1)], 0, 1), "devices=0"),
    (lambda: profile([nn.ReLU()], torch.ones(1), repeats=0), "repeats=0"),
    (lambda: bubble([1.0], 0), "microbatches=0"),
])
def test_what_cannot_be_is_refused_with_what_can(call, message):
    with pytest.raises(ValueError, match=message):
        call()
