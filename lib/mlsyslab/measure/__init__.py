"""Instruments: what a machine can do at best, and what a piece of code does on it.

    device("H100 SXM")             peaks by precision, dense and sparse apart, memory, bandwidth, source (`hardware.py`)
    this_device()                  the GPU at hand; None where there is none or its peaks aren't known
    peak(device, "bf16")           a `Peak`: FLOP/s, dense; a precision that the device lacks is refused with what it has
    measured_peak("fp32")          for a CPU: its best matmul, marked as measured (`matmul.py`, with `best_matmul`)
    timed(fn, …)                   warm-up, then times by CUDA events or the clock, median and spread (`timing.py`)
    utilization(flops, seconds, peak, devices=1)   achieved over possible (`utilization.py`)
    mfu(step, flops, precision)    a `Measured`: time, tokens a second, MFU, HFU, share of the best matmul, clocks, memory,
                                   time by class of operator (`step.py`)
    Clocks()                       context: the GPU's clocks meanwhile, and what held them down (`clocks.py`)
    operator_seconds(step)         time by class of operator (`operators.py`)
    provenance()                   device, driver, versions, commit, date (`provenance.py`)

The topics `mfu` and `memory` use these; they import torch and numpy only, and work on a CPU too.
"""

from mlsyslab.measure.clocks import Clocks
from mlsyslab.measure.hardware import (
    DEVICES,
    PRECISIONS,
    Device,
    Peak,
    device,
    find_device,
    peak,
    precision_name,
    this_device,
)
from mlsyslab.measure.matmul import Matmul, best_matmul, matmul_rate, measured_peak, tf32
from mlsyslab.measure.operators import operator_class, operator_seconds
from mlsyslab.measure.provenance import commit, device_name, provenance
from mlsyslab.measure.step import Measured, mfu
from mlsyslab.measure.timing import Timing, timed
from mlsyslab.measure.utilization import utilization

__all__ = ["DEVICES", "PRECISIONS", "Clocks", "Device", "Matmul", "Measured", "Peak", "Timing", "best_matmul", "commit",
           "device", "device_name", "find_device", "matmul_rate", "measured_peak", "mfu", "operator_class",
           "operator_seconds", "peak", "precision_name", "provenance", "tf32", "this_device", "timed", "utilization"]
