"""FLOPs by formula against FlopCounterMode and against the formulas of the papers, all of them exact."""

import itertools

import pytest
import torch
from torch.utils.checkpoint import checkpoint as torch_checkpoint
from torch.utils.flop_counter import FlopCounterMode

from mlsyslab.memory import every, selective
from mlsyslab.model import (
    GPT,
    Config,
    core_flops,
    flops_per_token,
    forward_flops,
    fused,
    matmul_flops,
    operators,
    palm_flops_per_token,
    parameters,
    published,
    training_flops,
    written,
)

LLAMA = {"mlp": "swiglu", "norm": "rms", "position": "rotary", "bias": False, "tied": False, "kv_heads": 2, "ffn": 40}
PALM = {"mlp": "swiglu", "bias": False, "parallel": True, "kv_heads": 1, "head_width": 6}
SHAPES = [dict(layers=L, hidden=h, heads=a, vocabulary=V, sequence=s, **more)
          for (L, h, a, V, s), more in itertools.product(
              [(1, 8, 1, 11, 4), (2, 16, 4, 29, 12), (3, 24, 2, 7, 9)],
              [{}, {"dropout": 0.1}, {"bias": False, "tied": False}])] + [
    dict(layers=2, hidden=16, heads=4, vocabulary=29, sequence=12, **more) for more in (LLAMA, PALM)]


def counted(model, batch, sequence, backward=True):
    tokens = torch.zeros(batch, sequence, dtype=torch.int64, device=next(model.parameters()).device)
    with FlopCounterMode(display=False) as counter:
        if backward:
            model.loss(tokens, tokens).backward()
        else:
            model(tokens)
    return counter.get_total_flops()


@pytest.mark.parametrize("batch", [1, 3])
def test_forward_and_training_are_what_the_counter_counts(batch):
    for kw in SHAPES:
        config = Config(**kw)
        for s in {config.sequence, 2}:
            assert counted(GPT(config), batch, s, backward=False) == forward_flops(config, batch, s)
            assert counted(GPT(config), batch, s) == training_flops(config, batch, s)


def test_recomputation_is_what_the_counter_counts():
    for kw in SHAPES:
        config = Config(**kw)
        for k in {1, 2, config.layers} & set(range(1, config.layers + 1)):
            assert counted(GPT(config, run=every(k)), 2, config.sequence) == training_flops(config, 2, recompute="full")
        model = GPT(config, core=selective(written))
        assert counted(model, 2, config.sequence) == training_flops(config, 2, recompute="selective")


def test_torchs_own_checkpoint_stops_before_the_last_product_of_each_block():
    """A trap: use_reentrant=False ends recomputing as soon as it has what backward needs, unless it is told not to."""
    def run(blocks, x):
        for block in blocks:
            x = torch_checkpoint(block, x, use_reentrant=False)
        return x

    config = Config(3, 16, 4, 29, 12)
    last = matmul_flops(2 * 12, config.ffn, 16)
    assert counted(GPT(config, run=run), 2, 12) == training_flops(config, 2, recompute="full") - 3 * last
    with torch.utils.checkpoint.set_checkpoint_early_stop(False):
        assert counted(GPT(config, run=run), 2, 12) == training_flops(config, 2, recompute="full")


def test_fused_attention_on_a_cpu_counts_as_nothing():
    """A trap: the counter doesn't know the CPU's fused kernel; the count by formula doesn't depend on the kernel."""
    config = Config(2, 16, 4, 29, 12)
    assert counted(GPT(config, fused), 2, 12, backward=False) == forward_flops(config, 2) - core_flops(config, 2)
    by_operator = sum(op.times * op.flops for op in operators(config, 2, attention="fused") if op.core == "matmul")
    assert by_operator == forward_flops(config, 2)


@pytest.mark.parametrize("batch", [1, 8])
@pytest.mark.parametrize("name", ["gpt2", "gpt3-175b", "megatron-1.7b", "megatron-22b", "megatron-1008b"])
def test_the_papers_closed_forms(name, batch):
    """72 B L s h^2 (1 + s/6h + V/12Lh); 96 … V/16Lh with everything recomputed; multiplied out, so that they are whole."""
    c = published(name).config
    B, L, s, h, V = batch, c.layers, c.sequence, c.hidden, c.vocabulary
    assert forward_flops(c, B) == 24 * B * L * s * h**2 + 4 * B * L * s**2 * h + 2 * B * s * h * V
    assert training_flops(c, B) == 72 * B * L * s * h**2 + 12 * B * L * s**2 * h + 6 * B * s * h * V
    assert training_flops(c, B, recompute="full") == 96 * B * L * s * h**2 + 16 * B * L * s**2 * h + 6 * B * s * h * V
    assert training_flops(c, B, recompute="selective") == 72 * B * L * s * h**2 + 16 * B * L * s**2 * h + 6 * B * s * h * V
    assert training_flops(c, B) == pytest.approx(72 * B * L * s * h**2 * (1 + s / (6 * h) + V / (12 * L * h)), rel=1e-12)


def test_causal_counting_halves_attention_and_nothing_else():
    for kw in SHAPES:
        config = Config(**kw)
        assert 2 * (forward_flops(config, 2) - forward_flops(config, 2, causal=True)) == core_flops(config, 2)


def test_six_flops_a_parameter_and_attention():
    """PaLM's 6N + 12LHQT a token is the exact count but for what makes no products: embeddings, biases and norms."""
    config = published("palm-540b").config
    assert palm_flops_per_token(parameters(config), config) == pytest.approx(flops_per_token(config), rel=1e-4)
    assert palm_flops_per_token(540.35e9, config) / 1e12 == pytest.approx(3.28, abs=0.01)  # TFLOP a token, as often quoted


def test_operators_have_intensity():
    """A product of square matrices of n has n/3 FLOPs a byte in 16 bits; what is not a product stays under three."""
    h = 512
    config = Config(1, h, 1, h, h, bias=False)
    found = {op.name: op for op in operators(config, 1)}
    assert found["attention's output"].intensity == pytest.approx(h / 3)
    assert all(op.intensity < 3 for op in found.values() if op.core == "vector")
    fused_core = next(op for op in operators(config, 1, attention="fused") if op.name == "fused attention")
    assert fused_core.intensity > found["scores"].intensity


@pytest.mark.parametrize(("call", "says"), [
    (lambda c: matmul_flops(2, 0, 3), r"n=0\): a side of a matrix is a whole number"),
    (lambda c: matmul_flops(2, 1.5, 3), "a side of a matrix is a whole number"),
    (lambda c: forward_flops(c, 0), "batch is a whole number"),
    (lambda c: forward_flops(c, 1, 13), "the model takes at most 12 tokens"),
    (lambda c: training_flops(c, 1, recompute="some"), "recompute is None, 'selective' or 'full'"),
    (lambda c: operators(c, 1, attention="flash"), "attention is 'written' or 'fused'"),
])
def test_wrong_input_is_refused(call, says):
    with pytest.raises(ValueError, match=says):
        call(Config(2, 16, 4, 29, 12))
