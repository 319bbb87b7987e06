"""Climbing the ladder: every rung measured on the device at hand, and what it is held against.

On a device without a datasheet, as a CPU, the best matmul stands in for the peak; a GPU whose peak isn't known gets no MFU.
Of a CPU one core is measured: models this small gain little from more, and threads that wait for one another make whatever
else runs on the machine part of the result.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch

from mlsyslab.measure.hardware import Device, Peak, find_device, peak
from mlsyslab.measure.matmul import best_matmul
from mlsyslab.measure.provenance import provenance
from mlsyslab.measure.step import mfu
from mlsyslab.memory.lifetime import training
from mlsyslab.mfu.ladder import Rung, Size, Training, rungs, sizes
from mlsyslab.model.flops import training_flops
from mlsyslab.model.parameters import parameters


@dataclass(frozen=True)
class Limits:
    """Seconds.  last: after which no rung is begun.  rung: for which one is timed.  matmul: for the best of a precision."""

    last: float
    rung: float
    matmul: float


ON_GPU, ON_CPU = Limits(last=470, rung=5, matmul=5), Limits(last=30, rung=0.7, matmul=1)


class Climb:
    """The device at hand, with its peaks and best matmuls; then `measure(size, rung)` for each of `sizes` and `rungs`.

    limits: by default those of the bench.
    """

    def __init__(self, limits: Limits | None = None):
        self.start = time.monotonic()
        self.on_gpu = torch.cuda.is_available()
        self.device, self.limits = ("cuda", limits or ON_GPU) if self.on_gpu else ("cpu", limits or ON_CPU)
        self.sizes = sizes(torch.cuda.get_device_properties(0).total_memory if self.on_gpu else None)
        self.provenance = provenance()
        precisions = ["fp32", "tf32", "bf16"] if self.on_gpu else ["fp32", "bf16"]
        with one_core():
            self.best = {p: best_matmul(p, device=self.device, budget=self.limits.matmul) for p in precisions}
        self.rungs = rungs(self.on_gpu, fast_bf16=self.best["bf16"].rate > self.best["fp32"].rate)
        known = find_device(self.provenance["device"])
        self.peaks = {p: self._peak(p, known) for p in precisions}

    @property
    def elapsed(self) -> float:
        """Seconds since the climb began."""
        return time.monotonic() - self.start

    def _peak(self, precision: str, known: Device | None) -> Peak | None:
        if known is not None and precision in known.precisions():
            return peak(known, precision)
        if self.on_gpu:
            return None
        best = self.best[precision]
        return Peak(best.rate, precision, self.provenance["device"], f"the best matmul, {best.m} x {best.n} x {best.p}",
                    measured=True)

    def measure(self, size: Size, rung: Rung) -> dict[str, Any]:
        """A row: the rung and what was found, or under "left out" why nothing was.

        "mfu_causal" counts half of attention; the other figures make no discount for causal masking.
        """
        row: dict[str, Any] = {"size": size.name, "rung": rung.name, "precision": rung.precision,
                               "batch": size.batch * rung.larger, "parameters": parameters(size.config),
                               "sequence": size.config.sequence}
        if reason := self._out_of_time(size, rung):
            return row | {"left out": reason}
        try:
            with one_core():
                return row | self._measured(size, rung)
        except Exception as error:  # out of memory, no compiler, …: the other rungs are still worth climbing
            return row | {"left out": f"{type(error).__name__}: {str(error).partition(chr(10))[0][:160]}"}
        finally:
            self._clear()

    def _out_of_time(self, size: Size, rung: Rung) -> str:
        """Why a rung isn't begun, if so: no time is left, or its steps would take longer than it may be timed."""
        if self.elapsed > self.limits.last:
            return f"no time left after {self.elapsed:.0f} s"
        rate = self.best[rung.precision].rate
        if training_flops(size.config, size.batch * rung.larger) / rate > self.limits.rung:
            return f"too slow here: products in {rung.precision} reach {rate / 1e9:.3g} GFLOP/s"
        return ""

    def _measured(self, size: Size, rung: Rung) -> dict[str, Any]:
        step, best = Training(size, rung, self.device), self.best[rung.precision]
        begin = time.monotonic()
        step()  # compiles what is to be compiled
        self._wait()
        first = time.monotonic() - begin
        found = mfu(step, step.flops, rung.precision, hardware_flops=step.hardware_flops, peak=self.peaks[rung.precision],
                    tokens=step.batch * size.config.sequence, best_matmul=best.rate, warm_up=2, repeat=20,
                    budget=self.limits.rung, by_class=self.on_gpu)
        causal = training_flops(size.config, step.batch, causal=True) / step.flops
        return {"time": {"median_s": found.seconds, "spread_s": found.spread, "runs": found.repeats},
                "tokens/s": found.tokens_per_second, "tflops": found.flops_rate / 1e12, "mfu": found.mfu, "hfu": found.hfu,
                "mfu_causal": found.mfu and found.mfu * causal, "of_best_matmul": found.of_best, "first_step_s": first,
                "loss": float(step.loss), "peak_bytes": found.peak_bytes, "predicted_bytes": self._predicted(size, rung),
                "clocks": found.clocks, "seconds_by_class": found.by_class, "note": found.note}

    def _predicted(self, size: Size, rung: Rung) -> int | None:
        """Peak memory by `memory.training`, for the rungs that it describes."""
        if rung.autocast or rung.compiled or rung.graph:
            return None
        return training(size.config, size.batch * rung.larger, core=rung.attention, device=self.device,
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


@contextmanager
def one_core() -> Iterator[None]:
    """What the CPU computes, it computes in one thread."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
