"""Mixed precision against torch.amp's scaler and against 32-bit training."""

import copy

import pytest
import torch

from mlsyslab.memory import LossScaler, MixedPrecision
from mlsyslab.model import GPT, Config

CONFIG = Config(1, 16, 2, 17, 8)
TOKENS = torch.arange(9).repeat(4, 1)


def model():
    torch.manual_seed(0)
    return GPT(CONFIG)


def sgd(parameters):
    return torch.optim.SGD(parameters, lr=0.1)


@pytest.mark.parametrize("overflows", [[], [0], [0, 1, 2], [3, 7, 8], list(range(5, 12))])
def test_the_scale_moves_as_torchs_does(overflows):
    ours, theirs = LossScaler(scale=1024.0, interval=3), torch.amp.GradScaler("cpu", init_scale=1024.0, growth_interval=3)
    weight = torch.zeros(1, requires_grad=True)
    optimizer = torch.optim.SGD([weight], lr=0.0)
    for step in range(16):
        weight.grad = torch.full((1,), float("inf") if step in overflows else 1.0)
        theirs.scale(torch.zeros(1))
        theirs.step(optimizer)
        theirs.update()
        ours.update(step in overflows)
        assert ours.scale == theirs.get_scale()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_training_follows_that_in_32_bits(dtype):
    reference = model()
    optimizer = sgd(reference.parameters())
    mixed_model = copy.deepcopy(reference)
    mixed = MixedPrecision(mixed_model, sgd, dtype, LossScaler(2.0**10) if dtype == torch.float16 else None)
    assert all(p.dtype == dtype for p in mixed_model.parameters()) and all(m.dtype == torch.float32 for m in mixed.masters)
    for _ in range(10):
        optimizer.zero_grad()
        loss = reference.loss(TOKENS[:, :-1], TOKENS[:, 1:])
        loss.backward()
        optimizer.step()
        found = mixed.step(lambda: mixed_model.loss(TOKENS[:, :-1], TOKENS[:, 1:]))
    assert mixed.skipped == 0 and found.item() == pytest.approx(loss.item(), rel=0.02)
    for master, weight in zip(mixed.masters, mixed_model.parameters(), strict=True):
        assert torch.equal(master.to(dtype), weight)


def test_an_overflow_skips_the_update_and_halves_the_scale():
    small = model()
    mixed = MixedPrecision(small, sgd, torch.float16, LossScaler(2.0**40))
    before = [m.clone() for m in mixed.masters]
    mixed.step(lambda: small.loss(TOKENS[:, :-1], TOKENS[:, 1:]))
    assert mixed.skipped == 1 and mixed.scaler.scale == 2.0**39
    assert all(torch.equal(a, b) for a, b in zip(before, mixed.masters, strict=True))
    while mixed.skipped == mixed.scaler.good + mixed.skipped:
        mixed.step(lambda: small.loss(TOKENS[:, :-1], TOKENS[:, 1:]))
    assert any(not torch.equal(a, b) for a, b in zip(before, mixed.masters, strict=True))


def test_scaling_saves_gradients_that_float16_would_lose():
    """A gradient of 1e-9 is 0 in float16; scaled by 2^16 it arrives, to float16's precision."""
    def trained(scale):
        layer = torch.nn.Linear(1, 1, bias=False)
        mixed = MixedPrecision(layer, lambda p: torch.optim.SGD(p, lr=1.0), torch.float16, LossScaler(scale))
        before = mixed.masters[0].item()
        mixed.masters[0].data.zero_()
        layer.weight.data.zero_()
        mixed.step(lambda: (layer(torch.ones(1, 1, dtype=torch.float16)) * 1.0).float().sum() * 1e-9)
        return mixed.masters[0].item(), before

    assert trained(1.0)[0] == 0
    assert trained(2.0**16)[0] == pytest.approx(-1e-9, rel=0.01)


def test_small_updates_need_32_bit_masters():
    """Added to a bfloat16 weight of 1, updates of 1e-3 are lost; the master gathers them."""
    layer = torch.nn.Linear(1, 1, bias=False)
    layer.weight.data.fill_(1.0)
    mixed = MixedPrecision(layer, lambda p: torch.optim.SGD(p, lr=1e-3), torch.bfloat16)
    for _ in range(20):
        mixed.step(lambda: layer(torch.ones(1, 1, dtype=torch.bfloat16)).float().sum())
    assert mixed.masters[0].item() == pytest.approx(0.98, abs=1e-4) and layer.weight.item() == pytest.approx(0.98, abs=4e-3)
    assert torch.tensor(1.0, dtype=torch.bfloat16) - 1e-3 == 1.0


@pytest.mark.parametrize(("call", "says"), [
    (lambda: MixedPrecision(model(), sgd, torch.float32), "dtype is torch.float16 or torch.bfloat16"),
    (lambda: LossScaler(scale=0), "scale is a finite number, more than 0"),
    (lambda: LossScaler(interval=0), "interval is a whole number"),
    (lambda: LossScaler(backoff=2.0), "backoff more than 0 and at most 1"),
    (lambda: LossScaler(growth=0.5), "growth is 1 or more"),
])
def test_wrong_input_is_refused(call, says):
    with pytest.raises(ValueError, match=says):
        call()
