"""Making and simulating pipeline schedules of up to a million actions, and how that grows."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

from mlsyslab.comm import Link
from mlsyslab.pipeline import schedule, simulate

#: (p, m, v) of interleaved 1F1B: each row four times the actions of the one before
SIZES = (16, 128, 4), (32, 256, 4), (32, 1024, 4), (64, 2048, 4)


def rows() -> Iterator[dict[str, Any]]:
    before = None
    for p, m, v in SIZES:
        start = time.perf_counter()
        made = schedule("interleaved", p, m, v)
        generated = time.perf_counter()
        timeline = simulate(made)
        simulated = time.perf_counter()
        simulate(made, link=Link(1e-3, 1e-9))
        seconds, with_messages = simulated - generated, time.perf_counter() - simulated
        yield {"p": p, "m": m, "v": v, "actions": len(made), "generate s": generated - start, "simulate s": seconds,
               "with messages s": with_messages, "actions/s": len(made) / seconds, "bubble": timeline.bubble,
               "times the one before": seconds / before if before else ""}
        before = seconds
