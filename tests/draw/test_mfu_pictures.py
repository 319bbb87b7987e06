"""The pictures of the chapter on MFU: what they say is what the definitions give."""

from __future__ import annotations

import itertools
import json
import re
from html import escape

import pytest
from ipywidgets.embed import dependency_state

from mlsyslab import mfu
from mlsyslab.draw import ladder, roofline, utilization
from mlsyslab.draw import mfu as draw
from mlsyslab.measure import peak
from mlsyslab.model import core_flops, parameters, published

# -- rooflines --------------------------------------------------------------------------------------------------------

#: TFLOP/s dense and TB/s, as in the datasheets, and bytes a number
PEAKS = {("V100", "16 bits"): (125, 2), ("A100", "fp32"): (19.5, 4), ("A100", "16 bits"): (312, 2),
         ("H100", "TF32"): (494.7, 4), ("H100", "16 bits"): (989.4, 2), ("H100", "fp8"): (1978.9, 1),
         ("B200", "fp8"): (4500, 1)}
BANDWIDTH = {"V100": 0.9, "A100": 2.039, "H100": 3.35, "B200": 7.7}


@pytest.mark.parametrize(("on", "precision"), PEAKS)
@pytest.mark.parametrize("m", [1, 128, 8192])
@pytest.mark.parametrize(("n", "p"), [(64, 64), (64, 16_384), (4096, 64), (4096, 16_384)])
def test_a_product_reaches_the_lower_of_peak_and_bandwidth(on, precision, m, n, p):
    tflops, item = PEAKS[on, precision]
    intensity = 2 * m * n * p / (item * (m * n + n * p + m * p))
    compute = intensity * BANDWIDTH[on] >= tflops
    picture = roofline.product(on, precision, m, n, p)
    said = picture.description
    assert said.startswith(f"{intensity:.2g} FLOPs" if intensity < 9.95 else f"{intensity:,.0f} FLOPs")
    assert f"ridge {tflops / BANDWIDTH[on]:,.0f}: {'compute' if compute else 'memory'}-bound" in said
    attainable = min(tflops, intensity * BANDWIDTH[on]) * 1e12
    assert f"at most {roofline.rate_of(attainable)}, {roofline.percent(attainable / tflops / 1e12)} of the peak" in said
    assert roofline.time_of(2 * m * n * p / attainable) in said
    dot = re.search(r'<circle class="point" cx="([\d.]+)" cy="([\d.]+)"', picture.svg())
    assert float(dot[1]) == pytest.approx(picture.x(intensity), abs=0.1)
    assert float(dot[2]) == pytest.approx(picture.y(attainable), abs=0.1)


@pytest.mark.parametrize(("on", "precision", "has"), [("A100", "fp8", "fp32, tf32, bf16, fp16"),
                                                     ("V100", "TF32", "fp32, fp16")])
def test_a_device_without_the_precision_says_what_it_has(on, precision, has):
    picture = roofline.product(on, precision, 1, 64, 64)
    assert has in picture.description and "point" not in picture.svg(style=False)


def test_every_frame_of_the_widget_can_be_read_without_the_picture():
    for on, precision in itertools.product(("A100", "H100", "B200"), ("fp32", "16 bits", "fp8")):
        for m, n, p in itertools.product((1, 16, 8192), (64, 512), (64, 16_384)):
            picture = roofline.product(on, precision, m, n, p)
            assert picture.title and picture.description and "e+" not in picture.description


@pytest.mark.parametrize(("share", "words"), [(0.0034, "0.34%"), (0.072, "7.2%"), (0.4567, "46%"), (1.0, "100%")])
def test_shares_have_two_digits(share, words):
    assert roofline.percent(share) == words


def test_rates_have_units():
    assert [roofline.rate_of(x) for x in (989.4e12, 2.25e15, 999.9e12, 3e9)] == ["989 TFLOP/s", "2.25 PFLOP/s", "1 PFLOP/s",
                                                                                "3 GFLOP/s"]


def test_later_devices_have_higher_roofs():
    said = draw.roofs().description
    assert [int(x) for x in re.findall(r"ridge (\d+)", said)] == [139, 153, 295, 292]


@pytest.mark.parametrize("attention", ["written", "fused"])
@pytest.mark.parametrize(("model", "batch"), [("gpt2-xl", 8), ("gpt3-6.7b", 4), ("llama3-8b", 1)])
def test_shares_add_up_and_what_is_no_product_has_time_without_flops(model, batch, attention):
    parts = roofline.parts(model, batch, attention=attention)
    assert sum(part.flops for part in parts) == pytest.approx(1)
    assert sum(part.seconds for part in parts) == pytest.approx(1)
    rest = [part for part in parts if part.sort == "no products"]
    assert sum(part.flops for part in rest) < 0.01 < 0.05 < sum(part.seconds for part in rest)
    core = [part.name for part in parts if part.sort == "attention's core"]
    assert core == (["fused attention"] if attention == "fused" else ["scores", "weighted values"])
    svg = draw.shares(model, batch, attention=attention).svg()
    assert all(f">{escape(part.name)}</text>" in svg for part in parts)


def test_each_operator_is_a_dot_with_its_name():
    svg = draw.under_roof("gpt3-6.7b", 4).svg()
    names = re.findall(r"<title>([^<:]+): [\d.]+% of the peak</title>", svg)
    assert sorted(names) == sorted(part.name for part in roofline.parts("gpt3-6.7b", 4))
    assert all(f">{escape(sort)}</text>" in svg for sort in roofline.SORTS)


# -- utilizations -----------------------------------------------------------------------------------------------------

RUNS = [*itertools.product(utilization.MODELS, (2048, 8192), ("A100", "H100", "B200"))]


