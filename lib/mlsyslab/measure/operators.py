"""Where the time of a step goes: kernels by class of operator."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile

#: class: parts of the names of its kernels (GPU) or operators (CPU); the first that fits
CLASSES = {
    "attention": ("flash", "fmha", "attention", "sdpa"),
    "matmul": ("gemm", "nvjet", "cutlass", "xmma", "mm", "matmul", "cublas", "wgmma"),
    "normalization": ("norm",),
    "softmax, loss": ("softmax", "nll_loss", "cross_entropy"),
    "optimizer": ("adam", "multi_tensor", "foreach"),
    "embedding": ("embedding", "index_put", "gather", "scatter", "index_add"),
    "copy": ("memcpy", "memset", "copy", "cat", "transpose"),
    "random": ("dropout", "bernoulli", "random", "philox"),
}


def operator_seconds(step: Callable[[], Any]) -> dict[str, float]:
    """Seconds of one run of step() by class of operator, the device's own time; "elementwise" is all that fits no class."""
    on_gpu = torch.cuda.is_available()
    activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if on_gpu else [])]
    with profile(activities=activities) as recorded:
        step()
        if on_gpu:
            torch.cuda.synchronize()
    seconds: dict[str, float] = {}
    for event in recorded.key_averages():
        spent = event.self_device_time_total if on_gpu else event.self_cpu_time_total
        if on_gpu and event.device_type != torch.autograd.DeviceType.CUDA:
            continue
        if spent:
            of = operator_class(event.key)
            seconds[of] = seconds.get(of, 0.0) + spent / 1e6
    return dict(sorted(seconds.items(), key=lambda item: -item[1]))


def operator_class(name: str) -> str:
    """The class of a kernel or operator by its name."""
    low = name.lower()
    return next((of for of, parts in CLASSES.items() if any(part in low for part in parts)), "elementwise")
