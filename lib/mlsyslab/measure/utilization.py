"""Utilization: what was achieved over what the devices could do at best."""

from __future__ import annotations

import math

import torch

from mlsyslab.measure.hardware import Peak, precision_name


def utilization(flops: float, seconds: float, peak: Peak | float, devices: int = 1,
                precision: str | torch.dtype | None = None) -> float:
    """flops / (seconds * devices * peak): MFU of what the model needs, HFU of what was carried out (Chowdhery et al. 2022).

    flops: of all devices together.  peak: of one device, FLOP/s.
    precision: what was computed in; a peak of another precision, or a sparse one, is refused.
    """
    for name, value in (("flops", flops), ("seconds", seconds)):
        if isinstance(value, bool) or not math.isfinite(value) or value <= 0:
            raise ValueError(f"utilization({name}={value!r}): {name} is finite and more than 0")
    if not isinstance(devices, int) or devices < 1:
        raise ValueError(f"utilization(devices={devices!r}): devices is a whole number, 1 or more")
    return flops / (seconds * devices * _rate(peak, precision))


def _rate(peak: Peak | float, precision: str | torch.dtype | None) -> float:
    rate = peak.flops if isinstance(peak, Peak) else peak
    if isinstance(rate, bool) or not math.isfinite(rate) or rate <= 0:
        raise ValueError(f"utilization(peak={rate!r}): a peak is finite and more than 0 FLOP/s")
    if not isinstance(peak, Peak):
        return rate
    if peak.sparse:
        raise ValueError(f"utilization: {rate / 1e12:,.1f} TFLOP/s is what {peak.device} does with 2:4 sparsity; training "
                         f"multiplies dense matrices: take the dense peak, {rate / 2e12:,.1f} TFLOP/s")
    if precision is not None and precision_name(precision) != peak.precision:
        raise ValueError(f"utilization: computed in {precision_name(precision)}, but the peak of {peak.device} is given for "
                         f"{peak.precision}: take the peak of the precision that is computed in")
    return rate
