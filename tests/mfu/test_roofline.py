"""Rooflines from their definition, and what they say of a GPT."""

import pytest

from mlsyslab.measure import device
from mlsyslab.mfu import ceiling, generations, operators, ridge, roofline, rooflines
from mlsyslab.model import Operator, published

H100 = device("H100 SXM")


def operator(flops, bytes, core="matmul"):
    return Operator("an operator", "part", core, 1, flops, bytes)


@pytest.mark.parametrize("intensity", [1, 10, 100, 295, 296, 1000, 10_000])
def test_attainable_is_the_lower_of_peak_and_bandwidth(intensity):
    found = roofline(operator(intensity * 10**9, 10**9), H100)
    assert found.attainable == pytest.approx(min(989.4e12, intensity * 3.35e12))
    assert found.bound == ("compute" if intensity >= 989.4 / 3.35 else "memory")
    assert found.seconds * found.attainable == pytest.approx(intensity * 10**9)
    assert found.share == pytest.approx(found.attainable / 989.4e12)


def test_what_tensor_cores_cannot_do_is_held_to_the_ordinary_cores():
    assert roofline(operator(10**15, 1, "vector"), H100).attainable == 66.9e12


def test_ridges_rise_with_the_generations():
    """From V100 to H100 peaks grew 8-fold and bandwidth less than 4-fold; the H200's memory took some of it back."""
    found = {g.device.name: g for g in generations()}
    assert found["V100 SXM2"].ridge == pytest.approx(139, abs=1)
    assert found["A100 SXM 80GB"].ridge == pytest.approx(153, abs=1)
    assert found["H100 SXM"].ridge == pytest.approx(295, abs=1) == ridge("H100 SXM")
    assert found["H200"].ridge < found["H100 SXM"].ridge and found["V100 SXM2"].sparse is None
    assert all(g.sparse == 2 * g.peak for g in generations() if g.sparse)
    years = [g.device.year for g in generations()]
    assert years == sorted(years)


def test_products_are_friendly_and_the_rest_is_not():
    """In GPT-3 each product with a weight reaches an H100's peak; no vector operator reaches a hundredth of it."""
    lines = {line.operator.name: line for line in rooflines(published("gpt3-175b").config, 1, H100)}
    assert all(line.share == pytest.approx(1) for name, line in lines.items()
               if line.operator.core == "matmul" and name not in ("scores", "weighted values"))
    assert lines["scores"].bound == "memory"  # its result is s^2, its operands s d
    assert all(line.share < 0.01 and line.bound == "memory" for line in lines.values() if line.operator.core == "vector")


def test_ceilings_fall_with_newer_devices_and_rise_with_size_and_fusion():
    small, large = published("gpt2").config, published("gpt3-175b").config
    over_time = [ceiling(small, 8, name, precision) for name, precision in
                 [("V100 SXM2", "fp16"), ("A100 SXM 80GB", "bf16"), ("H100 SXM", "bf16")]]
    assert over_time == sorted(over_time, reverse=True)
    assert ceiling(small, 8, H100) < ceiling(large, 1, H100) < ceiling(large, 1, H100, attention="fused") < 1


def test_operators_are_passed_on_from_the_model():
    assert [line.operator for line in rooflines(published("gpt2").config, 2, H100)] == operators(published("gpt2").config, 2)
