"""Judging the time of an exchange of gradients, by runs of the three ways in the simulated world."""

from __future__ import annotations

import math
from functools import cache
from random import Random

import torch

from mlsyslab import collectives, data_parallel
from mlsyslab.check.data_parallel.unaided import UnaidedFormula
from mlsyslab.check.exercise import Case
from mlsyslab.check.messages import article, is_number
from mlsyslab.comm import Communicator, Link, simulate


class SyncSeconds(UnaidedFormula):
    name = "sync_seconds"

    def cases(self, rng: Random) -> list[Case]:
        grid = [("server", 8, 1), ("server", 8, 4), ("ring", 8, 0), ("server", 4, 1), ("server", 4, 8), ("beside", 8, 8),
                ("ring", 4, 0), ("beside", 4, 4), ("server", 3, 3), ("server", 12, 4), ("server", 8, 3), ("server", 5, 2),
                ("ring", 3, 0), ("beside", 3, 3),
                ("server", 2 * rng.randint(4, 8), 2), ("ring", rng.randint(9, 17), 0), ("beside", 1, 1), ("ring", 1, 0)]
        cases = []
        for way, W, S in grid:
            n, beta = rng.choice((1e6, 4e8, 2.5e9)), rng.choice((1e-9, 8e-10, 2e-11))
            traits = {"workers": W, "way": way} | ({"servers": S} if S else {})
            cases.append(Case((way, W, S, n, beta), n * beta * measured(way, W, S), traits))
        return cases

    def compare(self, came, case):
        way, W, S, n, beta = case.arguments
        if not is_number(came):
            return f"it returned {article(type(came).__name__)}, {came!r}; expected a number of seconds"
        if close(came, case.expected):
            return None
        unit = n * beta
        text = (f"sync_seconds({way!r}, workers={W}, servers={S}, n={n:g}, beta={beta:g}) came as {came / unit:.6g} n beta, "
                f"expected {case.expected / unit:.6g} n beta: what the simulated run takes")
        likely = mistake(came / unit, way, W, S)
        return f"{text}\n  {likely}" if likely else text


def mistake(came: float, way: str, W: int, S: int) -> str | None:
    """Which slip leads to this many n beta."""
    if way == "server":
        slips = [
            (2 * W / S, "A worker's link may be the busiest: n bytes leave it, however many servers there are."),
            (max(1, W / S), "That is one way only: weights come back after the gradients have gone."),
            (2 * W, "A server has a part of the vector only, n/S bytes of it."),
            (2, "A server's link carries the pushes of all workers."),
            (2 * max(1, (W - 1) / S), "These servers have machines of their own: every worker's push crosses the network."),
            (W + S, "That is everything that crosses any link; servers take in their parts at the same time."),
            (W, "That is one way only: weights come back after the gradients have gone."),
            (2 * W * S, "More servers share the load."),
            (1 + max(1, W / S), "Weights go back to every worker, as gradients came from every one."),
            *((2 * whole, "W/S needn't be whole: don't round it (// does).") for whole in (W // S, -(-W // S))),
        ]
    elif way == "beside":
        slips = [
            (2 * max(1, W / S), "A server on a worker's own machine needs no link for that worker's push and pull."),
            ((W - 1) / W, "That is one way only: weights come back after the gradients have gone."),
            (4 * (W - 1) / W, "A link carries both directions at once (full duplex): pushes leave while others come in."),
        ]
    else:
        slips = [
            ((W - 1) / W, "That is the reduce-scatter only; the all-gather that follows takes as long."),
            (2, "A rank's own part doesn't travel: it is (p-1)/p of the bytes, twice."),
            (2 * (W - 1), "A message of the ring is a p-th of the vector."),
            (2 * math.log2(W), "That is a tree; on a ring each rank sends 2 (p-1) parts of n/p bytes."),
            (4 * (W - 1) / W, "A link carries both directions at once (full duplex)."),
        ]
    return next((text for value, text in slips if close(came, value)), None)


def close(a: float, b: float) -> bool:
    return math.isclose(a, b, rel_tol=1e-6, abs_tol=1e-12)


@cache
def measured(way: str, W: int, S: int) -> float:
    """Seconds of a run for n beta = 1, latency left out."""
    def exchange(comm: Communicator, own: torch.Tensor) -> None:
        if way == "ring":
            collectives.all_reduce(comm, own, algorithm="ring")
        else:
            data_parallel.through_servers(comm, own, S, colocated=way == "beside")

    n = S or W
    ranks = W + S if way == "server" else W
    return simulate(exchange, [torch.zeros(n, dtype=torch.int8)] * ranks, Link(beta=1 / n)).time
