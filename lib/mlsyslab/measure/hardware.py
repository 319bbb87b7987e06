"""What devices can do at best: FLOP/s by precision and kind of core, memory, bandwidth; each with its source.

A peak belongs to a precision, a kind of core, and to dense or sparse matrices. NVIDIA's datasheets for Hopper and Blackwell
print the figure with 2:4 sparsity, where half of the numbers are zero and skipped: twice what training can reach. Here the
two are kept apart. A device that isn't in the table gets no peak, and so no MFU: a wrong one would be worse than none.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import torch

#: precisions, and the torch type that each computes with; "tf32" is how tensor cores compute with torch.float32
PRECISIONS = {"fp32": torch.float32, "tf32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16,
              "fp8": torch.float8_e4m3fn}


@dataclass(frozen=True)
class Peak:
    """FLOP/s of a device in one precision.  sparse: with 2:4 sparsity.  measured: by a matmul here, not by its maker."""

    flops: float
    precision: str
    device: str
    source: str
    sparse: bool = False
    measured: bool = False


@dataclass(frozen=True)
class Device:
    """A device as its maker describes it.

    pattern: regular expression that its name, as the driver gives it, matches.  tensor: dense TFLOP/s of its tensor cores
    (matrix units) by precision.  vector: TFLOP/s of its ordinary cores in fp32.  sparsity: whether its tensor cores skip
    zeros.  memory: GB.  bandwidth: TB/s.  source: where the numbers come from.
    """

    name: str
    year: int
    pattern: str
    tensor: dict[str, float]
    vector: float | None
    memory: float
    bandwidth: float
    source: str
    sparsity: bool = True

    def precisions(self) -> list[str]:
        """In which it has a peak."""
        return ([] if self.vector is None else ["fp32"]) + list(self.tensor)


_V100 = "NVIDIA V100 datasheet (2020)"
_A100 = "NVIDIA A100 datasheet (2021)"
_H100 = "NVIDIA H100 datasheet and architecture whitepaper (2022), sparse figures halved"
_H200 = "NVIDIA H200 datasheet (2024), sparse figures halved"
_B200 = "NVIDIA Blackwell architecture brief (2024), HGX B200 at 1,000 W, sparse figures halved"

DEVICES = (
    Device("V100 SXM2", 2017, r"V100-SXM", {"fp16": 125}, 15.7, 32, 0.9, _V100, sparsity=False),
    Device("V100 PCIe", 2017, r"V100-PCIE", {"fp16": 112}, 14, 32, 0.9, _V100, sparsity=False),
    Device("T4", 2018, r"\bT4\b", {"fp16": 65}, 8.1, 16, 0.32, "NVIDIA T4 datasheet (2019)", sparsity=False),
    Device("A100 SXM 40GB", 2020, r"A100-SXM4-40GB", {"tf32": 156, "bf16": 312, "fp16": 312}, 19.5, 40, 1.555, _A100),
    Device("A100 SXM 80GB", 2020, r"A100-SXM4-80GB", {"tf32": 156, "bf16": 312, "fp16": 312}, 19.5, 80, 2.039, _A100),
    Device("A100 PCIe 80GB", 2021, r"A100 80GB PCIe|A100-PCIE-80GB", {"tf32": 156, "bf16": 312, "fp16": 312}, 19.5, 80,
           1.935, _A100),
    Device("H100 SXM", 2022, r"H100 80GB HBM3|H100 SXM", {"tf32": 494.7, "bf16": 989.4, "fp16": 989.4, "fp8": 1978.9}, 66.9,
           80, 3.35, _H100),
    Device("H100 PCIe", 2022, r"H100 PCIe", {"tf32": 378, "bf16": 756, "fp16": 756, "fp8": 1513}, 51, 80, 2.0, _H100),
    Device("H100 NVL", 2023, r"H100 NVL", {"tf32": 417.5, "bf16": 835, "fp16": 835, "fp8": 1671}, 60, 94, 3.9, _H100),
    Device("H200", 2024, r"H200(?! NVL)", {"tf32": 494.5, "bf16": 989, "fp16": 989, "fp8": 1979}, 67, 141, 4.8, _H200),
    Device("B200", 2025, r"\bB200\b", {"tf32": 1100, "bf16": 2250, "fp16": 2250, "fp8": 4500}, 80, 180, 7.7, _B200),
    Device("TPU v4", 2020, r"TPU v4", {"bf16": 275}, None, 32, 1.2, "Jouppi et al. 2023; Chowdhery et al. 2022, app. B",
           sparsity=False),
)


def device(name: str) -> Device:
    """The device of that name, ours ("H100 SXM") or the driver's ("NVIDIA H100 80GB HBM3")."""
    found = find_device(name)
    if found is None:
        raise ValueError(f"device({name!r}): its peak isn't known here, so no MFU can be told. Known are "
                         f"{', '.join(d.name for d in DEVICES)}; for another, give a measure.Peak with its dense figure")
    return found


def find_device(name: str) -> Device | None:
    """The same; None where it isn't known."""
    return next((d for d in DEVICES if name == d.name or re.search(d.pattern, name)), None)


def this_device() -> Device | None:
    """The GPU of this machine, if there is one and its peaks are known."""
    return find_device(torch.cuda.get_device_name()) if torch.cuda.is_available() else None


def peak(of: Device | str, precision: str | torch.dtype, *, sparse: bool = False) -> Peak:
    """FLOP/s of a device in a precision ("fp32", "tf32", "bf16", "fp16", "fp8", or a torch type), dense unless sparse=True.

    torch.float32 means fp32 on ordinary cores; products that tensor cores round to TF32 are "tf32".
    """
    of = device(of) if isinstance(of, str) else of
    name = precision_name(precision)
    tflops = of.vector if name == "fp32" else of.tensor.get(name)
    if tflops is None:
        raise ValueError(f"peak({of.name!r}, {name!r}): it has no such units; it computes in {', '.join(of.precisions())}")
    if sparse and (name == "fp32" or not of.sparsity):
        raise ValueError(f"peak({of.name!r}, {name!r}, sparse=True): these cores don't skip zeros; give sparse=False")
    return Peak(float(round(tflops * 1e12)) * (2 if sparse else 1), name, of.name, of.source, sparse)


def precision_name(precision: str | torch.dtype) -> str:
    """ "bf16" for torch.bfloat16 or "bf16"."""
    if precision in PRECISIONS:
        return precision
    names = [name for name, dtype in PRECISIONS.items() if dtype is precision]
    if not names:
        raise ValueError(f"precision={precision!r}: it is one of {', '.join(PRECISIONS)}, or the torch type of one")
    return names[0]
