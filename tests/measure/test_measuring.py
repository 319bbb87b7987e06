"""Timing, clocks and the measured step, with a clock that the test turns."""

import pytest
import torch

from mlsyslab import measure
from mlsyslab.measure import (
    Clocks,
    Peak,
    Timing,
    best_matmul,
    matmul,
    measured_peak,
    mfu,
    operator_class,
    operator_seconds,
    timed,
    timing,
)
from mlsyslab.measure import step as step_module
from mlsyslab.measure.clocks import parse
from mlsyslab.measure.matmul import matmul_rate, tf32


@pytest.fixture
def clock(monkeypatch):
    """A clock that moves only when it is told to."""
    class Clock:
        now = 0.0

        def __call__(self):
            return self.now

    turned = Clock()
    monkeypatch.setattr(timing.time, "perf_counter", turned)
    return turned


def lasting(clock, *seconds):
    """A function whose runs last so long, one after the other, the last of them for ever."""
    left = list(seconds)

    def run():
        clock.now += left.pop(0) if len(left) > 1 else left[0]
        run.runs += 1

    run.runs = 0
    return run


def test_warm_up_does_not_count(clock):
    fn = lasting(clock, 9, 9, 1, 2, 3, 4, 5)
    times = timed(fn, warm_up=2, repeat=5, device="cpu")
    assert times.seconds == (1, 2, 3, 4, 5) and times.median == 3 and times.spread == 3 and fn.runs == 7


def test_a_budget_ends_it_but_one_run_is_always_timed(clock):
    fn = lasting(clock, 2)
    assert timed(fn, warm_up=1, repeat=100, budget=7, device="cpu").seconds == (2, 2, 2) and fn.runs == 4
    slow = lasting(clock, 50)
    assert timed(slow, warm_up=3, repeat=100, budget=1, device="cpu").seconds == (50,) and slow.runs == 2


def test_one_run_has_no_spread():
    assert Timing((3.0,)).spread == 0.0 and Timing((3.0,)).median == 3.0


@pytest.mark.parametrize("wrong", [{"warm_up": -1}, {"repeat": 0}, {"budget": 0}])
def test_timing_nothing_is_refused(wrong):
    with pytest.raises(ValueError, match="warm_up is 0 or more, repeat 1 or more, budget more than 0 s or None"):
        timed(lambda: None, **wrong)


PEAK = Peak(100e9, "fp32", "mine", "a datasheet")


def test_mfu_hfu_and_tokens_of_a_step(clock):
    found = mfu(lasting(clock, 2), flops=60e9, hardware_flops=80e9, precision="fp32", tokens=500, peak=PEAK,
                best_matmul=50e9)
    assert (found.seconds, found.repeats, found.spread) == (2, 10, 0)
    assert found.mfu == pytest.approx(0.3) and found.hfu == pytest.approx(0.4)
    assert found.mfu / found.hfu == pytest.approx(3 / 4)
    assert found.tokens_per_second == 250 and found.flops_rate == 30e9 and found.of_best == pytest.approx(0.6)
    assert found.precision == "fp32" and found.note == ""


def test_an_unknown_device_has_no_mfu_and_says_so(clock, monkeypatch):
    monkeypatch.setattr(step_module, "this_device", lambda: None)
    monkeypatch.setattr(step_module, "device_name", lambda: "NVIDIA Something")
    found = mfu(lasting(clock, 2), flops=60e9, precision="bf16", tokens=500)
    assert found.mfu is None and found.hfu is None and found.peak is None
    assert found.note.startswith("no peak is known for NVIDIA Something, so there is no MFU")
    assert found.flops_rate == 30e9  # what needs no peak is still told


def test_a_known_device_without_that_precision_has_no_mfu(clock, monkeypatch):
    monkeypatch.setattr(step_module, "this_device", lambda: measure.device("V100 SXM2"))
    found = mfu(lasting(clock, 2), flops=60e9, precision="bf16")
    assert found.mfu is None and found.note == "V100 SXM2 has no peak in bf16, so there is no MFU; it computes in fp32, fp16"
    found = mfu(lasting(clock, 2), flops=125e12, precision="fp16")
    assert found.mfu == pytest.approx(0.5) and found.peak == 125e12


def test_a_peak_of_another_precision_is_refused(clock):
    with pytest.raises(ValueError, match="computed in bf16, but the peak of mine is given for fp32"):
        mfu(lasting(clock, 2), flops=60e9, precision="bf16", peak=PEAK)
    with pytest.raises(ValueError, match="hardware_flops is at least flops"):
        mfu(lasting(clock, 2), flops=60e9, hardware_flops=50e9, precision="fp32", peak=PEAK)


