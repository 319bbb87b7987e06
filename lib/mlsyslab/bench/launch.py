"""Starting 4 ranks, warm, against torch.multiprocessing.spawn.

Both start 4 processes, set up `torch.distributed` with Gloo, sum one number over all ranks and end. Warm: the first launch,
in which the fork server imports torch, is told apart.
"""

from __future__ import annotations

import os
import statistics
import tempfile
import time
from collections.abc import Iterator
from typing import Any

import torch
import torch.distributed as dist
import torch.multiprocessing

from mlsyslab.bench.report import summarize
from mlsyslab.comm import launch

RANKS, LAUNCHES, SPAWNS = 4, 20, 3


def rows() -> Iterator[dict[str, Any]]:
    first = _seconds(_launch)
    warm, spawned = [], []
    for _ in range(SPAWNS):
        warm += [_seconds(_launch) for _ in range(LAUNCHES // SPAWNS)]
        spawned.append(_seconds(_spawn))
    yield {"ranks": RANKS, "first launch s": first, "launch": summarize(warm), "spawn": summarize(spawned),
           "times faster": statistics.median(spawned) / statistics.median(warm)}


def _seconds(function) -> float:
    start = time.perf_counter()
    function()
    return time.perf_counter() - start


def _launch() -> None:
    launch(_work, [None] * RANKS, backend="gloo")


def _work(comm, _input) -> None:
    dist.all_reduce(torch.ones(1))


def _spawn() -> None:
    with tempfile.TemporaryDirectory() as folder:
        torch.multiprocessing.spawn(_rank, (os.path.join(folder, "store"),), nprocs=RANKS)


def _rank(rank: int, store: str) -> None:
    dist.init_process_group("gloo", store=dist.FileStore(store, RANKS), rank=rank, world_size=RANKS)
    _work(None, None)
    dist.destroy_process_group()
