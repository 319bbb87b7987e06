"""The ladder and its bench: every rung trains, its numbers are right, failures are told and the record is whole."""

import dataclasses
import json

import pytest
import torch

from mlsyslab.bench import mfu as bench
from mlsyslab.mfu import Climb, Limits, Rung, Size, Training, climb, record_path, recorded, rungs, sizes, top
from mlsyslab.mfu import ladder as ladder_module
from mlsyslab.model import Config, parameters, training_flops

TINY = Size("tiny", Config(2, 16, 2, 32, 8), 2)


def test_each_rung_changes_one_thing():
    """A checkpointed rung stands beside the ladder; the one above it goes on from the one below."""
    for on_gpu in (True, False):
        climbed = [rung for rung in rungs(on_gpu) if not rung.checkpointed]
        for below, above in zip(climbed, climbed[1:], strict=False):
            changed = [f.name for f in dataclasses.fields(Rung)
                       if f.name != "name" and getattr(below, f.name) != getattr(above, f.name)]
            assert len(changed) == 1, (below.name, above.name, changed)
    assert [rung.name for rung in rungs(True) if rung.autocast] == ["bf16 autocast"]
    names = [rung.name for rung in rungs(True)]
    assert names == ["fp32", "TF32", "bf16 autocast", "bf16 weights", "fused attention", "larger batch", "torch.compile",
                     "fused optimizer", "checkpointing", "CUDA graph"]
    assert not any(rung.compiled or rung.graph or rung.precision == "tf32" for rung in rungs(False))


def test_where_bf16_is_slow_the_ladder_goes_on_in_fp32():
    assert [rung.precision for rung in rungs(False, fast_bf16=False)] == ["fp32", "bf16", "bf16", *["fp32"] * 4]


@pytest.mark.parametrize("rung", rungs(False), ids=lambda rung: rung.name)
def test_every_rung_of_a_cpu_trains(rung):
    step = Training(TINY, rung, "cpu")
    before = [p.detach().clone() for p in step.model.parameters()]
    step()
    first = step.loss.item()
    for _ in range(5):
        step()
    assert step.loss.item() < first
    assert any(not torch.equal(a, b) for a, b in zip(before, step.model.parameters(), strict=True))
    assert step.batch == TINY.batch * rung.larger and step.flops == training_flops(TINY.config, step.batch)
    assert step.hardware_flops == training_flops(TINY.config, step.batch, recompute="full" if rung.checkpointed else None)
    assert step.model.output.weight.dtype == (torch.bfloat16 if rung.weights == "bf16" else torch.float32)


def test_three_sizes_that_fit():
    assert [s.name for s in sizes(None)] == [s.name for s in ladder_module.CPU_SIZES]
    assert parameters(sizes(141e9)[0].config) > 1e9 and parameters(sizes(80e9)[0].config) > 1e9
    for memory in (16e9, 24e9, 40e9, 80e9, 141e9):
        found = [parameters(size.config) for size in sizes(memory)]
        assert found == sorted(found, reverse=True) and 1 <= len(found) <= 3 and 16 * found[0] < memory
    assert all(size.config.head_width == 128 and size.config.vocabulary % 64 == 0 for size in ladder_module.GPU_SIZES)


@pytest.fixture
def small(monkeypatch):
    """The bench on one tiny model, without the best matmul's seconds."""
    monkeypatch.setattr(climb, "sizes", lambda memory: [TINY])
    monkeypatch.setattr(climb, "ON_CPU", Limits(last=100, rung=0.05, matmul=0.05))
    real = climb.best_matmul
    monkeypatch.setattr(climb, "best_matmul", lambda p, **kw: real(p, **{**kw, "shapes": [(64, 64, 64)]}))


