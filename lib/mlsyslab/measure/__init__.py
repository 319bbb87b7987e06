"""Instruments: what a machine can do at best, and what a piece of code does on it.

    device("H100 SXM")             peaks by dtype, dense and sparse apart, memory, bandwidth, each with its source (`hardware.py`)
    this_device()                  the machine at hand; None where its peaks aren't known
    peak(device, torch.bfloat16)   FLOP/s, dense; a precision that the device lacks is refused with what it has
    best_matmul(dtype, …)          the fastest square-ish matmul on this machine, FLOP/s (`matmul.py`)
    timed(fn, …)                   warm-up, then times by CUDA events (or the clock), median and spread (`timing.py`)
    utilization(flops, seconds, peak, devices=1)   achieved over possible (`utilization.py`)
    mfu(step, …)                   a `Measured`: times, tokens a second, MFU, HFU, share of the best matmul, clocks,
                                   time by class of operator (`step.py`)
    provenance()                   device, driver, versions, clocks, commit, date (`provenance.py`)

The topics `mfu` and `memory` use these; they import torch and the standard library only, and work on a CPU too.
"""
