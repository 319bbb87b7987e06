"""An MFU taken apart: every factor from a model's shape and a step's time to the fraction."""

from __future__ import annotations

from dataclasses import dataclass

from mlsyslab.measure.hardware import Peak
from mlsyslab.measure.utilization import utilization
from mlsyslab.model.config import Config
from mlsyslab.model.flops import flops_per_token, training_flops
from mlsyslab.model.parameters import parameters


@dataclass(frozen=True)
class Factors:
    """parameters; tokens of a step; flops_per_token and model_flops, hardware_flops of a step, on all devices together;
    tokens_per_second; achieved: model FLOP/s a device; peak: FLOP/s of a device; mfu; hfu."""

    parameters: int
    tokens: int
    flops_per_token: float
    model_flops: int
    hardware_flops: int
    tokens_per_second: float
    achieved: float
    peak: float
    mfu: float
    hfu: float


def factors(config: Config, batch: int, seconds: float, peak: Peak | float, *, devices: int = 1, sequence: int | None = None,
            recompute: str | None = None, causal: bool = False, precision: str | None = None) -> Factors:
    """MFU and HFU of training steps of `batch` sequences (all devices together) that take `seconds` each.

    peak: of one device.  recompute, causal: as in `model.training_flops`.  precision: refused if the peak is of another one.
    """
    model = training_flops(config, batch, sequence, causal=causal)
    hardware = training_flops(config, batch, sequence, recompute=recompute, causal=causal)
    tokens = batch * (config.sequence if sequence is None else sequence)
    mfu, hfu = (utilization(flops, seconds, peak, devices, precision) for flops in (model, hardware))
    rate = peak.flops if isinstance(peak, Peak) else peak
    return Factors(parameters(config), tokens, flops_per_token(config, sequence, causal=causal), model, hardware,
                   tokens / seconds, model / seconds / devices, rate, mfu, hfu)
