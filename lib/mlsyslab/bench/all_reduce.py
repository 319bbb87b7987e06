"""Ring all-reduce on processes against Gloo's own all-reduce.

busbw as nccl-tests define it: 2 (p-1)/p times the bytes of the vector, over the time. A time is that of the slowest rank,
from a barrier on. Ours returns a new tensor and leaves its input alone; Gloo's works in place and is charged for no copy.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.distributed as dist

from mlsyslab.bench.report import summarize
from mlsyslab.collectives import all_reduce
from mlsyslab.comm import Communicator, launch

RANKS = 2, 4
SIZES = [1 << k for k in range(10, 27, 2)]  # 1 KiB … 64 MiB
WARM_UP = 3


def rows() -> Iterator[dict[str, Any]]:
    for p in RANKS:
        for n in SIZES:
            times = launch(_measure, [n] * p, backend="gloo").results
            ours, gloo = ([max(of_ranks) for of_ranks in zip(*samples, strict=True)] for samples in zip(*times, strict=True))
            bytes_on_the_bus = 2 * (p - 1) / p * n
            yield {"p": p, "bytes": n, "ring": summarize(ours), "gloo": summarize(gloo),
                   "ring GB/s": bytes_on_the_bus / statistics.median(ours) / 1e9,
                   "gloo GB/s": bytes_on_the_bus / statistics.median(gloo) / 1e9,
                   "ratio": statistics.median(ours) / statistics.median(gloo)}


def _measure(comm: Communicator, n: int) -> tuple[list[float], list[float]]:
    """Times of ours and of Gloo's, in turns."""
    vector, in_place = torch.ones(n // 4), torch.ones(n // 4)
    runs = max(11, min(101, (128 << 20) // n))
    ours, gloo = [], []
    for _ in range(WARM_UP + runs):
        ours.append(_seconds(comm, lambda: all_reduce(comm, vector, algorithm="ring")))
        gloo.append(_seconds(comm, lambda: dist.all_reduce(in_place)))
        in_place.fill_(1)
    return ours[WARM_UP:], gloo[WARM_UP:]


def _seconds(comm: Communicator, function: Callable[[], Any]) -> float:
    comm.barrier()
    start = time.perf_counter()
    function()
    return time.perf_counter() - start