def test_the_bench_measures_every_rung(small):
    if torch.cuda.is_available():
        pytest.skip("on a GPU the bench takes minutes")
    found = list(bench.rows())
    assert {row["rung"] for row in found} == {rung.name for rung in rungs(False)}
    for row in found:
        if "left out" in row:
            assert row["left out"].startswith("too slow here: products in bf16 reach")
            continue
        assert row["tflops"] * 1e12 * row["time"]["median_s"] == pytest.approx(training_flops(TINY.config, row["batch"]))
        assert row["hfu"] > row["mfu"] if row["rung"] == "checkpointing" else row["hfu"] == row["mfu"]
        assert row["tokens/s"] * row["time"]["median_s"] == pytest.approx(row["batch"] * TINY.config.sequence)


def test_no_time_left_is_told(small, monkeypatch):
    monkeypatch.setattr(climb, "ON_CPU", Limits(last=-1, rung=0.05, matmul=0.05))
    if not torch.cuda.is_available():
        assert all("no time left" in row["left out"] for row in bench.rows())


def test_a_rung_that_fails_does_not_end_the_ladder(small, monkeypatch):
    class Broken(Training):
        def __call__(self):
            if self.rung.name == "fp32":
                raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20 GiB.\nmore lines")
            super().__call__()

    monkeypatch.setattr(climb, "Training", Broken)
    if not torch.cuda.is_available():
        found = {row["rung"]: row for row in bench.rows()}
        assert found["fp32"]["left out"] == "OutOfMemoryError: CUDA out of memory. Tried to allocate 20 GiB."
        assert "mfu" in found["fused attention"] or "mfu" in found["larger batch"]


def test_an_unknown_gpu_gets_no_mfu(small, monkeypatch):
    """With the peaks of a GPU that isn't in the table."""
    monkeypatch.setattr(Climb, "_peak", lambda self, precision, known: None)
    monkeypatch.setattr("mlsyslab.measure.step.this_device", lambda: None)
    if not torch.cuda.is_available():
        row = next(iter(bench.rows()))
        assert row["mfu"] is None and row["hfu"] is None and row["tflops"] > 0


def test_the_record_has_all_that_provenance_asks_for(small, monkeypatch, tmp_path):
    """Written as on a GPU, in the ladder's order, and read again by `recorded`."""
    monkeypatch.setattr(bench, "record_path", lambda device: record_path(device, tmp_path))
    run = Climb()
    bench.write(run, [run.measure(TINY, rung) for rung in reversed(run.rungs)])
    record, = recorded(tmp_path)
    assert set(record) == {"command", "provenance", "seconds", "peaks", "matmul", "ladder"}
    assert {"device", "driver", "torch", "cuda", "commit", "date"} <= set(record["provenance"])
    assert [row["rung"] for row in record["ladder"]] == [rung.name for rung in run.rungs]
    measured = [row for row in record["ladder"] if "left out" not in row]
    for row in measured:
        assert {"clocks", "seconds_by_class", "time", "peak_bytes", "predicted_bytes", "first_step_s", "loss"} <= set(row)
        assert row["parameters"] == parameters(TINY.config) and row["mfu_causal"] < row["mfu"]
        assert row["mfu"] == pytest.approx(row["of_best_matmul"])  # the best matmul stands for the peak here
    assert top(record)["mfu"] == max(row["mfu"] for row in measured) and top(record, 1e12) is None
    assert json.loads(next(tmp_path.iterdir()).read_text()) == record


def test_nothing_recorded_is_an_empty_list(tmp_path):
    assert recorded(tmp_path) == recorded(tmp_path / "nowhere") == []
    assert record_path("NVIDIA H100 80GB HBM3", tmp_path).name == "nvidia-h100-80gb-hbm3.json"
    assert all({"provenance", "ladder", "matmul"} <= set(record) for record in recorded())


def test_a_cpu_is_climbed_on_one_core_and_gets_its_threads_back(small, monkeypatch):
    if torch.cuda.is_available():
        pytest.skip("the device is a GPU")
    seen, real = [], Training.__call__
    monkeypatch.setattr(Training, "__call__", lambda step: (seen.append(torch.get_num_threads()), real(step)))
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        Climb().measure(TINY, rungs(False)[0])
        assert set(seen) == {1} and torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)
