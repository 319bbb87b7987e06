"""Checkpointing, swapping, accumulating: the same gradients, less memory."""

import itertools
import math

import pytest
import torch
from torch.utils.checkpoint import checkpoint as torch_checkpoint

from mlsyslab.memory import (
    Live,
    Swap,
    accumulate,
    best_spacing,
    checkpoint,
    every,
    saved,
    saved_total,
    selective,
    spacing_bytes,
    square_root_spacing,
)
from mlsyslab.model import GPT, Config, fused, plain, written

CONFIG = Config(4, 32, 4, 29, 16, dropout=0.2)


def batch(size=3, config=CONFIG):
    generator = torch.Generator().manual_seed(5)
    return torch.randint(config.vocabulary, (2, size, config.sequence), generator=generator)


def gradients(config=CONFIG, core=written, run=plain, swap=False, autocast=False, dtype=torch.float32):
    """Gradients of one step with dropout, the loss, and what the random generator gives next."""
    torch.manual_seed(0)
    model = GPT(config, core, run).to(dtype)
    torch.manual_seed(1)
    with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
        if swap:
            with Swap(model.parameters()):
                loss = model.loss(*batch(config=config))
        else:
            loss = model.loss(*batch(config=config))
    loss.backward()
    return [p.grad for p in model.parameters()] + [loss.detach(), torch.rand(3)]


def equal(one, other):
    return all(torch.equal(a, b) for a, b in zip(one, other, strict=True))


WAYS = {"every 1": {"run": every(1)}, "every 3": {"run": every(3)}, "every 9": {"run": every(9)},
        "selective": {"core": selective(written)}, "selective in every 2": {"core": selective(written), "run": every(2)},
        "swapping": {"swap": True}, "swapping, every 2": {"swap": True, "run": every(2)}}
LLAMA = Config(3, 16, 4, 29, 8, mlp="swiglu", norm="rms", position="rotary", bias=False, kv_heads=2, dropout=0.3)


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
def test_gradients_are_the_same_bit_for_bit_with_dropout(way):
    """And the random generator goes on from where it would have."""
    for config, dtype in itertools.product((CONFIG, LLAMA), (torch.float32, torch.bfloat16)):
        assert equal(gradients(config, dtype=dtype, **way), gradients(config, dtype=dtype))


def test_bit_for_bit_under_autocast():
    assert equal(gradients(autocast=True, run=every(1)), gradients(autocast=True))


def test_without_replayed_dropout_gradients_would_differ():
    """The test above would see it: other random numbers make other gradients."""
    assert not equal(gradients()[:-2], gradients(Config(4, 32, 4, 29, 16, dropout=0.21))[:-2])


def test_ours_and_torchs_checkpoint_agree():
    def theirs(blocks, x):
        for block in blocks:
            x = torch_checkpoint(block, x, use_reentrant=False)
        return x

    assert equal(gradients(run=theirs), gradients(run=every(1)))


def test_checkpoint_takes_several_inputs_and_what_is_no_tensor():
    x, y = torch.randn(2, 5, requires_grad=True).unbind()
    x, y = x.detach().requires_grad_(), y.detach().requires_grad_()

    def function(a, b, power):
        return (a.exp() * b) ** power

    checkpoint(function, x, y, 2).sum().backward()
    found = x.grad.clone(), y.grad.clone()
    x.grad = y.grad = None
    function(x, y, 2).sum().backward()
    assert torch.equal(found[0], x.grad) and torch.equal(found[1], y.grad)


# -- what is held -----------------------------------------------------------------------------------------------------


def live(way):
    """Bytes held after forward, and at the peak, weights left out."""
    config, swap = CONFIG, way.get("swap", False)
    model = GPT(config, way.get("core", written), way.get("run", plain))
    tokens, targets = batch(16)
    with Live() as memory:
        if swap:
            with Swap(model.parameters()):
                loss = model.loss(tokens, targets)
        else:
            loss = model.loss(tokens, targets)
        forward = memory.now
        loss.backward()
    return forward, memory.peak


def test_after_forward_exactly_what_is_predicted_is_held():
    """8 bytes are the loss and the number that it is divided by."""
    for name, recompute in (("none", None), ("every 1", "full"), ("selective", "selective")):
        forward, _ = live(WAYS.get(name, {}))
        assert forward == saved_total(saved(CONFIG, 16, recompute=recompute)) + 8


def test_peaks_fall():
    nothing, selected, three, one = (live(WAYS.get(name, {}))[1] for name in ("none", "selective", "every 3", "every 1"))
    assert nothing > selected > one and nothing > three > one


