"""A training step, measured: tokens a second, MFU, HFU, and what they are to be held against."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from mlsyslab.measure.clocks import Clocks
from mlsyslab.measure.hardware import Peak, peak, precision_name, this_device
from mlsyslab.measure.operators import operator_seconds
from mlsyslab.measure.provenance import device_name
from mlsyslab.measure.timing import timed
from mlsyslab.measure.utilization import utilization


@dataclass(frozen=True)
class Measured:
    """What `mfu` found. mfu, hfu: None where no peak is known, and `note` says so.

    flops_rate: model FLOPs a second.  of_best: that over the best matmul's.  peak_bytes: most memory held on the GPU.
    clocks: medians while it ran, and what held them down (`clocks.Clocks.summary`).  by_class: seconds of each class.
    """

    seconds: float
    spread: float
    repeats: int
    tokens_per_second: float | None
    flops_rate: float
    mfu: float | None
    hfu: float | None
    of_best: float | None
    peak: float | None
    precision: str
    note: str
    clocks: dict[str, Any]
    peak_bytes: int | None
    by_class: dict[str, float]


def mfu(step: Callable[[], Any], flops: float, precision: str | torch.dtype, *, hardware_flops: float | None = None,
        tokens: int | None = None, peak: Peak | None = None, best_matmul: float | None = None, warm_up: int = 3,
        repeat: int = 10, budget: float | None = None, by_class: bool = False) -> Measured:
    """Run a training step several times and say how well it uses this machine's device.

    step: forward, backward and update.  flops: model FLOPs of one step (`model.training_flops`), by which MFU is defined.
    precision: what its products are computed in.  hardware_flops: with what is recomputed; the same as flops when not given.
    tokens: of one step.  peak: of the device; found by its name when not given, and never guessed.
    best_matmul: FLOP/s of the best matmul on this device.  by_class: run once more under the profiler, for time by class.
    """
    name, hardware_flops = precision_name(precision), flops if hardware_flops is None else hardware_flops
    if hardware_flops < flops:
        raise ValueError(f"mfu(flops={flops}, hardware_flops={hardware_flops}): what is carried out contains what the "
                         "model needs, so hardware_flops is at least flops")
    found, note = (peak, "") if peak else _known_peak(name)
    on_gpu = torch.cuda.is_available()
    if on_gpu:
        torch.cuda.reset_peak_memory_stats()
    with Clocks() as sampled:
        times = timed(step, warm_up=warm_up, repeat=repeat, budget=budget)
    if found:
        achieved, carried_out = (utilization(f, times.median, found, precision=name) for f in (flops, hardware_flops))
        if carried_out > 1:
            note = (f"{100 * carried_out:.0f}% of {found.flops / 1e9:,.4g} GFLOP/s ({found.source}): nothing exceeds its "
                    "peak, so the peak, the FLOPs or the time is wrong, and there is no MFU")
            found = None
    rate = flops / times.median
    return Measured(
        seconds=times.median, spread=times.spread, repeats=len(times.seconds),
        tokens_per_second=tokens and tokens / times.median, flops_rate=rate,
        mfu=achieved if found else None, hfu=carried_out if found else None, of_best=best_matmul and rate / best_matmul,
        peak=found and found.flops, precision=name, note=note or (found.source if found.measured else ""),
        clocks=sampled.summary(), peak_bytes=torch.cuda.max_memory_allocated() if on_gpu else None,
        by_class=operator_seconds(step) if by_class else {})


def _known_peak(precision: str) -> tuple[Peak | None, str]:
    """The peak of this machine's device, or why there is none."""
    found = this_device()
    if found is None:
        return None, f"no peak is known for {device_name()}, so there is no MFU; give one (measure.Peak, measured_peak)"
    if precision not in found.precisions():
        allowed = ", ".join(found.precisions())
        return None, f"{found.name} has no peak in {precision}, so there is no MFU; it computes in {allowed}"
    return peak(found, precision), ""