@pytest.mark.parametrize(("model", "sequence", "on"), RUNS)
def test_the_same_run_told_in_other_ways(model, sequence, on):
    """Each way by its own definition, from parameters, shape and speed."""
    config = utilization._config(model, sequence)
    speed, devices, name = utilization.speed(model, 0.25), 8, utilization.DEVICES[on]
    run, ways = utilization.figures(config, speed, name, devices)
    told = {way.how.split(":")[0].split(",")[0]: way.share for way in ways}
    dense = peak(name, "bf16").flops
    c, core = config, 12 * config.layers * sequence * config.hidden
    unused = c.vocabulary * c.hidden + (2 * c.layers + 1) * c.hidden  # the embedding, and the norms' gains
    token = 6 * (parameters(c) - unused) + core
    assert run.flops_per_token == token and core * sequence == 3 * core_flops(c, 1)
    assert told["MFU"] == pytest.approx(token * speed / dense)
    assert told["attention's core left out"] == pytest.approx((token - core) * speed / dense)
    assert told["half of attention's core (causal)"] == pytest.approx((token - core / 2) * speed / dense)
    assert told["half of attention's core (causal)"] == pytest.approx(
        mfu.flops_per_token(c, causal=True) * speed / dense)
    assert told["6 N"] == pytest.approx(6 * parameters(c) * speed / dense)
    assert 1.31 < told["HFU"] / told["MFU"] < 4 / 3
    assert told["over the peak with sparsity"] == pytest.approx(told["MFU"] / 2)
    assert told["over the peak of TF32"] / told["MFU"] == pytest.approx(2, rel=0.03)
    assert [way.right for way in ways] == [True] + [False] * 6


def test_parameters_do_not_depend_on_the_sequence_that_is_chosen():
    for model, name in utilization.MODELS.items():
        assert {parameters(utilization._config(model, s)) for s in (2048, 8192)} == {parameters(published(name).config)}


def test_more_devices_at_the_same_speed_have_the_same_mfu():
    config = utilization._config("LLaMA 3, 8 billion", 2048)
    one, *more = ([way.share for way in utilization.figures(config, 3000, "H100 SXM", n)[1]] for n in (1, 8, 1024))
    assert all(shares == pytest.approx(one) for shares in more)


def test_more_than_all_is_called_impossible():
    fast, slow = (utilization.told("LLaMA 3, 8 billion", speed, 8192, "A100", 8).svg()
                  for speed in (utilization.speed("LLaMA 3, 8 billion", share) for share in (1.5, 0.1)))
    assert "more than all is impossible" in fast and "impossible" not in slow


def test_every_factor_is_on_the_frame():
    svg = utilization.told("LLaMA 3, 8 billion", 6500, 8192, "H100", 1024).svg()
    for words in ("8.03 billion", "57.9 GFLOP", "6,500", "376 TFLOP/s", "989 TFLOP/s", "38.0%", "1,024 H100"):
        assert words in svg


# -- the ladder -------------------------------------------------------------------------------------------------------


def row(rung, share, hfu=None, **more):
    return {"rung": rung, "size": "tiny", "precision": "fp32", "mfu": share, "hfu": hfu or share, "tflops": 3e-3,
            "tokens/s": 1234.0, "time": {"median_s": 0.5}, **more}


LEFT_OUT = {"rung": "graph", "size": "tiny", "precision": "bf16", "left out": "OutOfMemoryError: no & <more>"}


def widths(kind, svg):
    """Of the bars of a kind, from the top."""
    return [float(wide) for wide in re.findall(rf'<rect class="{kind}"[^>]* width="([\d.]+)"', svg)]


def test_bars_are_as_long_as_utilizations():
    svg = draw.ladder([row("a", 0.1), row("b", 0.2), row("c", 0.3, 0.4), LEFT_OUT], "Ladder").svg()
    assert widths("send", svg) == pytest.approx([ladder.BARS / 4, ladder.BARS / 2, ladder.BARS * 3 / 4])
    assert widths("again", svg) == [ladder.BARS]
    assert "MFU 30%, HFU 40%; 1,234 tokens/s" in svg and "no &amp; &lt;more&gt;" in svg


def test_without_a_peak_bars_are_speeds_and_no_mfu_is_told():
    svg = draw.ladder([row("a", None, tflops=0.001), row("b", None, tflops=0.002), LEFT_OUT], "Ladder").svg()
    assert "no peak is known, so there is no MFU" in svg and "1 GFLOP/s; 1,234 tokens/s" in svg and ">MFU" not in svg
    assert widths("send", svg) == [ladder.BARS / 2, ladder.BARS]


def test_nothing_measured_is_told_rung_by_rung():
    assert draw.ladder([LEFT_OUT], "Ladder").description.startswith("graph: OutOfMemoryError")
    with pytest.raises(ValueError, match="at least one row"):
        draw.ladder([], "Ladder")


def test_a_record_has_a_ladder_for_each_model():
    record = {"provenance": {"device": "NVIDIA H200", "date": "2026-01-02T03:04:05+00:00"},
              "ladder": [row("a", 0.1, size="2.6B"), row("b", 0.2, size="2.6B"), row("a", 0.1, size="350M")]}
    assert [picture.title for picture in draw.of_record(record)] == [
        f"A GPT of {size} parameters on NVIDIA H200, 2026-01-02" for size in ("2.6B", "350M")]


# -- the page ---------------------------------------------------------------------------------------------------------


def test_the_widgets_of_the_page_are_light():
    state = sum(len(json.dumps(dependency_state([widget]))) for widget in (draw.shapes(), draw.calculator()))
    assert state < 2.4e6
