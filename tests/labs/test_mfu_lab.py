"""The lab `mfu`: ways that are as good as the reference, what answers are compared with, inputs, and where a run comes from.

See test_exercises.py for the rest.
"""

from __future__ import annotations

import itertools
import json
import statistics
import time
from fractions import Fraction

import numpy as np
import pytest
import torch
from exercises import SOLUTIONS, message, solved
from mfu_wrong import linear_flops_of_multiplications, logged, step, timed
from torch.utils.flop_counter import FlopCounterMode

from mlsyslab import mfu
from mlsyslab.check import inputs
from mlsyslab.check import mfu as check
from mlsyslab.check.elsewhere import Elsewhere
from mlsyslab.check.mfu import audits, climbed, ladders, timing
from mlsyslab.check.mfu.bounds import roofline
from mlsyslab.check.mfu.counts import linear_flops, llama, matrices
from mlsyslab.check.mfu.logs import read, written
from mlsyslab.mfu import Climb, Limits
from mlsyslab.model import GPT, Operator, parameters, training_flops

# -- other right solutions --------------------------------------------------------------------------------------------


def parameters_by_numpy(L, h, a, g, f, V, tied):
    d = h // a
    block = sum(rows * columns for rows, columns in [(h, h), (h, g * d), (h, g * d), (h, h), (h, f), (h, f), (f, h)])
    return {"multiplied": np.int64(L * block + V * h), "all": float(L * (block + 2 * h) + h + V * h * (2 - tied))}


def step_flops_product_by_product(L, h, a, g, f, V, s, B, causal):
    d, tokens = h // a, B * s
    products = [(tokens, n, p) for n, p in [(h, a * d), (h, g * d), (h, g * d), (a * d, h), (h, f), (h, f), (f, h)]] * L
    forward = sum(2 * m * n * p for m, n, p in [*products, (tokens, h, V)])
    scores = L * B * a * (2 * s * d * s + 2 * s * s * d)
    return 3 * (forward + (scores / 2 if causal else scores))


def roofline_by_intensity(m, n, p, item, peak, bandwidth):
    intensity, ridge = 2 / item / (1 / p + 1 / m + 1 / n), peak / bandwidth
    return {"bound": "memory" if intensity < ridge * (1 - 1e-12) else "compute", "intensity": np.float64(intensity),
            "seconds": 2 * m * n * p / min(peak, intensity * bandwidth)}


def roofline_in_numpy_s_words(*given):
    found = roofline(*given)
    return {"intensity": np.float32(found["intensity"]), "seconds": Fraction(found["seconds"]),
            "bound": np.array([found["bound"]])[0]}


def log_mfu_line_by_line(log, flops_per_token, peak, devices, warm_up):
    """Without regular expressions; a step that is done again takes the place of the first."""
    steps, rates, count, before, unit = {}, [], 0, 0.0, flops_per_token / (devices * peak)
    for line in log.splitlines():
        stamp, _, text = line.partition("] ")
        at, words = float(stamp[1:]), text.split()
        if words[0] == "step":
            steps[int(words[1])] = int(words[-1])
            count += 1
            if count > warm_up:
                rates.append(int(words[-1]) / (at - before))
        if words[0] == "restart":
            count, steps = 0, {step: n for step, n in steps.items() if step <= int(words[3].rstrip(":"))}
        before = at
    return {"run": sum(steps.values()) / at * unit, "steady": float(np.median(rates)) * unit}


def audit_by_rounding(claim):
    """As a reader would: the first of the mistakes that gives the printed figure."""
    peaks = audits.PEAKS[claim["device"]]
    own = peaks[claim["precision"]]
    flops, times = 6 * claim["multiplied"] + claim["attention"], sorted(claim["seconds"][claim["warm_up"]:])
    unit = claim["tokens"] / claim["devices"]
    right = unit * flops / statistics.median(times) / own
    ways = {None: [right], "sparse": [right / 2],
            "precision": [right * own / peak for of, peak in peaks.items() if of != claim["precision"]],
            "recomputation": [right * (flops + claim["recomputed"]) / flops],
            "embedding": [right * (flops + 6 * claim["embedding"]) / flops],
            "warm-up": [right * statistics.median(times) / (sum(claim["seconds"]) / len(claim["seconds"]))]}
    found = [error for error, values in ways.items() for value in values if abs(100 * value - claim["percent"]) <= 0.0501]
    return {"mfu": right, "error": found[0]}


