"""alpha, beta and gamma of a real machine, fitted to what its ranks measure; and collectives, measured alike."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from mlsyslab.collectives import operations
from mlsyslab.comm import Communicator, Link, launch

#: Bytes of the messages that are timed: every power of four from 64 B to 16 MiB.
SIZES = tuple(4**k for k in range(3, 13))

Points = tuple[tuple[int, float], ...]


@dataclass(frozen=True)
class MeasuredLink(Link):
    """A link fitted to measurements, which it keeps: (bytes, seconds) of messages and of combinations."""

    messages: Points = ()
    combinations: Points = ()


def calibrate(ranks: int = 2, backend: str = "auto", sizes: Sequence[int] = SIZES, repeats: int = 15) -> MeasuredLink:
    """Start `ranks` processes on this machine and fit a link to what they measure (`calibrate_on`)."""
    _check(ranks, sizes, repeats)
    return launch(lambda comm, _: calibrate_on(comm, sizes, repeats), [None] * ranks, backend).results[0]


def calibrate_on(comm: Communicator, sizes: Sequence[int] = SIZES, repeats: int = 15) -> MeasuredLink:
    """Fit a link to what the ranks of `comm` measure; every rank calls it, and gets the same.

    A message is one step of a ring: every rank sends to its right neighbour and receives from its left at the same time,
    as the algorithms do, so that what ranks share (cores, memory, network cards) is in the figures. A combination is a sum
    of float32 on all ranks at once.

    sizes: bytes, a few from short to long.  repeats: how often each is timed; the median counts.
    """
    _check(comm.size, sizes, repeats)
    messages, combinations = [], []
    right, left = (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size
    for n in sizes:
        count = max(1, n // 4)
        mine, other = (torch.ones(count, device=comm.device) for _ in range(2))
        messages.append((4 * count, _median(comm, lambda a=mine, b=other: comm.sendrecv(a, right, b, left), repeats)))
        combinations.append((4 * count, _median(comm, lambda a=mine, b=other: comm.combine(a, b), repeats)))
    alpha, beta = fit(messages)
    _, gamma = fit(combinations)
    return MeasuredLink(alpha, beta, gamma, tuple(messages), tuple(combinations))


def measure(op: str, algorithm: str, ranks: int, sizes: Sequence[int], backend: str = "auto", repeats: int = 5) -> Points:
    """(bytes, seconds) of `collectives.<op>` on processes of this machine: what `cost(…).time(calibrate(…))` predicts.

    sizes: bytes of the whole vector, rounded so that every rank has an equal part of whole float32.
    """
    _check(ranks, sizes, repeats)
    operations.check_algorithm(op, algorithm)

    def on_rank(comm: Communicator, _) -> Points:
        points = []
        for n in sizes:
            part = max(1, n // 4 // ranks)
            x = torch.ones(part if op in ("gather", "all_gather") else part * ranks, device=comm.device)
            arguments = () if op == "barrier" else (x,)
            call = getattr(operations, op)
            seconds = _median(comm, lambda call=call, given=arguments: call(comm, *given, algorithm=algorithm), repeats)
            points.append((4 * part * ranks, seconds))
        return tuple(points)

    return launch(on_rank, [None] * ranks, backend).results[0]


def fit(points: Sequence[tuple[int, float]]) -> tuple[float, float]:
    """alpha and beta, both 0 or more, for which alpha + n beta is nearest to the points (n, seconds).

    Nearest by the sum of relative errors, so that short messages count like long ones and a point that is far off does
    not draw the line to itself: least squares, weighted anew until they are least absolute values (Schlossmacher 1973).
    """
    n, t = (np.array(column, dtype=float) for column in zip(*points, strict=True))
    scale = n.max() or 1.0  # so that both columns are of the order of 1
    columns = np.stack([np.ones_like(n), n / scale], axis=1) / t[:, None]
    weight, chosen = np.ones_like(t), [0, 1]
    for _ in range(50):
        root = np.sqrt(weight)
        solution = np.zeros(2)
        solution[chosen] = np.linalg.lstsq(columns[:, chosen] * root[:, None], root, rcond=None)[0]
        if len(chosen) == 2 and solution.min() < 0:  # the sign says which of the two the points don't show
            chosen = [int(solution.argmax())]
            continue
        weight = 1 / np.maximum(np.abs(columns @ solution - 1), 1e-3)
    return float(solution[0]), float(solution[1] / scale)


def _median(comm: Communicator, action: Callable[[], object], repeats: int) -> float:
    """Seconds that `action` takes on the slowest rank, in the median of `repeats` after two to warm up."""
    seconds = []
    for _ in range(repeats + 2):
        comm.barrier()
        start = time.perf_counter()
        action()
        if comm.device.type == "cuda":
            torch.cuda.synchronize(comm.device)
        seconds.append(time.perf_counter() - start)
    slowest = operations.all_reduce(comm, torch.tensor(seconds[2:], dtype=torch.float64, device=comm.device), "max",
                                    algorithm="mst")
    return statistics.median(slowest.tolist())


def _check(ranks: int, sizes: Sequence[int], repeats: int) -> None:
    if ranks < 2:
        raise ValueError(f"{ranks} rank: a message needs two, so ranks is 2 or more")
    if repeats < 1:
        raise ValueError(f"repeats={repeats}: each size is timed once or more often")
    if len(set(sizes)) < 2 or min(sizes) < 0:
        raise ValueError(f"sizes={list(sizes)}: a line is fitted to two different sizes or more, each 0 bytes or more")
