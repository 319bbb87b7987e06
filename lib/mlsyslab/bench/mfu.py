"""A ladder of ways to train a GPT on one device: time, tokens a second, MFU, HFU of every rung.

On a GPU: three models, the largest that fits and two smaller ones, and ten rungs each, in under nine minutes; what is found
is also written to book/measured/<gpu>.json, after every rung, so that nothing is lost if it is stopped. On a CPU: three
small models, in under a minute; the best matmul, measured first, stands in for the peak, which no datasheet gives.
FLOPs are counted without a discount for causal masking; "mfu_causal" counts half of attention.
"""

from __future__ import annotations

import gc
import json
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import torch

from mlsyslab.measure.hardware import Peak, find_device, peak
from mlsyslab.measure.matmul import best_matmul
from mlsyslab.measure.provenance import provenance
from mlsyslab.measure.step import mfu
from mlsyslab.memory.lifetime import training
from mlsyslab.mfu.ladder import Rung, Size, Training, rungs, sizes
from mlsyslab.mfu.recorded import record_path
from mlsyslab.model.flops import training_flops
from mlsyslab.model.parameters import parameters

#: s; no rung is begun after `last`, none is timed for longer than `rung`, the best matmul of a precision takes `matmul`
GPU_TIME, CPU_TIME = {"last": 470, "rung": 5, "matmul": 5}, {"last": 40, "rung": 0.8, "matmul": 1.5}


def rows() -> Iterator[dict[str, Any]]:
    """A row a rung, as soon as it is measured."""
    bench = _Bench()
    # a CUDA graph that fails can leave the device unusable: all models' other rungs come first
    for graph in (False, True):
        for size in bench.sizes:
            torch.compiler.reset()  # or what is compiled for one size would be made to fit the next as well
            for rung in bench.rungs:
                if rung.graph == graph:
                    yield bench.climb(size, rung)