def audit_in_numpy_s_words(claim):
    found = audit_by_rounding(claim)
    return found | {"error": found["error"] and np.str_(found["error"])}


def utilizations_layer_by_layer(L, layer, core, output, full, selective, seconds, peak):
    needed = 3 * output + sum(3 * layer for _ in range(L))
    done = needed + sum(layer if i < full else core if i < full + selective else 0 for i in range(L))
    return {"mfu": needed / peak / seconds, "hfu": done / peak / seconds, "seconds": needed / (done / seconds)}


def ladder_from_below(run):
    found = [None] * len(run["rungs"])
    measured = [i for i, rung in enumerate(run["rungs"]) if rung["seconds"]]
    for last, i in zip([None, *measured], measured, strict=False):
        rung = run["rungs"][i]
        flops, peak = rung["model_flops"] / rung["seconds"], run["peaks"][rung["precision"]]
        mfu = flops / peak if peak else None
        gain = None
        if last is not None:
            below = run["rungs"][last]
            gain = rung["tokens"] * below["seconds"] / below["tokens"] / rung["seconds"]
        found[i] = {"mfu": mfu, "hfu": mfu and mfu * rung["hardware_flops"] / rung["model_flops"],
                    "of_best": flops / run["best"][rung["precision"]], "gain": gain}
    return tuple(found)


def product_seconds_of_halves(n, dtype, device, warm_up, repeat):
    return timed(n, dtype, device, warm_up, repeat, pair=torch.randn(2 * n, n, dtype=dtype, device=device).chunk(2))


def product_seconds_in_place(n, dtype, device, warm_up, repeat):
    """Fills what was empty, and multiplies into a third part of the same memory, without versions."""
    with torch.inference_mode():
        a, b, c = torch.empty(3, n, n, dtype=dtype, device=device).normal_()
        times = []
        for _ in range(warm_up + repeat):
            begin = time.perf_counter()
            torch.mm(a, b, out=c)
            times.append(time.perf_counter() - begin)
    return times[warm_up:]


def product_seconds_warmed_up_by_others(n, dtype, device, warm_up, repeat):
    timed(n, dtype, device, warm_up, 0)
    return timed(n, dtype, device, 0, repeat)


@pytest.mark.parametrize("exercise, fn", [
    ("parameters", parameters_by_numpy), ("step_flops", step_flops_product_by_product), ("roofline", roofline_by_intensity),
    ("log_mfu", log_mfu_line_by_line), ("log_mfu", logged), ("audit", audit_by_rounding),
    ("utilizations", utilizations_layer_by_layer), ("product_seconds", timed), ("ladder", ladder_from_below),
    ("roofline", roofline_in_numpy_s_words), ("audit", audit_in_numpy_s_words),
    ("product_seconds", product_seconds_of_halves), ("product_seconds", product_seconds_in_place),
    ("product_seconds", product_seconds_warmed_up_by_others)])
def test_other_ways_that_are_as_good_pass_too(exercise, fn, monkeypatch):
    getattr(check, exercise)(fn)
    for seed in ("1", "2", "another"):
        monkeypatch.setenv(inputs.SEED, seed)
        getattr(check, exercise)(fn, hidden=True)


# -- what answers are compared with -----------------------------------------------------------------------------------


