"""The best that a machine reaches with one matrix product: what a whole model can be held against."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from mlsyslab.measure.hardware import Peak, precision_name
from mlsyslab.measure.timing import timed

#: (m, n, p): square ones, and those of a large transformer
SHAPES_GPU = ((4096, 4096, 4096), (8192, 8192, 8192), (8192, 4096, 16_384), (16_384, 8192, 8192), (8192, 8192, 28_672))
SHAPES_CPU = ((128, 128, 128), (256, 256, 256), (512, 512, 512), (1024, 1024, 1024), (1024, 2048, 1024))


@dataclass(frozen=True)
class Matmul:
    """An m x n times an n x p matrix took `seconds` (median)."""

    m: int
    n: int
    p: int
    seconds: float
    spread: float

    @property
    def rate(self) -> float:
        """FLOP/s."""
        return 2 * self.m * self.n * self.p / self.seconds


def matmul_rate(m: int, n: int, p: int, precision: str | torch.dtype = "bf16", *, device: str = "cpu", repeat: int = 20,
                budget: float | None = None) -> Matmul:
    """Time one shape. Its numbers are random: with zeros, a GPU draws less power and clocks higher."""
    name = precision_name(precision)
    dtype = {"fp32": torch.float32, "tf32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}.get(name)
    if dtype is None:
        raise ValueError(f"matmul_rate(precision={name!r}): torch.matmul takes fp32, tf32, bf16, fp16")
    a, b = torch.randn(m, n, device=device).to(dtype), torch.randn(n, p, device=device).to(dtype)
    out = torch.empty(m, p, device=device, dtype=dtype)
    with tf32(name == "tf32"):
        times = timed(lambda: torch.matmul(a, b, out=out), repeat=repeat, budget=budget, device=device)
    return Matmul(m, n, p, times.median, times.spread)


def best_matmul(precision: str | torch.dtype = "bf16", *, device: str = "cpu",
                shapes: Sequence[tuple[int, int, int]] | None = None, budget: float | None = None) -> Matmul:
    """The fastest of several shapes. budget: seconds for all of them together; a shape is passed over if two runs of it, at
    the best rate so far, would take longer than what is left."""
    shapes = shapes or (SHAPES_GPU if torch.device(device).type == "cuda" else SHAPES_CPU)
    share, start, found = None if budget is None else budget / len(shapes), time.monotonic(), []
    for m, n, p in shapes:
        if budget is not None and found:
            two_runs = 2 * 2 * m * n * p / max(matmul.rate for matmul in found)
            if time.monotonic() - start + two_runs > budget:
                continue
        found.append(matmul_rate(m, n, p, precision, device=device, budget=share))
    return max(found, key=lambda matmul: matmul.rate)


def measured_peak(precision: str | torch.dtype = "fp32", *, device: str = "cpu", budget: float | None = 2.0) -> Peak:
    """For a device without a datasheet, as a CPU: its best matmul as the peak, marked as measured."""
    best = best_matmul(precision, device=device, budget=budget)
    return Peak(best.rate, precision_name(precision), f"this {torch.device(device).type}",
                f"a matmul of {best.m} x {best.n} by {best.n} x {best.p}, measured here", measured=True)


class tf32:
    """Context: whether products of 32-bit matrices may be rounded to TF32 on tensor cores."""

    def __init__(self, allowed: bool):
        self.wanted = "high" if allowed else "highest"

    def __enter__(self) -> None:
        self.before = torch.get_float32_matmul_precision()
        torch.set_float32_matmul_precision(self.wanted)

    def __exit__(self, *error) -> None:
        torch.set_float32_matmul_precision(self.before)
