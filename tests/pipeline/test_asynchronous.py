"""Asynchronous training: the weights after k microbatches are those of the papers' formulas, replayed in one process."""

import copy

import pytest
import torch
from torch import nn

from mlsyslab import launch, simulate
from mlsyslab.pipeline import schedule
from mlsyslab.pipeline.asynchronous import PipeMare, train
from mlsyslab.pipeline.memory import peak_activations, weight_versions

LR, ROWS, WIDTH = 0.2, 3, 4
SIZES = [(1, 3), (2, 1), (2, 6), (3, 8), (4, 3), (4, 13)]
mse = nn.functional.mse_loss


class Layer(nn.Module):
    """tanh(x w), whose backward is easily written by hand: dx = g (1 - y^2) w^T, dw = x^T g (1 - y^2)."""

    def __init__(self):
        super().__init__()
        self.w = nn.Parameter(torch.randn(WIDTH, WIDTH, dtype=torch.float64))

    def forward(self, x):
        return torch.tanh(x @ self.w)


def task(p, m):
    """(weights of p stages, inputs, targets)"""
    torch.manual_seed(10 * p + m)
    return [Layer() for _ in range(p)], *torch.randn(2, m, ROWS, WIDTH, dtype=torch.float64)


def gradients(x, target, forward, backward):
    """The gradients of all stages by hand: forward with one set of weights, backward with another."""
    inputs = [x]
    for w in forward:
        inputs.append(torch.tanh(inputs[-1] @ w))
    g = 2 * (inputs[-1] - target) / target.numel()
    found = []
    for s in reversed(range(len(forward))):
        g = g * (1 - inputs[s + 1] ** 2)
        found.insert(0, inputs[s].T @ g)
        g = g @ backward[s].T
    return found


def run(plan, stages, x, y, optimizer=lambda ps: torch.optim.SGD(ps, lr=LR), world=simulate, **options):
    """The weights of all stages, and what each rank returned."""

    def one(comm, _):
        mine = {s: copy.deepcopy(stages[s]) for s in plan.held[comm.rank]}
        return train(comm, mine, plan, list(x), list(y), mse, optimizer, **options), {s: mine[s].w.detach() for s in mine}

    results = world(one, [None] * plan.ranks).results
    weights = {s: w for _, mine in results for s, w in mine.items()}
    return [weights[s] for s in sorted(weights)], [step for step, _ in results]


def assert_same(found, expected):
    for s, (a, b) in enumerate(zip(found, expected, strict=True)):
        assert (a - b).abs().max() < 1e-12, f"stage {s}"


@pytest.mark.parametrize(("p", "m"), SIZES)
def test_pipedream_updates_by_the_gradient_at_stashed_weights(p, m):
    """W_s(t+1) = W_s(t) - lr grad f(W_0(t-p+1), W_1(t-p+2), …, W_{p-1}(t)) (Narayanan et al. 2019, section 3.3)."""
    stages, x, y = task(p, m)
    W = [[stage.w.detach() for stage in stages]]  # W[t][s]
    for t in range(m):
        stashed = [W[max(0, t - (p - 1 - s))][s] for s in range(p)]
        W.append([w - LR * g for w, g in zip(W[t], gradients(x[t], y[t], stashed, stashed), strict=True)])
    found, steps = run(schedule("PipeDream", p, m), stages, x, y)
    assert_same(found, W[m])
    if m >= p:
        assert [step.weight_versions for step in steps] == [p - r for r in range(p)]


@pytest.mark.parametrize(("p", "m"), SIZES)
@pytest.mark.parametrize("more", [0, 2])
def test_2bw_is_gradient_descent_with_a_delay_of_one(p, m, more):
    """W(t+1) = W(t) - lr grad f(W(t-1)), the same t on all stages, batches of a >= p microbatches (2021, section 3.1)."""
    a = p + more
    stages, x, y = task(p, m)
    before = now = [stage.w.detach() for stage in stages]
    for start in range(0, m, a):
        batch = range(start, min(start + a, m))
        each = [gradients(x[i], y[i], before, before) for i in batch]
        mean = [sum(g) / len(batch) for g in zip(*each, strict=True)]
        before, now = now, [w - LR * g for w, g in zip(now, mean, strict=True)]
    found, steps = run(schedule("PipeDream-2BW", p, m, accumulate=a), stages, x, y)
    assert_same(found, now)
    assert all(step.weight_versions <= 2 for step in steps)


def delayed(p, m, N, made, rate=lambda s, k: LR, correct=None):
    """Weights after m microbatches where the forward takes old weights and the backward those of the moment.

    made(s, i): how many updates stage s has made when microbatch i goes forward.
    """
    stages, x, y = task(p, m)
    W = [[stage.w.detach()] for stage in stages]  # W[s][k], after k updates
    gathered = [[] for _ in range(p)]
    for i in range(m):
        forward = [W[s][made(s, i)] for s in range(p)]
        backward = [W[s][-1] if correct is None else correct(s, W[s]) for s in range(p)]
        for s, g in enumerate(gradients(x[i], y[i], forward, backward)):
            gathered[s].append(g)
            if len(gathered[s]) == N or i == m - 1:
                W[s].append(W[s][-1] - rate(s, len(W[s]) - 1) * sum(gathered[s]) / len(gathered[s]))
                gathered[s] = []
    return [w[-1] for w in W]