@pytest.mark.parametrize("input_gradient", [True, False])
def test_a_linear_layer_takes_the_flops_that_torch_counts(input_gradient):
    for B, s, n, p in itertools.product((1, 3), (2, 5), (4, 7), (1, 6)):
        x = torch.randn(B, s, n, requires_grad=input_gradient)
        layer = torch.nn.Linear(n, p, bias=False)
        with FlopCounterMode(display=False) as forward:
            y = layer(x)
        with FlopCounterMode(display=False) as backward:
            y.sum().backward()
        assert linear_flops(B, s, n, p, input_gradient) == (forward.get_total_flops(), backward.get_total_flops())


@pytest.mark.parametrize("tied", [False, True])
def test_parameters_and_flops_are_those_of_a_model_that_is_built(tied):
    """On the meta device, where nothing is stored: what its matrices are, and what torch counts of its step."""
    for L, (h, a, g), f, V, s, B in itertools.product((1, 2), ((8, 4, 2), (12, 2, 2)), (5, 9), (7, 10), (3,), (1, 2)):
        config = llama(L, h, a, g, f, V, tied, s)
        with torch.device("meta"):
            model = GPT(config)
            tokens = torch.zeros(B, s, dtype=torch.int64)
            with FlopCounterMode(display=False) as counted:
                model.loss(tokens, tokens).backward()
        shapes = [p.shape for p in model.parameters()]
        assert sum(map(torch.Size.numel, shapes)) == parameters(config)
        looked_up = 0 if tied else V * h
        assert sum(shape.numel() for shape in shapes if len(shape) == 2) - looked_up == matrices(L, h, a, g, f, V)
        expected = step_flops_product_by_product(L, h, a, g, f, V, s, B, False)
        assert counted.get_total_flops() == training_flops(config, B) == expected


@pytest.mark.parametrize("device", ["A100 SXM 80GB", "H100 SXM"])
def test_the_roofline_is_the_library_s(device):
    of = mfu.device(device)
    for m, n, p in itertools.product((1, 64, 4096), repeat=3):
        operator = Operator("product", "", "matmul", 1, 2 * m * n * p, 2 * (m * n + n * p + m * p))
        right, came = mfu.roofline(operator, of), roofline(m, n, p, 2, mfu.peak(of, "bf16").flops, of.bandwidth * 1e12)
        assert came == {"intensity": operator.intensity, "seconds": pytest.approx(right.seconds), "bound": right.bound}


def test_the_lab_prints_the_library_s_peaks_and_the_claims_that_are_checked_first():
    names = solved("mfu")
    assert names["PEAKS"] == audits.PEAKS and names["CLAIMS"] == audits.CLAIMS
    assert [audits.error_of(claim) for claim in audits.CLAIMS] == ["sparse", "recomputation", "warm-up"]
    text = (SOLUTIONS / "mfu.py").read_text(encoding="utf-8")
    assert all(f"**{claim['percent']}%**" in text for claim in audits.CLAIMS)


def test_the_log_that_the_lab_prints_is_one_of_those_that_are_checked():
    """Read and written again it is the same, but for the loss and the width of its brackets."""
    log = solved("mfu")["LOG"]
    lines = read(log)
    assert [line.kind for line in lines] == ["start", *["step"] * 4, "checkpoint", *["step"] * 4, "restart", *["step"] * 3]
    assert read(written(lines, 64)) == lines
    found = solved("mfu")["log_mfu"](log, 1.0, 1.0, 1, 1)
    rates = [4194304 / seconds for seconds in (12, 10, 10.5, 10, 10, 222, 9.5, 11, 10)]
    assert found == {"steady": statistics.median(rates), "run": 7 * 4194304 / 793}


# -- inputs -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", ["1", "2", "3"])
def test_every_error_is_claimed_and_never_two_readings_give_a_claim(seed, monkeypatch):
    monkeypatch.setenv(inputs.SEED, seed)
    claims = [case.arguments[0] for case in check.audit.cases(inputs.source("audit", hidden=True))][len(audits.CLAIMS):]
    assert {audits.error_of(claim) for claim in claims} == {None, *audits.ERRORS}
    for claim in claims:
        near = {error for error, value in audits.readings(claim) if abs(100 * value - claim["percent"]) < 0.2}
        assert len(near) == 1 or (None in near and claim["recomputed"] == 0 and near == {None, "recomputation"})
        assert 10 < claim["percent"] < 90


