"""Deaths drawn by lot, such that two copies of every shard are enough."""

from __future__ import annotations

import math

import numpy as np

from mlsyslab.comm import Failure
from mlsyslab.data_parallel.job import Job


def random_failures(seed: int, job: Job, seconds: float, kills: int, down: tuple[float, float] = (0.01, 0.1),
                    for_good: float = 0.0, apart: float = 0.02) -> list[Failure]:
    """`kills` deaths of workers and servers within `seconds`, in order of time; fewer where no more find room.

    down: how long a rank is dead, at least and at most, as a share of `seconds`.
    for_good: how probable it is that it never comes back. One worker always does.
    apart: a share of `seconds` between one server's return and the death of another that has a shard in common with it, in
    which the one can give it to the other. Servers die only when shards have two copies.

    Keep `seconds` below the length of the run: a server that comes back when all others have ended finds nobody to ask.
    """
    draw, setup = np.random.default_rng(seed), job.setup
    candidates = range(0 if setup.replicas == 2 else setup.servers, job.ranks)
    found: list[Failure] = []
    for _ in range(100 * kills):
        if len(found) == kills:
            break
        rank, at = int(draw.choice(candidates)), float(draw.uniform(0, seconds))
        back = None if draw.random() < for_good else at + float(draw.uniform(*down)) * seconds
        failure = Failure(rank, at, back)
        dead_for_good = {f.rank for f in [*found, failure] if f.back is None and f.rank >= setup.servers}
        if len(dead_for_good) < job.workers and all(_compatible(failure, other, job, apart * seconds) for other in found):
            found.append(failure)
    return sorted(found, key=lambda failure: failure.at)


def _compatible(a: Failure, b: Failure, job: Job, apart: float) -> bool:
    """Whether both can happen: never one rank twice at once, nor two servers that have a shard in common."""
    servers = job.setup.servers
    together = a.rank == b.rank or (max(a.rank, b.rank) < servers and (a.rank - b.rank) % servers in (1, servers - 1))
    ends = [(math.inf if f.back is None else f.back) + apart for f in (a, b)]
    return not together or a.at > ends[1] or b.at > ends[0]
