"""Plans: the papers' days and sizes, and answers that fit what they are about."""

import pytest

from mlsyslab.measure import peak
from mlsyslab.memory import compute_optimal, devices_for, narayanan_days, plan, training, training_days
from mlsyslab.model import parameters, published, training_flops


def test_narayanans_days():
    """34 days for GPT-3 on 1,024 A100s at 140 TFLOP/s; 84 for a trillion on 3,072 at 163 (section 5.1)."""
    assert round(narayanan_days(175e9, 300e9, 1024, 140e12)) == 34
    assert round(narayanan_days(1008e9, 450e9, 3072, 163e12)) == 84


def test_days_from_an_mfu_are_days_from_throughput():
    """The same run, told by MFU: 140 TFLOP/s that count recomputation are 140 / 312 * model FLOPs / hardware FLOPs."""
    config = published("megatron-175b").config
    ratio = training_flops(config, 1) / training_flops(config, 1, recompute="full")
    days = training_days(config, 300e9, 1024, peak("A100 SXM 80GB", "bf16").flops, 140 / 312 * ratio)
    assert days == pytest.approx(narayanan_days(174.6e9, 300e9, 1024, 140e12), rel=0.04)


def test_chinchilla():
    """The budget of Gopher, 5.76e23 FLOPs, is best spent on 70 billion parameters and 1.4 trillion tokens."""
    parameters, tokens = compute_optimal(5.76e23)
    assert parameters == pytest.approx(70e9, rel=0.02) and tokens == pytest.approx(1.4e12, rel=0.02)
    assert 6 * parameters * tokens == pytest.approx(5.76e23)


def test_devices_and_days_are_two_sides_of_one_sum():
    config = published("llama-7b").config
    for days in (1, 7.5, 100):
        n = devices_for(config, 1e12, days, 989e12, 0.4)
        assert training_days(config, 1e12, n, 989e12, 0.4) <= days < training_days(config, 1e12, max(1, n - 1), 989e12, 0.4)


def test_a_model_that_fits_needs_nothing():
    found = plan(published("gpt2").config, 1e9, "H100 SXM", batch=8, days=30)
    assert (found.fits, found.devices, found.accumulate, found.recompute) == (True, 1, 1, None)
    assert len(found.steps) == 2 and "yes" in found.steps[0] and "acceptable" in found.steps[1]


@pytest.mark.parametrize(("name", "device", "batch", "core"), [
    ("gpt2", "H100 SXM", 512, "fused"), ("gpt2-xl", "A100 SXM 80GB", 64, "written"), ("gpt2-large", "T4", 8, "fused"),
    ("megatron-3.6b", "H100 SXM", 8, "written"), ("llama-7b", "H200", 256, "fused"), ("gpt3-175b", "B200", 1536, "fused")])
def test_what_is_planned_fits_and_a_gentler_plan_would_not(name, device, batch, core):
    config = published(name).config
    found = plan(config, 1e9, device, batch=batch, core=core)
    room = 0.9 * {"H100 SXM": 80e9, "A100 SXM 80GB": 80e9, "T4": 16e9, "H200": 141e9, "B200": 180e9}[device]

    def held(b, recompute):
        return training(config, b, precision="mixed", core=core, recompute=recompute, device="cuda").peak

    assert found.batch * found.accumulate >= batch and found.peak_bytes <= room
    if found.fits:
        assert found.peak_bytes == held(found.batch, found.recompute)
        assert found.batch == batch or held(found.batch + 1, found.recompute) > room
        if found.recompute:
            assert held(1, None) > room
    else:
        assert held(1, "full") > room >= held(1, "full") / found.split and held(1, "full") / (found.split - 1) > room


@pytest.mark.parametrize(("name", "device", "batch", "days"), [
    ("llama3-8b", "H200", 256, None), ("llama3-8b", "H200", 256, 60), ("llama-7b", "H100 SXM", 64, None),
    ("gpt3-6.7b", "A100 SXM 80GB", 3, 1)])
def test_before_a_model_is_split_its_state_is_shared_out(name, device, batch, days):
    """Among the fewest replicas with which it fits: of 16 bytes a parameter, 12 are cut by their number."""
    config = published(name).config
    found = plan(config, 1e9, device, batch=batch, days=days)
    room = 0.9 * {"H100 SXM": 80e9, "A100 SXM 80GB": 80e9, "H200": 141e9}[device]

    def held(b, recompute, ranks):
        whole = training(config, b, precision="mixed", core="fused", recompute=recompute, device="cuda").peak
        return whole - 12 * parameters(config) * (1 - 1 / ranks)

    assert found.fits and found.split == 1 and 1 < found.sharded <= found.replicas and "ZeRO" in str(found)
    assert held(1, "full", found.sharded) <= room < held(1, "full", found.sharded - 1)
    assert found.peak_bytes == pytest.approx(held(found.batch, found.recompute, found.sharded)) and found.peak_bytes <= room
    assert found.replicas * found.batch * found.accumulate >= batch
    assert days is None or found.days <= days


def test_a_single_sequence_is_not_shared_out():
    assert plan(published("llama3-8b").config, 1e9, "H200", batch=1).split == 2


def test_too_slow_takes_replicas():
    config = published("gpt2-xl").config
    found = plan(config, 1e11, "A100 SXM 80GB", batch=512, days=7)
    assert found.replicas > 1 and found.days <= 7 and "data-parallel" in str(found)
    assert found.replicas * found.batch * found.accumulate >= 512 - found.replicas
    assert plan(config, 1e11, "A100 SXM 80GB", batch=1, days=1).steps[-1].startswith("But")


def test_recomputation_costs_a_third_of_the_time():
    """3/4 of the FLOPs that are carried out are the model's."""
    config = published("llama-7b").config
    split = plan(config, 1e9, "H100 SXM", batch=1)
    assert split.recompute == "full"
    plain_days = training_days(config, 1e9, split.devices, 989.4e12, 0.4)
    assert split.days / plain_days == pytest.approx(4 / 3, rel=0.02)


@pytest.mark.parametrize(("call", "says"), [
    (lambda c: plan(c, 1e9, "H100"), "Known are V100 SXM2"),
    (lambda c: plan(c, 0, "T4"), "tokens is a finite number, more than 0"),
    (lambda c: plan(c, 1e9, "T4", batch=0), "batch is a whole number"),
    (lambda c: plan(c, 1e9, "T4", days=-1), "days is a finite number, more than 0"),
    (lambda c: plan(c, 1e9, "T4", mfu=40), "as 0.4 for 40 percent"),
    (lambda c: training_days(c, 1e9, 0, 1e12, 0.4), "devices is a whole number"),
    (lambda c: compute_optimal(-1.0), "flops is a finite number"),
])
def test_wrong_input_is_refused(call, says):
    with pytest.raises(ValueError, match=says):
        call(published("gpt2").config)