@pytest.mark.parametrize(("p", "m"), SIZES)
@pytest.mark.parametrize("N", [1, 3])
def test_ampnet_mixes_old_activations_with_new_weights(p, m, N):
    """Forward and backward each take the weights of the moment; when that is, the order of actions says."""
    plan = schedule("AMPNet", p, m, accumulate=N)

    def made_before(s, i):
        row = plan.actions[s]
        at = next(n for n, a in enumerate(row) if a.kind == "F" and a.microbatch == i)
        return sum(a.kind == "U" for a in row[:at])

    found, steps = run(plan, *task(p, m))
    assert_same(found, delayed(p, m, N, made_before))
    assert all(step.weight_versions == 1 for step in steps)


def pipemare_forward(p, N):
    """Forward i of stage s comes after backward i - (2(p-s)-1): 2(p-s)-2 microbatches are under way."""
    return lambda s, i: 0 if i < 2 * (p - s) - 1 else (i - 2 * (p - s) + 2) // N


@pytest.mark.parametrize(("p", "m"), SIZES)
@pytest.mark.parametrize("N", [1, 2])
def test_pipemare_lowers_rates_by_the_delay(p, m, N):
    """T1: lr / tau^(1 - min(k/K, 1)), tau = (2(p-s)-1)/N (Yang et al. 2021, section 3.1)."""
    K = 4

    def rate(s, k):
        tau = (2 * (p - s) - 1) / min(N, m)  # where there are fewer than N microbatches, all of them make the update
        return LR / tau ** (1 - min(k / K, 1))

    found, _ = run(schedule("PipeMare", p, m, accumulate=N), *task(p, m), pipemare=PipeMare(anneal=K, decay=None))
    assert_same(found, delayed(p, m, N, pipemare_forward(p, N), rate))


@pytest.mark.parametrize(("p", "m"), SIZES)
def test_pipemare_corrects_the_backward_weights(p, m):
    """T2: u = w - tau delta, delta := gamma delta + (1 - gamma)(w_new - w_old), gamma = D^(1/tau) (section 3.2)."""
    D = 0.3

    def correct(s, W):
        tau, delta = 2 * (p - s) - 1, torch.zeros_like(W[0])
        gamma = D ** (1 / tau)
        for old, new in zip(W, W[1:], strict=False):
            delta = gamma * delta + (1 - gamma) * (new - old)
        return W[-1] - tau * delta

    found, steps = run(schedule("PipeMare", p, m), *task(p, m), pipemare=PipeMare(anneal=0, decay=D))
    assert_same(found, delayed(p, m, 1, pipemare_forward(p, 1), correct=correct))
    assert all(step.weight_versions == 1 for step in steps)


ASYNCHRONOUS = ["AMPNet", "PipeMare", "PipeDream", "PipeDream-2BW"]


@pytest.mark.parametrize("name", ASYNCHRONOUS)
@pytest.mark.parametrize(("p", "m"), SIZES)
def test_memory_is_what_the_schedule_says(name, p, m):
    plan = schedule(name, p, m)
    _, steps = run(plan, *task(p, m))
    assert [step.peak_activations for step in steps] == peak_activations(plan)
    assert [step.weight_versions for step in steps] == weight_versions(plan)


@pytest.mark.parametrize("name", [name for name in ASYNCHRONOUS if name != "PipeDream-2BW"])
def test_optimizers_with_state_follow_one_device_where_nothing_is_stale(name):
    """One stage is never stale, but for 2BW, which delays by definition: Adam then trains as on one device."""
    stages, x, y = task(1, 7)
    reference = copy.deepcopy(stages[0])
    update = torch.optim.Adam(reference.parameters(), lr=0.05)
    for a, b in zip(x, y, strict=True):
        update.zero_grad()
        mse(reference(a), b).backward()
        update.step()
    found, _ = run(schedule(name, 1, 7), stages, x, y, lambda ps: torch.optim.Adam(ps, lr=0.05))
    assert_same(found, [reference.w.detach()])


@pytest.mark.parametrize("name", ASYNCHRONOUS)
def test_processes_train_as_the_simulated_world_does(name):
    plan, given = schedule(name, 2, 6), task(2, 6)
    options = {"pipemare": PipeMare(anneal=3)} if name == "PipeMare" else {}
    ours, _ = run(plan, *given, world=lambda fn, inputs: launch(fn, inputs, backend="gloo", timeout=300), **options)
    assert_same(ours, run(plan, *given, **options)[0])
