"""What a GPT keeps for backward: predicted tensor by tensor, and measured by saved_tensors_hooks; equal to the byte."""

import itertools

import pytest
import torch
from torch import nn

from mlsyslab.memory import activation_bytes, every, model_saved_bytes, saved, saved_bytes, saved_total, selective
from mlsyslab.model import GPT, Config, fused, plain, published, written

SHAPES = {
    "gpt": {},
    "llama": {"mlp": "swiglu", "norm": "rms", "position": "rotary", "bias": False, "kv_heads": 2, "tied": False, "ffn": 40},
    "palm": {"mlp": "swiglu", "parallel": True, "kv_heads": 1, "head_width": 6, "bias": False},
    "one head, narrow MLP": {"heads": 1, "ffn": 5},
}
CORES = {"written": written, "fused": fused}


def shape(**changes):
    return Config(**{"layers": 3, "hidden": 16, "heads": 4, "vocabulary": 29, "sequence": 12, **changes})


def measured(config, batch, dtype, core, recompute, s=None):
    core = CORES[core]
    model = GPT(config, selective(core) if recompute == "selective" else core, every(1) if recompute == "full" else plain)
    tokens = torch.zeros(batch, s or config.sequence, dtype=torch.int64)
    return model_saved_bytes(model.to(dtype), tokens, tokens.clone())


@pytest.mark.parametrize("recompute", [None, "selective", "full"])
@pytest.mark.parametrize("core", CORES)
@pytest.mark.parametrize("changes", SHAPES.values(), ids=SHAPES)
def test_predicted_is_measured_to_the_byte(changes, core, recompute):
    for dropout, dtype, batch in itertools.product((0.0, 0.1), (torch.float32, torch.bfloat16), (1, 3)):
        if core == "fused" and dropout:
            continue
        config = shape(dropout=dropout, **changes)
        expected = saved_total(saved(config, batch, dtype=dtype, core=core, recompute=recompute))
        assert measured(config, batch, dtype, core, recompute) == expected, (dropout, dtype, batch)


def test_shorter_sequences_keep_less():
    for s in (1, 5, 11):
        assert measured(shape(), 2, torch.float32, "written", None, s) == saved_total(saved(shape(), 2, s))


@pytest.mark.parametrize("name", ["gpt3-175b", "megatron-22b", "megatron-1008b"])
def test_a_layer_on_a_gpu_is_korthikantis_and_the_statistics(name):
    """34 + 5as/h in 16 bits with dropout; what the paper leaves out are four 32-bit statistics a token."""
    c = published(name).config
    c = Config(c.layers, c.hidden, c.heads, c.vocabulary, c.sequence, dropout=0.1)
    for recompute in (None, "selective"):
        kept = saved(c, 2, dtype=torch.bfloat16, recompute=recompute, device="cuda")
        a_layer = saved_total([k for k in kept if k.part in ("block", "attention", "core", "MLP")]) / c.layers
        assert a_layer - 4 * 4 * 2 * c.sequence == pytest.approx(activation_bytes(c, 2, recompute=recompute), rel=1e-12)
    kept = saved(c, 2, dtype=torch.bfloat16, recompute="full", device="cuda")
    assert next(k.bytes for k in kept if k.part == "block") == activation_bytes(c, 2, recompute="full")


def test_a_layer_on_a_cpu_is_36_and_6():
    c, n = shape(hidden=32, dropout=0.1), 2 * 12
    kept = saved(c, 2, dtype=torch.bfloat16)
    a_layer = saved_total([k for k in kept if k.part in ("block", "attention", "core", "MLP")]) / c.layers
    assert a_layer == n * 32 * (36 + 6 * 4 * 12 / 32) + 4 * 2 * n


@pytest.mark.parametrize("t", [1, 2, 8])
def test_parallel_formulas_are_the_papers(t):
    c = published("megatron-22b").config
    a, s, b, h = c.heads, c.sequence, 4, c.hidden
    one = {"tensor_parallel": t}
    both = {"tensor_parallel": t, "sequence_parallel": True}
    assert activation_bytes(c, b, **one) == pytest.approx(s * b * h * (10 + 24 / t + 5 * a * s / (h * t)))
    assert activation_bytes(c, b, **both) == pytest.approx(s * b * h / t * (34 + 5 * a * s / h))
    assert activation_bytes(c, b, recompute="selective", **both) == pytest.approx(34 * s * b * h / t)
    assert activation_bytes(c, b, recompute="full", **one) == 2 * s * b * h


def test_gpt3_at_its_layers_boundaries_is_a_small_part():
    """Counting one tensor a layer, as at a layer's boundary, leaves out more than nine tenths of what a layer keeps."""
    c = published("gpt3-175b").config
    boundary = 2 * c.sequence * c.hidden
    assert activation_bytes(c, 1) / boundary == pytest.approx((34 + 5 * 96 * 2048 / 12_288) / 2)  # 57 of them


def test_memory_that_is_shared_counts_once_and_weights_do_not():
    x = torch.randn(10, 10, requires_grad=True)
    assert saved_bytes(lambda: x * x) == 400  # both factors, one memory
    assert saved_bytes(lambda: x * x, [x]) == 0
    assert saved_bytes(lambda: (x.exp() * 2.0) / 3.0) == 400
    layer = nn.Linear(10, 10)
    assert saved_bytes(lambda: layer(x.detach()), layer.parameters()) == 400
    with torch.no_grad():
        assert saved_bytes(lambda: x * x) == 0


@pytest.mark.parametrize(("call", "says"), [
    (lambda: saved(shape(), 1, dtype=torch.int32), "activations are torch.float32, torch.bfloat16 or torch.float16"),
    (lambda: saved(shape(), 1, dtype=torch.float64), "activations are torch.float32"),
    (lambda: saved(shape(), 1, dtype="bf16"), "activations are torch.float32"),
    (lambda: saved(shape(), 1, core="flash"), "core is 'written' or 'fused'"),
    (lambda: saved(shape(), 1, recompute="all"), "recompute is None, 'selective' or 'full'"),
    (lambda: saved(shape(), 1, device="tpu"), "device is 'cpu' or 'cuda'"),
    (lambda: saved(shape(dropout=0.1), 1, core="fused"), "set dropout=0, or count for device='cuda'"),
    (lambda: activation_bytes(shape(ffn=40), 1), "count with memory.saved"),
    (lambda: activation_bytes(shape(), 1, tensor_parallel=3), "it divides 4"),
    (lambda: activation_bytes(shape(), 1, recompute="all"), "recompute is None"),
    (lambda: activation_bytes(shape(), 1, 13), "the model takes at most 12 tokens"),
])
def test_wrong_input_is_refused(call, says):
    with pytest.raises(ValueError, match=says):
        call()
