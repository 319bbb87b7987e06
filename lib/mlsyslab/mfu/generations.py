"""From V100 to B200: peaks grew faster than bandwidth, so the same operator reaches a smaller share of a newer GPU."""

from __future__ import annotations

from dataclasses import dataclass

from mlsyslab.measure.hardware import Device, device, peak
from mlsyslab.mfu.roofline import ridge

GENERATIONS = ("V100 SXM2", "A100 SXM 80GB", "H100 SXM", "H200", "B200")


@dataclass(frozen=True)
class Generation:
    """peak: dense 16-bit FLOP/s.  sparse: with 2:4 sparsity, None where there is none.  ridge: FLOPs a byte."""

    device: Device
    peak: float
    sparse: float | None
    ridge: float


def generations() -> list[Generation]:
    """One of each, in the 16-bit type that it trains in."""
    found = []
    for name in GENERATIONS:
        of = device(name)
        precision = "bf16" if "bf16" in of.tensor else "fp16"
        sparse = peak(of, precision, sparse=True).flops if of.sparsity else None
        found.append(Generation(of, peak(of, precision).flops, sparse, ridge(of, precision)))
    return found
