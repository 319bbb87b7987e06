"""Training steps of ours and of torch's: timed in turns within one run, and the memory that each needs.

A time is that of the slowest rank, from a barrier on. What both did one right after the other is compared, so that a machine
that is slow for a while is slow for both: the ratio is the median of those of the turns, and its spread half of the interval
that holds the true median with a probability of at least 95%.

Memory is how far a rank's resident memory (VmHWM of Linux) rises at most above what it was before the model was made, in
processes of their own; the largest of the ranks. What ranks share counts in parts (Pss). The allocator is told to give back
at once what is freed, in blocks of 64 KiB and more, so what has been freed is not counted; what is smaller may be. Buffers
of sockets, in which Gloo's messages lie on their way, belong to the system and are in nobody's count; the blocks of shared
memory in which ours lie are counted.
"""

from __future__ import annotations

import ctypes
import math
import statistics
import time
from collections.abc import Callable, Sequence
from itertools import accumulate
from pathlib import Path
from typing import Any

import torch

from mlsyslab.bench.report import summarize
from mlsyslab.comm import Communicator, launch

WARM_UP, STEPS = 3, 31

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD, _M_MMAP_MAX = -1, -3, -4  # of malloc.h

Step = Callable[[], None]
#: Makes a step on one rank: (communicator, width of the model).
MakeStep = Callable[[Communicator, int], Step]


def compare(p: int, ours: MakeStep, torchs: MakeStep, width: int) -> dict[str, Any]:
    """A row of the report: times, their ratio with its spread, memory and its ratio, on p ranks."""
    times = launch(in_turns, [((ours, torchs), width)] * p, backend="gloo").results
    of_ours, of_torchs = ([max(of_ranks) for of_ranks in zip(*samples, strict=True)] for samples in zip(*times, strict=True))
    ratios = [a / b for a, b in zip(of_ours, of_torchs, strict=True)]
    our_bytes, torchs_bytes = (max(launch(peak, [(make, width)] * p, backend="gloo").results) for make in (ours, torchs))
    return {"p": p, "ours": summarize(of_ours), "torch": summarize(of_torchs), "ratio": statistics.median(ratios),
            "±": spread_of_median(ratios), "our MB": our_bytes / 1e6, "torch MB": torchs_bytes / 1e6,
            "memory ratio": our_bytes / torchs_bytes}


def spread_of_median(values: Sequence[float]) -> float:
    """Half of the interval that holds the true median with a probability of at least 95%, whatever the distribution.

    It leaves out as many values at either end as it can: below the median lie as many as there are heads among n coins.
    """
    n, by_size = len(values), sorted(values)
    missed = accumulate(math.comb(n, heads) / 2**n for heads in range(n))  # at either end, by how many are left out there
    from_end = max(0, sum(probability <= 0.025 for probability in missed) - 1)
    return (by_size[n - 1 - from_end] - by_size[from_end]) / 2


# -- time -------------------------------------------------------------------------------------------------------------


def in_turns(comm: Communicator, given: tuple[Sequence[MakeStep], int]) -> list[list[float]]:
    """Seconds of the steps of each kind, from a barrier on; whose turn is first alternates."""
    makers, width = given
    torch.set_num_threads(1)
    steps = [make(comm, width) for make in makers]
    taken: list[list[float]] = [[] for _ in makers]
    for i in range(WARM_UP + STEPS):
        for k in range(len(makers))[::1 if i % 2 else -1]:
            taken[k].append(_seconds(comm, steps[k]))
    return [times[WARM_UP:] for times in taken]


def _seconds(comm: Communicator, step: Step) -> float:
    comm.barrier()
    start = time.perf_counter()
    step()
    return time.perf_counter() - start


# -- memory -----------------------------------------------------------------------------------------------------------


def peak(comm: Communicator, given: tuple[MakeStep, int]) -> int:
    """Bytes by which this process grows at most, from before the model to the end of its steps."""
    make, width = given
    torch.set_num_threads(1)
    _free_at_once()
    small = make(comm, 8)
    for _ in range(WARM_UP):  # so that what is imported and set up once isn't counted
        small()
    before = _memory("status", "VmRSS")
    Path("/proc/self/clear_refs").write_text("5")  # the peak is counted anew from here
    step = make(comm, width)
    for _ in range(WARM_UP):
        step()
    of_others = _memory("status", "RssShmem") - _memory("smaps_rollup", "Pss_Shmem")  # their part of what is shared
    return _memory("status", "VmHWM") - before - of_others


def _free_at_once() -> None:
    """Let glibc give every large block back when it is freed: what is resident is then what is held."""
    libc = ctypes.CDLL(None)
    for option, value in ((_M_MMAP_MAX, 1 << 16), (_M_MMAP_THRESHOLD, 1 << 16), (_M_TRIM_THRESHOLD, 1 << 16)):
        libc.mallopt(option, value)


def _memory(file: str, name: str) -> int:
    """Bytes that the system tells of this process: VmRSS, resident now; VmHWM, at most; Pss_…, what is shared in parts."""
    text = Path("/proc/self", file).read_text()
    return 1024 * int(next(line.split()[1] for line in text.splitlines() if line.startswith(name)))
