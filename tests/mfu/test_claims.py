"""Published utilizations, computed again from configurations and times, within 0.3 points."""

import pytest

from mlsyslab.measure import peak
from mlsyslab.mfu import CLAIMS, NARAYANAN, TRAINING_TIMES, claim, factors
from mlsyslab.model import narayanan_parameters, parameters, published, training_flops


@pytest.mark.parametrize("row", NARAYANAN, ids=lambda row: row.model)
def test_every_row_of_narayanans_table(row):
    """Parameters, TFLOP/s a GPU and percent of peak, to the digits printed."""
    config, billions = published(row.model).config, published(row.model).billions
    assert round(parameters(config) / 1e9, 1) == round(narayanan_parameters(config) / 1e9, 1) == billions
    flops = training_flops(config, row.batch, recompute="full")
    tflops = flops / row.seconds / row.gpus / 1e12
    assert tflops == pytest.approx(row.tflops, abs=0.6)  # the aggregate is printed to 0.1 PFLOP/s
    _, hfu = claim(f"narayanan {row.model.removeprefix('megatron-')}").reproduced()
    assert hfu == pytest.approx(100 * row.tflops / 312, abs=0.3)
    assert round(hfu) == row.percent


@pytest.mark.parametrize("row", TRAINING_TIMES, ids=lambda row: f"{row.scheme} {row.model} {row.gpus}")
def test_throughput_from_days(row):
    """Table 2 prints days and throughput: 300 billion tokens in so many days, to the day, make the TFLOP/s, to the digit."""
    config = published(row.model).config
    flops = 300e9 / config.sequence * training_flops(config, 1, recompute="full")
    slow, fast = (flops / (row.gpus * days * 86_400) / 1e12 for days in (row.days + 0.5, row.days - 0.5))
    assert slow <= row.tflops + 0.5 and fast >= row.tflops - 0.5


@pytest.mark.parametrize("name", [name for name, c in CLAIMS.items() if c.mfu is not None])
def test_mfu_within_three_tenths_of_a_point(name):
    found = claim(name)
    mfu, hfu = found.reproduced()
    assert mfu == pytest.approx(found.mfu, abs=0.3)
    if found.hfu is not None:
        assert hfu == pytest.approx(found.hfu, abs=0.3)


def test_korthikantis_speedups():
    """Less recomputation made each model 29 to 32 percent faster (table 5)."""
    for name, printed in {"22b": 29.0, "175b": 31.8, "530b": 29.7, "1t": 32.1}.items():
        ratio = claim(f"korthikanti {name}, full recomputation").seconds / claim(f"korthikanti {name}").seconds
        assert 100 * (ratio - 1) == pytest.approx(printed, abs=0.3)


def test_the_selective_hfu_counts_attentions_core_twice_more_than_it_is_computed():
    """Equation 8 adds s/6h where one more forward adds s/18h: the printed HFU of the 22B is 1.4 points above the count."""
    found = claim("korthikanti 22b")
    assert found.reproduced()[1] - found.counted() == pytest.approx(1.44, abs=0.05)
    model, printed = found.flops()
    counted = training_flops(found.config, found.batch, recompute="selective")
    assert printed - model == 3 * (counted - model)


def test_full_recomputation_leaves_three_quarters():
    """MFU = 3/4 HFU, but for the logits, which aren't computed again."""
    for name, found in CLAIMS.items():
        if found.recompute == "full":
            mfu, hfu = found.reproduced()
            assert 0.75 <= mfu / hfu < 0.765, name


def test_factors_multiply_to_the_claim():
    found = claim("korthikanti 175b")
    f = factors(found.config, found.batch, found.seconds, peak(found.device, "bf16"), devices=found.devices,
                recompute="selective", precision="bf16")
    assert 100 * f.mfu == pytest.approx(found.mfu, abs=0.3) and 100 * f.hfu == pytest.approx(found.counted())
    assert f.tokens * f.flops_per_token == pytest.approx(f.model_flops)
    assert f.tokens_per_second * f.flops_per_token / found.devices == pytest.approx(f.achieved)
    assert f.achieved / f.peak == pytest.approx(f.mfu)
    with pytest.raises(ValueError, match="computed in fp16, but the peak of H100 SXM is given for bf16"):
        factors(found.config, 1, 1.0, peak("H100 SXM", "bf16"), precision="fp16")


def test_an_unknown_claim_is_refused():
    with pytest.raises(ValueError, match="there are narayanan 1.7b, "):
        claim("gpt-5")
