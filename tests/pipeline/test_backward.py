"""Input gradients first, weight gradients later: together what one backward gives, and nothing computed twice."""

import copy

import pytest
import torch
from torch import nn
from torch.nn.utils import parametrizations

from mlsyslab.pipeline.backward import backward_input


class Shared(nn.Module):
    """One matrix, used three times."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(5, 5, dtype=torch.float64))

    def forward(self, x):
        for _ in range(3):
            x = torch.tanh(x @ self.weight)
        return x + x @ self.weight.T


class Odd(nn.Module):
    """Weights that act through a product of their own, a stack and an unused one."""

    def __init__(self):
        super().__init__()
        self.a, self.b, self.unused = (nn.Parameter(torch.randn(5, 5)) for _ in range(3))

    def forward(self, x):
        return torch.stack([x, x @ (self.a @ self.b)]).unbind()[1] * self.a.sum() + self.b[0]


MODULES = {
    "linear": lambda: nn.Linear(5, 5),
    "deep": lambda: nn.Sequential(nn.Linear(5, 8), nn.ReLU(), nn.LayerNorm(8), nn.Linear(8, 5), nn.Tanh()),
    "convolution": lambda: nn.Sequential(nn.Unflatten(1, (1, 5)), nn.Conv1d(1, 3, 3, padding=1), nn.BatchNorm1d(3),
                                         nn.Flatten(), nn.Linear(15, 5)),
    "attention": lambda: nn.TransformerEncoderLayer(5, 1, 8, dropout=0.0),
    "recurrent": lambda: nn.Sequential(nn.Unflatten(1, (5, 1)), Recurrent(), nn.Flatten(), nn.Linear(20, 5)),
    "shared": Shared,
    "odd": Odd,
    "weight norm": lambda: parametrizations.weight_norm(nn.Linear(5, 5)),
    "no weights": lambda: nn.Tanh(),
}


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.cell = nn.GRU(1, 4, batch_first=True)

    def forward(self, x):
        return self.cell(x)[0]


@pytest.mark.parametrize("name", MODULES)
def test_input_then_weights_is_the_whole_backward(name):
    torch.manual_seed(0)
    split = MODULES[name]().double()
    whole = copy.deepcopy(split)
    for _ in range(2):  # gradients accumulate
        x = torch.randn(4, 5, dtype=torch.float64)
        xs, xw = x.clone().requires_grad_(), x.clone().requires_grad_()
        y, gradient = split(xs), torch.randn(4, 5, dtype=torch.float64)
        before = [None if p.grad is None else p.grad.clone() for p in split.parameters()]
        (found,), weights = backward_input([y], [gradient], [xs])
        for p, b in zip(split.parameters(), before, strict=True):
            assert (p.grad is None and b is None) or torch.equal(p.grad, b), "weights wait for W"
        weights()
        whole(xw).backward(gradient)
        torch.testing.assert_close(found, xw.grad, rtol=0, atol=1e-12)
    for a, b in zip(split.parameters(), whole.parameters(), strict=True):
        assert (a.grad is None) == (b.grad is None)
        if a.grad is not None:
            torch.testing.assert_close(a.grad, b.grad, rtol=0, atol=1e-12)


def products(run):
    """How many matrix products `run` computes."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        run()
    return sum(event.count for event in profile.key_averages() if event.key == "aten::mm")


def test_each_half_does_half_of_the_matrix_products():
    module = nn.Sequential(*(nn.Sequential(nn.Linear(5, 5), nn.Tanh()) for _ in range(6)))
    x = torch.randn(4, 5, requires_grad=True)
    y, halves = module(x), []
    assert products(lambda: halves.extend(backward_input([y], [torch.ones(4, 5)], [x]))) == 6
    assert products(halves[1]) == 6


def test_the_first_stage_has_all_its_work_in_the_weights():
    module, x = nn.Linear(5, 5), torch.randn(4, 5)
    (found,), weights = backward_input([module(x).sum()], [None], [x])
    assert found is None and module.weight.grad is None
    weights()
    torch.testing.assert_close(module.weight.grad, x.sum(0).expand(5, 5))