def test_logs_are_read_as_they_were_written_and_differ_where_it_matters():
    for case in check.log_mfu.cases(inputs.source("log_mfu", hidden=True)):
        log, *_, devices, warm_up = case.arguments
        lines = read(log)
        assert written(lines, devices) == log and sorted(line.at for line in lines) == [line.at for line in lines]
        assert 0.01 < case.expected["run"] < case.expected["steady"] < 0.6 or warm_up == 0


def test_ladders_lack_what_real_ones_lack():
    runs = [case.arguments[0] for case in check.ladder.cases(inputs.source("ladder", hidden=True))]
    assert any(None in run["peaks"].values() for run in runs)
    assert any(rung["seconds"] is None for run in runs for rung in run["rungs"])
    assert any(rung["hardware_flops"] != rung["model_flops"] for run in runs for rung in run["rungs"])


# -- where a run comes from -------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def climb():
    return Climb(Limits(last=60, rung=0.02, matmul=0.05))


def test_a_run_is_climbed_here_where_no_gpu_was_ever_recorded(capsys, tmp_path, monkeypatch):
    run, words = climbed.measured("cpu", tmp_path)
    assert "no recorded run" in words and run["device"] in words and "of its processor" in words
    assert {rung["precision"] for rung in run["rungs"]} <= set(run["peaks"]) == set(run["best"])
    assert run["peaks"] == run["best"]  # no datasheet
    again = {rung["name"]: rung["hardware_flops"] / rung["model_flops"] for rung in run["rungs"]}
    assert again.pop("checkpointing") > 1.2 and set(again.values()) == {1.0}
    assert climbed.measured("cpu", tmp_path)[0] is run  # measured once, and the same for a test that is run again
    monkeypatch.setattr(ladders, "measured", lambda device: (run, words))
    given = check.ladder.run()
    assert given == run and given is not run and words in capsys.readouterr().out
    check.ladder(solved("mfu")["ladder"])


def test_a_recorded_run_is_read_from_what_the_bench_writes(climb, tmp_path, monkeypatch):
    """No file of a GPU is there to read, so one is written as the bench does, of this processor."""
    rows = [climb.measure(climb.sizes[-1], rung) for rung in climb.rungs]
    record = {"provenance": climb.provenance, "seconds": 1.0, "ladder": rows,
              "peaks": {"bf16": None, "fp32": {"tflops": climb.peaks["fp32"].flops / 1e12, "source": ""}},
              "matmul": {p: {"tflops": best.rate / 1e12} for p, best in climb.best.items()}}
    (tmp_path / "some-gpu.json").write_text(json.dumps(record))
    run, words = climbed.measured("cpu", tmp_path)
    assert words.startswith("No GPU here is used. This was recorded on a real one")
    assert climb.provenance["date"][:10] in words
    assert run["peaks"]["bf16"] is None
    found = ladders.read(run)
    for row, rung, entry in zip(rows, run["rungs"], found, strict=True):
        assert (rung["seconds"] is None) == ("left out" in row) == (entry is None)
        if entry and row["precision"] == "fp32":
            if row["mfu"]:  # above 1, as a busy processor can have it, there is none
                assert entry["mfu"] == pytest.approx(row["mfu"]) and entry["hfu"] == pytest.approx(row["hfu"])
            assert entry["of_best"] == pytest.approx(row["of_best_matmul"])
            assert rung["tokens"] / rung["seconds"] == pytest.approx(row["tokens/s"])
    assert "not measured" not in ladders.table(run) or None in found


