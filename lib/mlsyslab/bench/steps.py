"""Training steps of two kinds, timed in turns, and the memory that each needs."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path

import torch

from mlsyslab.comm import Communicator

WARM_UP, STEPS = 3, 11

Step = Callable[[], None]
#: Makes a step on one rank: (communicator, width of the model).
MakeStep = Callable[[Communicator, int], Step]


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


def peak(comm: Communicator, given: tuple[MakeStep, int]) -> int:
    """Bytes by which this process grows at most, from before the model to the end of its steps (Linux)."""
    make, width = given
    torch.set_num_threads(1)
    small = make(comm, 8)
    for _ in range(WARM_UP):  # so that what is imported and set up once isn't counted
        small()
    before = _resident("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")  # the peak is counted anew from here
    step = make(comm, width)
    for _ in range(WARM_UP):
        step()
    return _resident("VmHWM") - before


def _resident(name: str) -> int:
    """Bytes of this process in memory, now (VmRSS) or at most (VmHWM)."""
    text = Path("/proc/self/status").read_text()
    return 1024 * int(next(line.split()[1] for line in text.splitlines() if line.startswith(name)))
