"""Wrong input to what the chapter uses: refused, with what was given and what is right."""

import math
from dataclasses import replace

import pytest
import torch

from mlsyslab.measure import Peak, matmul_rate, mfu, peak, precision_name
from mlsyslab.mfu import ceiling, claim, factors, ridge, roofline, rooflines
from mlsyslab.model import Config, Operator, forward_flops, matmul_flops, operators, training_flops

GPT = Config(layers=2, hidden=48, heads=4, vocabulary=96, sequence=32)
H100 = peak("H100 SXM", "bf16")


@pytest.mark.parametrize("heads", [5, 7, 9, 36, 96])
def test_heads_that_do_not_divide(heads):
    with pytest.raises(ValueError, match=f"{heads} heads don't divide a width of 48; take .*, or give head_width"):
        replace(GPT, heads=heads, kv_heads=None, head_width=None)


@pytest.mark.parametrize("seconds", [-1.0, 0.0, -math.inf, math.inf, math.nan, True])
@pytest.mark.parametrize("call", [
    lambda seconds: factors(GPT, 8, seconds, H100),
    lambda seconds: replace(claim("palm 540b"), seconds=seconds).reproduced(),
    lambda seconds: replace(claim("korthikanti 22b"), seconds=seconds).counted()])
def test_times_that_cannot_be(call, seconds):
    with pytest.raises(ValueError, match="seconds is finite and more than 0"):
        call(seconds)


@pytest.mark.parametrize("precision", ["bfloat", "int8", "", torch.int8, torch.complex64, None])
@pytest.mark.parametrize("call", [
    precision_name,
    lambda precision: peak("H100 SXM", precision),
    lambda precision: ridge("H100 SXM", precision),
    lambda precision: rooflines(GPT, 1, "H100 SXM", precision),
    lambda precision: ceiling(GPT, 1, "H100 SXM", precision),
    lambda precision: matmul_rate(8, 8, 8, precision),
    lambda precision: mfu(lambda: None, 1.0, precision)])
def test_precisions_that_nobody_knows(call, precision):
    with pytest.raises(ValueError, match="it is one of fp32, tf32, bf16, fp16, fp8, or the torch type of one"):
        call(precision)


@pytest.mark.parametrize("of", ["fp32", "tf32", "fp16", "fp8"])
def test_a_peak_of_another_precision(of):
    """Even where the figure would be the same, as of fp16 and bf16."""
    other = peak("H100 SXM", of)
    says = f"computed in bf16, but the peak of H100 SXM is given for {of}: take the peak of the precision that is computed"
    with pytest.raises(ValueError, match=says):
        factors(GPT, 8, 1.0, other, precision="bf16")
    with pytest.raises(ValueError, match=says):
        mfu(lambda: None, 1.0, torch.bfloat16, peak=other, repeat=1)


def test_a_peak_with_sparsity():
    sparse = peak("B200", "bf16", sparse=True)
    for call in (lambda: factors(GPT, 8, 1.0, sparse), lambda: mfu(lambda: None, 1.0, "bf16", peak=sparse, repeat=1)):
        with pytest.raises(ValueError, match="take the dense peak, 2,250.0 TFLOP/s"):
            call()


@pytest.mark.parametrize("flops", [0.0, -1.0, math.nan, math.inf])
def test_peaks_that_cannot_be(flops):
    for of in (flops, Peak(flops, "bf16", "mine", "a datasheet")):
        with pytest.raises(ValueError, match="a peak is finite and more than 0 FLOP/s"):
            factors(GPT, 8, 1.0, of)


@pytest.mark.parametrize(("call", "says"), [
    (lambda: factors(GPT, 0, 1.0, H100), "batch is a whole number, 1 or more"),
    (lambda: factors(GPT, 2.5, 1.0, H100), "batch is a whole number, 1 or more"),
    (lambda: factors(GPT, 8, 1.0, H100, sequence=33), "the model takes at most 32 tokens"),
    (lambda: factors(GPT, 8, 1.0, H100, devices=0), "devices is a whole number, 1 or more"),
    (lambda: factors(GPT, 8, 1.0, H100, recompute="half"), "recompute is None, 'selective' or 'full'"),
    (lambda: training_flops(GPT, -1), "batch is a whole number, 1 or more"),
    (lambda: forward_flops(GPT, 1, 0), "sequence is a whole number, 1 or more"),
    (lambda: operators(GPT, 1, attention="flash"), "attention is 'written' or 'fused'"),
    (lambda: matmul_flops(8, 0, 8), "a side of a matrix is a whole number, 1 or more"),
    (lambda: roofline(Operator("x", "x", "matmul", 1, 1, 1), "H1000"), "Known are V100 SXM2"),
    (lambda: rooflines(GPT, 1, "V100 SXM2", "bf16"), "it computes in fp32, fp16"),
])
def test_all_else(call, says):
    with pytest.raises(ValueError, match=says):
        call()