def test_a_grader_leaves_the_gpu_alone(tmp_path, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.delenv(inputs.SEED, raising=False)
    assert timing.device_here() == "cuda"
    monkeypatch.setenv(inputs.SEED, "a secret")
    assert timing.device_here() == "cpu" and climbed.measured("cpu", tmp_path) is None
    monkeypatch.setattr(ladders, "measured", lambda device: None)
    assert {case.traits["run"] for case in check.ladder.cases(inputs.source("ladder", hidden=True))} == {
        "made up, with gaps", "made up"}


# -- what is measured -------------------------------------------------------------------------------------------------


class There(Elsewhere):
    """A stub of the grader: what it says was measured there, and this process can't know how long it took."""

    def __init__(self, fn, products=lambda warm_up, repeat: warm_up + repeat):
        self.fn, self.products = fn, products

    def __call__(self, *args):
        return self.fn(*args)

    def run(self, *_):
        raise AssertionError("no ranks here")

    def watched(self, n, dtype, device, warm_up, repeat):
        return self.fn(n, dtype, device, warm_up, repeat), self.products(warm_up, repeat), 10**9, False


def test_times_that_were_told_before_are_believed_though_no_time_passes_now():
    slow = itertools.cycle((0.1, 0.12, 0.11))
    begin = time.perf_counter()
    check.product_seconds(There(lambda n, dtype, device, warm_up, repeat: [next(slow) for _ in range(repeat)]))
    assert time.perf_counter() - begin < 60  # nothing was waited for; a guard, not a measurement


@pytest.mark.parametrize("seconds, words", [(1.0, "are the times in seconds"), (1e-9, "between the two looks at the clock")])
def test_elsewhere_too_impossible_times_are_refused(seconds, words):
    jitter = itertools.cycle((1.0, 1.2, 1.1))
    assert words in message(check.product_seconds, There(lambda n, dtype, device, warm_up, repeat: [
        seconds * next(jitter) for _ in range(repeat)]))


def test_what_a_stub_says_of_products_is_judged():
    assert "The warm-up is left out" in message(check.product_seconds, There(timed, lambda warm_up, repeat: repeat))


@pytest.mark.parametrize("pair, words", [
    (lambda shape: [torch.zeros(shape), torch.zeros(shape)], "the same number everywhere"),
    (lambda shape: [torch.randn(shape), torch.ones(shape)], "the same number everywhere"),
    (lambda shape: [torch.randn(shape)] * 2, "multiplied by itself")])
def test_here_it_is_seen_what_is_multiplied(pair, words):
    def of_pair(n, dtype, device, warm_up, repeat):
        spare = torch.zeros(3, n, n)  # so that memory alone doesn't tell
        times = timed(n, dtype, device, warm_up, repeat, pair=pair((n, n)))
        del spare
        return times

    assert words in message(check.product_seconds, of_pair)


def test_here_it_is_seen_that_numbers_are_drawn_while_the_clock_runs():
    def drawing(n, dtype, device, warm_up, repeat):
        times = []
        for _ in range(warm_up + repeat):
            begin = time.perf_counter()
            torch.randn(n, n, dtype=dtype) @ torch.randn(n, n, dtype=dtype)
            times.append(time.perf_counter() - begin)
        return times[warm_up:]

    assert "fill both matrices once" in message(check.product_seconds, drawing)


@pytest.mark.parametrize("exercise, right, field", [("roofline", roofline, "seconds"), ("step_flops", step, None)])
def test_a_wrong_number_of_any_kind_is_told(exercise, right, field):
    def doubled(*given):
        found = right(*given)
        return found | {field: Fraction(found[field]) * 2} if field else Fraction(found) * 2

    assert " came as " in message(getattr(check, exercise), doubled)


def test_negative_times_of_any_kind_are_told():
    def negative(*given):
        return [-Fraction(seconds) for seconds in timed(*given)]

    assert "that at the end less that at the beginning" in message(check.product_seconds, negative)


def test_a_wrong_answer_is_judged_by_its_values_and_not_by_its_way():
    assert "two FLOPs" in message(check.linear_flops, There(linear_flops_of_multiplications))