def test_swapping_takes_everything_away_and_brings_it_back_once():
    model = GPT(CONFIG)
    tokens, targets = batch(4)
    with Live() as memory, Swap([*model.parameters(), tokens, targets]) as swap:
        loss = model.loss(tokens, targets)
    assert memory.now <= 8 and swap.back == 0
    assert swap.out == saved_total(saved(CONFIG, 4))
    with memory:
        loss.backward()
    assert swap.back == swap.out
    assert live({"swap": True})[1] < 0.5 * live({})[1]


def test_small_memory_can_stay():
    model = GPT(CONFIG)
    with Swap(model.parameters(), least=4096) as swap:
        model.loss(*batch(4)).backward()
    assert 0 < swap.out < saved_total(saved(CONFIG, 4))


def test_a_graph_that_is_gone_through_twice_can_be_swapped():
    x = torch.randn(50, requires_grad=True)
    with Swap() as swap:
        y = x.exp().sin().sum()
    y.backward(retain_graph=True)
    first = x.grad.clone()
    y.backward()
    assert torch.equal(x.grad, 2 * first) and swap.back >= swap.out


@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU here")
@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
def test_on_a_gpu_gradients_are_the_same_too(way):
    torch.use_deterministic_algorithms(True)
    try:
        def on_gpu(core=written, run=plain, swap=False):
            torch.manual_seed(0)
            model = GPT(CONFIG, core, run).cuda()
            torch.manual_seed(1)
            tokens, targets = batch().cuda()
            with Swap(model.parameters() if swap else [], least=0 if swap else 1 << 60):
                loss = model.loss(tokens, targets)
            loss.backward()
            return [p.grad for p in model.parameters()]

        assert equal(on_gpu(**way), on_gpu())
    finally:
        torch.use_deterministic_algorithms(False)


# -- spacing ----------------------------------------------------------------------------------------------------------


def test_the_square_root_rule():
    """With boundaries as large as layers, the best whole k holds what sqrt(L) would, to the rounding."""
    for L in range(1, 200):
        k = best_spacing(L)
        assert spacing_bytes(L, k) == min(math.ceil(L / k) + k for k in range(1, L + 1))
        assert 2 * math.sqrt(L) - 1e-9 <= spacing_bytes(L, k) < 2 * math.sqrt(L) + 1
    assert [best_spacing(n * n) for n in (2, 3, 4, 10)] == [2, 3, 4, 10] and square_root_spacing(36) == 6


def test_a_boundary_is_small_so_every_block_is_best_for_a_transformer():
    """A block keeps 57 times its input in GPT-3: sqrt(96/57) = 1.3 layers."""
    assert square_root_spacing(96, 1, 57) == pytest.approx(1.3, abs=0.01) and best_spacing(96, 1, 57) == 1


# -- accumulation -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("parts", [1, 2, 3, 5, 7])
def test_accumulated_gradients_are_those_of_the_whole_batch(parts):
    """7 sequences in parts that differ in size: each counts by its share."""
    model = GPT(Config(2, 16, 4, 29, 12)).double()
    tokens, targets = batch(7, model.config)
    whole = model.loss(tokens, targets)
    expected = torch.autograd.grad(whole, list(model.parameters()))
    total = accumulate(model, tokens, targets, parts)
    assert total.item() == pytest.approx(whole.item(), rel=1e-6)
    for found, wanted in zip(model.parameters(), expected, strict=True):
        torch.testing.assert_close(found.grad, wanted, rtol=1e-5, atol=1e-7)  # the loss is in 32 bits


def test_accumulating_holds_one_parts_activations():
    def peak(parts):
        model = GPT(Config(2, 32, 4, 29, 16))
        for p in model.parameters():
            p.grad = torch.zeros_like(p)
        with Live() as memory:
            accumulate(model, *batch(16, model.config), parts)
        return memory.peak

    assert peak(1) > 1.8 * peak(2) > 3 * peak(4)


@pytest.mark.parametrize(("call", "says"), [
    (lambda: every(0), "a whole number of blocks, 1 or more"),
    (lambda: every(1.5), "a whole number of blocks"),
    (lambda: spacing_bytes(4, 5), "k is 1 … 4"),
    (lambda: accumulate(GPT(CONFIG), *batch(3), 4), "a batch of 3 has at most 3 parts"),
    (lambda: accumulate(GPT(CONFIG), *batch(3), 0), "parts is a whole number, 1 or more"),
])
def test_wrong_input_is_refused(call, says):
    with pytest.raises(ValueError, match=says):
        call()


def test_fused_attention_can_be_checkpointed():
    config = Config(2, 16, 4, 29, 12)
    assert equal(gradients(config, selective(fused)), gradients(config, fused))
