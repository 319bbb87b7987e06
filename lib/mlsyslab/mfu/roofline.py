"""The roofline: an operator is held up by arithmetic or by memory, whichever takes longer (Williams et al. 2009).

Attainable FLOP/s = min(peak, intensity * bandwidth), with intensity in FLOPs a byte moved. Where the two meet is the ridge:
an operator of less intensity can't reach the peak, however well it is written.
"""

from __future__ import annotations

from dataclasses import dataclass

from mlsyslab.measure.hardware import PRECISIONS, Device, device, peak, precision_name
from mlsyslab.model.config import Config
from mlsyslab.model.flops import Operator, operators


@dataclass(frozen=True)
class Roofline:
    """An operator under the roofline of a device.

    attainable: FLOP/s.  seconds: that one run takes at least.  bound: "compute" or "memory".
    share: attainable over the device's peak in that precision, the MFU of a model made of this operator alone.
    """

    operator: Operator
    attainable: float
    seconds: float
    bound: str
    share: float


def ridge(of: Device | str, precision: str = "bf16") -> float:
    """FLOPs a byte that an operator needs to reach the peak."""
    of = device(of) if isinstance(of, str) else of
    return peak(of, precision).flops / (of.bandwidth * 1e12)


def roofline(operator: Operator, of: Device | str, precision: str = "bf16") -> Roofline:
    """One operator. Products run on tensor cores in `precision`; the rest on ordinary cores, whose peak is that of fp32."""
    of = device(of) if isinstance(of, str) else of
    top = peak(of, precision).flops
    units = top if operator.core == "matmul" or of.vector is None else peak(of, "fp32").flops
    compute, memory = operator.flops / units, operator.bytes / (of.bandwidth * 1e12)
    seconds = max(compute, memory)
    attainable = operator.flops / seconds
    return Roofline(operator, attainable, seconds, "compute" if compute >= memory else "memory", attainable / top)


def rooflines(config: Config, batch: int, of: Device | str, precision: str = "bf16", *, sequence: int | None = None,
              attention: str = "written") -> list[Roofline]:
    """Every operator of a GPT's forward pass."""
    itemsize = PRECISIONS[precision_name(precision)].itemsize
    return [roofline(operator, of, precision)
            for operator in operators(config, batch, sequence, itemsize=itemsize, attention=attention)]


def ceiling(config: Config, batch: int, of: Device | str, precision: str = "bf16", *, sequence: int | None = None,
            attention: str = "written") -> float:
    """The MFU of a forward pass in which every operator just reaches its roofline, one after the other."""
    lines = rooflines(config, batch, of, precision, sequence=sequence, attention=attention)
    needed = sum(line.operator.times * line.operator.flops for line in lines if line.operator.core == "matmul")
    return needed / sum(line.operator.times * line.seconds for line in lines) / peak(of, precision).flops
