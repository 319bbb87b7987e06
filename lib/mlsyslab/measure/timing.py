"""How long something takes: warm up, repeat, and take the median with its spread."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch


@dataclass(frozen=True)
class Timing:
    """Seconds of each repetition."""

    seconds: tuple[float, ...]

    @property
    def median(self) -> float:
        return statistics.median(self.seconds)

    @property
    def spread(self) -> float:
        """Distance between the quartiles, s; 0 of a single repetition."""
        if len(self.seconds) < 2:
            return 0.0
        low, _, high = statistics.quantiles(self.seconds, n=4)
        return high - low


def timed(fn: Callable[[], Any], *, warm_up: int = 3, repeat: int = 10, budget: float | None = None,
          device: torch.device | str | None = None) -> Timing:
    """Time fn(): `warm_up` runs that don't count, then `repeat` that do; fewer, but one of each, once `budget` s are spent.

    On a GPU an event is recorded on the stream before and after each run, and the device is waited for at the end only: no
    pause between runs, and the time is that of the device. Elsewhere it is the clock's.
    """
    if warm_up < 0 or repeat < 1 or (budget is not None and budget <= 0):
        raise ValueError(f"timed(warm_up={warm_up}, repeat={repeat}, budget={budget}): warm_up is 0 or more, repeat "
                         "1 or more, budget more than 0 s or None")
    start = time.perf_counter()
    for _ in range(warm_up):
        fn()
        if _spent(start, budget):
            break
    device = torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu"))
    if device.type == "cuda":
        return _on_gpu(fn, repeat, budget, start, device)
    return _on_clock(fn, repeat, budget, start)


def _on_clock(fn: Callable[[], Any], repeat: int, budget: float | None, start: float) -> Timing:
    seconds = []
    while len(seconds) < repeat and not (seconds and _spent(start, budget)):
        begin = time.perf_counter()
        fn()
        seconds.append(time.perf_counter() - begin)
    return Timing(tuple(seconds))


def _on_gpu(fn: Callable[[], Any], repeat: int, budget: float | None, start: float, device: torch.device) -> Timing:
    torch.cuda.synchronize(device)
    marks = [torch.cuda.Event(enable_timing=True)]
    marks[0].record()
    while len(marks) <= repeat and not (len(marks) > 1 and _spent(start, budget)):
        fn()
        marks.append(torch.cuda.Event(enable_timing=True))
        marks[-1].record()
        if budget is not None:
            marks[max(0, len(marks) - 3)].synchronize()  # the host may run two ahead, or it would not see what is spent
    torch.cuda.synchronize(device)
    return Timing(tuple(a.elapsed_time(b) / 1000 for a, b in zip(marks, marks[1:], strict=False)))


def _spent(start: float, budget: float | None) -> bool:
    return budget is not None and time.perf_counter() - start > budget
