"""What workers do while one of them is slow, under each model of consistency."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache

import torch
from ipywidgets import VBox

from mlsyslab.comm import Link
from mlsyslab.data_parallel import ASP, BSP, SSP, Job, Record, Setup, Slow, Steady, Task, idle, play
from mlsyslab.draw.clocks import Cell, Group, Lane, Lanes
from mlsyslab.draw.timeline import unit_of
from mlsyslab.draw.widgets import explore


def workers(records: Mapping[str, Record], *, until: float | None = None, unit: str | None = None,
            width: float = 680) -> Lanes:
    """What the workers of several runs did: a lane a worker, a cell an iteration with its number, hatched where it waits."""
    if not records:
        raise ValueError("workers got no runs: give it at least one record by name")
    groups = []
    for name, record in records.items():
        first, lanes = record.job.setup.servers, []
        for worker in range(record.job.workers):
            done = [e for e in record.trace.of(first + worker) if e.kind == "compute"]
            cells = [Cell(e.start, e.end, e.label.split()[-1]) for e in done]
            lanes.append(Lane(f"worker {worker}", cells))
        end = max(lane.cells[-1].end for lane in lanes)
        groups.append(Group(name, f"done at {end / unit_of(end)[0]:.4g} {unit or unit_of(end)[1]}, "
                                  f"workers wait {100 * idle(record):.0f} % of their time", lanes, end))
    return Lanes(groups, " and ".join(records), until=until, unit=unit, width=width)


class _Nothing(Task):
    """A task without anything to learn: only its clock is looked at."""

    def gradient(self, values, worker, clock):
        return 0.0, {name: torch.zeros_like(value) for name, value in values.items()}

    def loss(self, values):
        return 0.0


def _nothing(count: int) -> Task:
    return _Nothing({"w": torch.zeros(1)}, torch.zeros(count, 1), torch.zeros(count), lambda values, x: x, count, 1)


@dataclass(frozen=True)
class Once(Steady):
    """One iteration of one worker takes `factor` times as long."""

    worker: int = 0
    factor: float = 4.0

    def __call__(self, worker, clock):
        return self.factor if (worker, clock) == (self.worker, 2) else 1.0


@dataclass(frozen=True)
class InTurn(Steady):
    """Four workers are slow once each, one after the other, beginning with `first`."""

    first: int = 0
    factor: float = 4.0

    def __call__(self, worker, clock):
        return self.factor if clock == 1 + 2 * ((worker - self.first) % 4) else 1.0


MODELS = {"BSP": BSP(), "SSP, s = 2": SSP(2), "ASP": ASP()}
STRAGGLERS = {"one slow iteration": lambda worker, factor: Once(worker=worker, factor=factor),
              "each worker once, in turn": lambda worker, factor: InTurn(first=worker, factor=factor),
              "one slow worker": lambda worker, factor: Slow(factors={worker: factor})}


@cache
def _waits(straggler: str, worker: int, factor: float, clocks: int) -> Mapping[str, Record]:
    """A run under each model of consistency; messages take next to no time."""
    if factor == 1 and (straggler, worker) != (next(iter(STRAGGLERS)), 0):
        return _waits(next(iter(STRAGGLERS)), 0, 1, clocks)
    slow = STRAGGLERS[straggler](worker, factor)
    return {name: play(Job(_nothing(4), clocks, Setup(consistency=model), slow), Link(alpha=1e-6))
            for name, model in MODELS.items()}


def stragglers(factors: Sequence[float] = (1, 2, 3, 4), clocks: int = 10) -> VBox:
    """A widget: what a straggler does to four workers under BSP, SSP and ASP, wherever it is and however slow."""
    def frame(straggler: str, worker: int, slower: float) -> Lanes:
        until = max(record.time for record in _waits(straggler, 0, max(factors), clocks).values())
        return workers(_waits(straggler, worker, slower, clocks), until=until, unit="iterations")

    return explore(frame, menus=("straggler",), start={"straggler": "each worker once, in turn", "worker": 1, "slower": 3},
                   straggler=list(STRAGGLERS), worker=range(4), slower={f"{factor:g} times": factor for factor in factors})