@dataclass
class _Bench:
    """The device, its peaks and best matmuls, and what has been found so far."""

    start: float = field(default_factory=time.monotonic)
    ladder: list[dict[str, Any]] = field(default_factory=list)

    def __post_init__(self):
        self.on_gpu = torch.cuda.is_available()
        self.device, self.time = ("cuda", GPU_TIME) if self.on_gpu else ("cpu", CPU_TIME)
        memory = torch.cuda.get_device_properties(0).total_memory if self.on_gpu else None
        self.sizes = sizes(memory)
        self.provenance = provenance()
        known = find_device(self.provenance["device"])
        precisions = ["fp32", "tf32", "bf16"] if self.on_gpu else ["fp32", "bf16"]
        self.best = {p: best_matmul(p, device=self.device, budget=self.time["matmul"]) for p in precisions}
        self.rungs = rungs(self.on_gpu, fast_bf16=self.best["bf16"].rate > self.best["fp32"].rate)
        self.peaks = {p: self._peak(p, known) for p in precisions}

    def _peak(self, precision: str, known) -> Peak | None:
        """The datasheet's; on a CPU the best matmul's; of an unknown GPU none, so that no MFU is told."""
        if known is not None and precision in known.precisions():
            return peak(known, precision)
        if self.on_gpu:
            return None
        return Peak(self.best[precision].rate, precision, self.provenance["device"], "best matmul, measured", measured=True)

    def climb(self, size: Size, rung: Rung) -> dict[str, Any]:
        """Measure one rung, or say why not."""
        row: dict[str, Any] = {"size": size.name, "rung": rung.name, "precision": rung.precision,
                               "batch": size.batch * rung.larger}
        details: dict[str, Any] = {"parameters": parameters(size.config), "sequence": size.config.sequence}
        if reason := self._out_of_time(size, rung):
            row["left out"] = reason
        else:
            try:
                measured, more = self._measure(size, rung)
                row, details = row | measured, details | more
            except Exception as error:  # out of memory, no compiler, …: the other rungs are still worth climbing
                row["left out"] = f"{type(error).__name__}: {str(error).partition(chr(10))[0][:160]}"
            self._clear()
        self.ladder.append(row | details)
        if self.on_gpu:
            self._write()
        return row

    def _out_of_time(self, size: Size, rung: Rung) -> str:
        """Why a rung isn't begun, if so: no time is left, or its steps would take longer than it may be timed."""
        elapsed, rate = time.monotonic() - self.start, self.best[rung.precision].rate
        if elapsed > self.time["last"]:
            return f"no time left after {elapsed:.0f} s"
        least = training_flops(size.config, size.batch * rung.larger) / rate
        if least > self.time["rung"]:
            return f"too slow here: products in {rung.precision} reach {rate / 1e9:.3g} GFLOP/s"
        return ""

    def _measure(self, size: Size, rung: Rung) -> tuple[dict[str, Any], dict[str, Any]]:
        """What goes into the table, and what goes into a GPU's record besides."""
        step, best, top = Training(size, rung, self.device), self.best[rung.precision], self.peaks[rung.precision]
        begin = time.monotonic()
        step()  # compiles what is to be compiled
        self._wait()
        first = time.monotonic() - begin
        found = mfu(step, step.flops, rung.precision, hardware_flops=step.hardware_flops, peak=top,
                    tokens=step.batch * size.config.sequence, best_matmul=best.rate, warm_up=2, repeat=20,
                    budget=self.time["rung"], by_class=self.on_gpu)
        causal = training_flops(size.config, step.batch, causal=True) / step.flops
        row = {"time": {"median_s": found.seconds, "spread_s": found.spread, "runs": found.repeats},
               "tokens/s": found.tokens_per_second, "tflops": found.flops_rate / 1e12, "mfu": found.mfu, "hfu": found.hfu}
        return row, {"mfu_causal": found.mfu and found.mfu * causal, "of_best_matmul": found.of_best, "first_step_s": first,
                     "loss": float(step.loss), "peak_bytes": found.peak_bytes,
                     "predicted_bytes": self._predicted(size, rung), "clocks": found.clocks,
                     "seconds_by_class": found.by_class}

    def _predicted(self, size: Size, rung: Rung) -> int | None:
        """Peak memory by `memory.training`, for the rungs that it describes."""
        if rung.autocast or rung.compiled or rung.graph:
            return None
        return training(size.config, size.batch * rung.larger, core=rung.attention, device="cuda",
                        precision="bf16" if rung.weights == "bf16" else "fp32",
                        recompute="full" if rung.checkpointed else None).peak

    def _wait(self) -> None:
        if self.on_gpu:
            torch.cuda.synchronize()

    def _clear(self) -> None:
        """Give back what the rung held."""
        gc.collect()
        if self.on_gpu:
            torch.cuda.empty_cache()

    def _write(self) -> None:
        """The record as it stands, in the order of the ladder."""
        order = {(size.name, rung.name): (i, j) for i, size in enumerate(self.sizes) for j, rung in enumerate(self.rungs)}
        path = record_path(self.provenance["device"])
        path.parent.mkdir(parents=True, exist_ok=True)
        matmuls = {p: {"m": b.m, "n": b.n, "p": b.p, "seconds": b.seconds, "spread": b.spread, "tflops": b.rate / 1e12,
                       "of_peak": self.peaks[p] and b.rate / self.peaks[p].flops} for p, b in self.best.items()}
        peaks = {p: found and {"tflops": found.flops / 1e12, "source": found.source} for p, found in self.peaks.items()}
        record = {"command": "python -m mlsyslab.bench mfu", "provenance": self.provenance,
                  "seconds": time.monotonic() - self.start,
                  "peaks": peaks, "matmul": matmuls,
                  "ladder": sorted(self.ladder, key=lambda row: order[row["size"], row["rung"]])}
        path.write_text(json.dumps(record, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
