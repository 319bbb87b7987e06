"""Simulating a ring all-reduce over p ranks, and how that grows with p.

A ring all-reduce sends 2 p (p-1) messages, so four times as many for twice the ranks.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import torch

from mlsyslab.collectives import all_reduce
from mlsyslab.comm import Link, simulate

RANKS = 64, 128, 256, 512, 1024


def rows() -> Iterator[dict[str, Any]]:
    before = None
    for p in RANKS:
        start = time.perf_counter()
        run = simulate(lambda comm, vector: all_reduce(comm, vector, algorithm="ring"),
                       [torch.ones(p)] * p, link=Link(1e-5, 1e-9, 1e-10))
        seconds = time.perf_counter() - start
        messages = run.trace.messages()
        yield {"p": p, "messages": messages, "seconds": seconds, "µs a message": seconds / messages * 1e6,
               "virtual s": run.time, "times the one before": seconds / before if before else ""}
        before = seconds
