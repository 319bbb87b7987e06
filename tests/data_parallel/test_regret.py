"""SSP's regret stays below its bound, and the bound is what the theorem says."""

import math

import pytest
import torch

from mlsyslab.data_parallel import HeavyTailed, Slow, bound, logistic, rate, regret
from mlsyslab.data_parallel.regret import minimizer


@pytest.mark.parametrize("straggler", [HeavyTailed(shape=1.5), Slow(factors={0: 4.0}, jitter=0.2)],
                         ids=lambda s: type(s).__name__)
@pytest.mark.parametrize(("s", "workers"), [(0, 2), (0, 4), (2, 4), (8, 3)])
def test_measured_regret_is_below_the_bound_after_every_update(s, workers, straggler):
    found = regret(s, workers, clocks=48, straggler=straggler)
    assert found.T == 48 * workers == len(found.bounds)
    assert found.furthest <= found.F**2  # the theorem's condition
    assert all(mine <= most for mine, most in zip(found.measured, found.bounds, strict=True))
    assert found.bounds[-1] == pytest.approx(4 * found.F * found.L * math.sqrt(2 * (s + 1) * workers * found.T))


def test_the_average_goes_to_zero():
    """The bound is for the sum, and grows as sqrt(T); what an update loses on average is measured to fall."""
    found = regret(2, clocks=160, straggler=HeavyTailed(shape=1.5))
    averages = [found.measured[t - 1] / t for t in (40, 160, 640)]
    assert averages[0] > averages[1] > averages[2] > 0
    assert bound(4 * 640, 2, 4, 1.0) == pytest.approx(2 * bound(640, 2, 4, 1.0))


def test_what_the_bound_grows_with():
    assert bound(100, 0, 1, 2.0, 3.0) == pytest.approx(4 * 2 * 3 * math.sqrt(200))
    assert bound(100, 3, 1, 2.0) == pytest.approx(2 * bound(100, 0, 1, 2.0))
    assert bound(100, 0, 9, 2.0) == pytest.approx(3 * bound(100, 0, 1, 2.0))


def test_the_rates_are_the_theorems():
    """eta_t = sigma / sqrt(t), over the updates of all workers, each counted as one of P parts."""
    eta, sigma = rate(3, 5, F=2.0), 2.0 / math.sqrt(2 * 4 * 5)
    assert [eta(w, c) / 5 for c in range(3) for w in range(5)] == pytest.approx([sigma / math.sqrt(t) for t in range(1, 16)])


def test_the_best_values_are_best():
    task = logistic(3)
    best = minimizer(task, 40)
    x, y = (torch.cat(all) for all in zip(*(task.batch(w, c) for w in range(3) for c in range(40)), strict=True))
    w = best.clone().requires_grad_()
    task.mean_loss({"w": w}, x, y).backward()
    assert w.grad.norm() < 1e-10
    assert all(gradient["w"].norm() <= 1 for gradient in (task.gradient({"w": best}, 0, c)[1] for c in range(9)))
    assert x.norm(dim=1).max() <= 1 + 1e-12


def test_points_without_an_error_have_no_best_values():
    task = logistic(1, points=8, dimensions=16)
    with pytest.raises(ValueError, match="can be told apart without an error"):
        minimizer(task, 2)


def test_of_one_worker_it_is_what_a_loop_loses():
    """No other worker, so nothing is stale: plain gradient descent from zero, with the theorem's steps."""
    found, task = regret(0, workers=1, clocks=24), logistic(1)
    best = minimizer(task, 24)
    eta, values, lost, furthest = rate(0, 1, float(best.norm())), torch.zeros_like(best), 0.0, 0.0
    for clock, measured in enumerate(found.measured):
        batch = task.batch(0, clock)
        lost += (task.mean_loss({"w": values}, *batch) - task.mean_loss({"w": best}, *batch)).item()
        furthest = max(furthest, float((values - best).square().sum()) / 2)
        assert measured == pytest.approx(lost, abs=1e-12)
        values = values - eta(0, clock) * task.gradient({"w": values}, 0, clock)[1]["w"]
    assert found.furthest == pytest.approx(furthest) and furthest >= found.F**2 / 2