@pytest.mark.parametrize("hardware_flops", [201e9, None])
def test_more_than_the_peak_is_no_mfu(clock, hardware_flops):
    """Also where only what is computed again goes beyond it."""
    found = mfu(lasting(clock, 2), flops=201e9 if hardware_flops is None else 199e9, hardware_flops=hardware_flops,
                precision="fp32", peak=PEAK)
    assert found.mfu is None and found.hfu is None
    assert found.note.startswith("100% of 100 GFLOP/s (a datasheet): nothing exceeds its peak")


def test_a_measured_peak_is_marked():
    found = measured_peak("fp32", budget=0.2)
    assert found.measured and found.flops > 0 and "measured here" in found.source
    assert mfu(lambda: None, 1.0, "fp32", peak=found, repeat=1).note == found.source


def test_the_best_matmul_is_the_fastest_shape():
    shapes = [(8, 8, 8), (64, 64, 64), (128, 64, 128)]
    best = best_matmul("fp32", shapes=shapes, budget=1.0)
    assert (best.m, best.n, best.p) in shapes and best.rate == 2 * best.m * best.n * best.p / best.seconds
    with pytest.raises(ValueError, match="torch.matmul takes fp32, tf32, bf16, fp16"):
        matmul_rate(8, 8, 8, "fp8")


def test_a_shape_that_would_outlast_the_budget_is_passed_over(monkeypatch):
    """At 1 GFLOP/s, two runs of 100 x 100 x 100 take 4 ms, and two of 1000 x 1000 x 1000 take 4 s."""
    tried = []

    def one_gigaflop(m, n, p, *args, **kwargs):
        tried.append(m)
        return measure.Matmul(m, n, p, 2 * m * n * p / 1e9, 0.0)

    monkeypatch.setattr(matmul, "matmul_rate", one_gigaflop)
    cubes = [(m, m, m) for m in (10, 1000, 100)]
    assert best_matmul("fp32", shapes=cubes, budget=3.0).rate == pytest.approx(1e9) and tried == [10, 100]
    best_matmul("fp32", shapes=cubes)
    assert tried[2:] == [10, 1000, 100]


def test_tf32_is_put_back():
    before = torch.get_float32_matmul_precision()
    with tf32(True):
        assert torch.get_float32_matmul_precision() == "high"
        with tf32(False):
            assert torch.get_float32_matmul_precision() == "highest"
    assert torch.get_float32_matmul_precision() == before


@pytest.mark.parametrize(("name", "of"), [
    ("nvjet_hsh_128x256_64x4_2x1_v_bz_coopA_NNT", "matmul"), ("ampere_bf16_s16816gemm_bf16_128x256", "matmul"),
    ("aten::addmm", "matmul"), ("pytorch_flash::flash_fwd_kernel", "attention"), ("aten::gelu", "elementwise"),
    ("void at::native::vectorized_layer_norm_kernel", "normalization"), ("cunn_SoftMaxForward", "softmax, loss"),
    ("multi_tensor_apply_kernel<FusedAdam>", "optimizer"), ("Memcpy DtoD", "copy"), ("aten::bernoulli_", "random"),
    ("aten::embedding", "embedding"), ("triton_poi_fused_gelu_0", "elementwise")])
def test_kernels_by_class(name, of):
    assert operator_class(name) == of


def test_where_a_steps_time_goes():
    a = torch.randn(256, 256)
    seconds = operator_seconds(lambda: [a @ a for _ in range(20)])
    assert next(iter(seconds)) == "matmul" and all(s > 0 for s in seconds.values())


def test_clocks_of_a_line_of_nvidia_smi():
    sample = parse("1755, 1980, 2619, 612.31, 700.00, 54, 0x0000000000000004")
    assert sample == {"sm_clock_mhz": 1755, "sm_clock_max_mhz": 1980, "memory_clock_mhz": 2619, "power_w": 612.31,
                      "power_limit_w": 700, "temperature_c": 54, "held_down_by": ["power cap"]}
    assert parse("1755, 1980, 2619, [N/A], 700.00, 54, 0x0000000000000061")["held_down_by"] == ["thermal, software",
                                                                                              "thermal, hardware"]
    assert parse("1755, 19") is None


def test_clocks_are_summed_up():
    clocks = Clocks()
    with clocks:
        pass
    clocks.samples = [parse(f"{mhz}, 1980, 2619, 600, 700, 54, {bits}")
                      for mhz, bits in ((1980, "0x1"), (1500, "0x4"), (1700, "0x4"))]
    assert clocks.summary()["sm_clock_mhz"] == 1700 and clocks.summary()["held_down_by"] == ["power cap"]
    clocks.samples = []
    assert clocks.summary() == {}


def test_provenance_tells_where_when_and_with_what():
    record = measure.provenance()
    assert record["torch"] == torch.__version__ and record["device"] and record["date"].endswith("+00:00")
    assert record["commit"] is None or len(record["commit"].rstrip("+")) == 40
