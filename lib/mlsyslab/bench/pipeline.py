"""Pipeline execution against torch.distributed.pipelining, and against its own simulation; the simulator as it grows.

Same model, schedule, ranks (processes, Gloo) and microbatches, in turns within one run. A step is forward and backward of
all microbatches; a time is that of the slowest rank, from a barrier on. The simulated bubble is that of the same schedule
with the times that the run itself took for each action, over a link fitted to the ranks (`calibrate`).
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import nn
from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleGPipe

from mlsyslab.bench.report import summarize
from mlsyslab.collectives.calibrate import calibrate_on
from mlsyslab.comm import Communicator, Link, launch
from mlsyslab.pipeline.execute import Executor
from mlsyslab.pipeline.schedule import Schedule
from mlsyslab.pipeline.schedules import schedule
from mlsyslab.pipeline.simulate import replay, simulate

RANKS = 2, 4
THEIRS = {"GPipe": ScheduleGPipe, "1F1B": Schedule1F1B}
ROWS, WIDTH, LAYERS = 32, 256, 4  # of a microbatch; of a layer; of a stage
WARM_UP, STEPS = 3, 15
HEAVY = 512  # rows and width where a stage works long enough to compare its bubble
LASTS = 0.03  # s, a modelled forward
GROWING = [(8, 128), (16, 512), (32, 1024), (64, 2048)]  # (p, m), with 4 chunks a rank


def rows() -> Iterator[dict[str, Any]]:
    for p in RANKS:
        for name in THEIRS:
            yield _against_torch(schedule(name, p, 4 * p))
    yield _against_simulation(schedule("1F1B", 2, 8), "real")  # on more ranks than cores, ranks would wait for cores
    for p in RANKS:
        yield _against_simulation(schedule("1F1B", p, 4 * p), "modelled")
    for p, m in GROWING:
        yield _simulator(p, m)


# -- against torch ----------------------------------------------------------------------------------------------------


def _against_torch(plan: Schedule) -> dict[str, Any]:
    times = launch(_measure, [plan] * plan.ranks, backend="gloo").results
    ours, theirs = ([max(of_ranks) for of_ranks in zip(*samples, strict=True)] for samples in zip(*times, strict=True))
    return {"what": f"{plan.name}, step", "p": plan.ranks, "m": plan.microbatches, "ours": summarize(ours),
            "torch": summarize(theirs), "ratio": statistics.median(ours) / statistics.median(theirs)}


def _measure(comm: Communicator, plan: Schedule) -> tuple[list[float], list[float]]:
    """Times of our steps and of torch's, in turns; whose turn is first alternates."""
    torch.set_num_threads(1)
    ours = Executor(comm, {comm.rank: _stage(comm.rank)}, plan, nn.functional.mse_loss)
    theirs = THEIRS[plan.name](PipelineStage(_stage(comm.rank), comm.rank, comm.size, comm.device), plan.microbatches,
                               loss_fn=nn.functional.mse_loss)
    x = torch.randn(ROWS * plan.microbatches, WIDTH)

    def torch_step() -> None:
        theirs.step(*[x][:comm.rank == 0], **{"target": x} if comm.rank == comm.size - 1 else {})

    def our_step() -> None:
        ours.step(x, x)

    taken: dict[Callable[[], None], list[float]] = {torch_step: [], our_step: []}
    for i in range(WARM_UP + STEPS):
        for step in (torch_step, our_step)[::1 if i % 2 else -1]:
            taken[step].append(_seconds(comm, step))
    return taken[our_step][WARM_UP:], taken[torch_step][WARM_UP:]


def _stage(rank: int, width: int = WIDTH) -> nn.Module:
    torch.manual_seed(rank)
    return nn.Sequential(*(layer for _ in range(LAYERS) for layer in (nn.Linear(width, width), nn.ReLU())))


def _seconds(comm: Communicator, function: Callable[[], None]) -> float:
    comm.barrier()
    start = time.perf_counter()
    function()
    return time.perf_counter() - start


# -- against the simulation -------------------------------------------------------------------------------------------


class _Lasting(torch.autograd.Function):
    """Modelled work: a forward that lasts, and a backward of twice that, without taking a core from the other ranks."""

    @staticmethod
    def forward(ctx, x: torch.Tensor) -> torch.Tensor:
        time.sleep(LASTS)
        return x.clone()

    @staticmethod
    def backward(ctx, gradient: torch.Tensor) -> torch.Tensor:
        time.sleep(2 * LASTS)
        return gradient


class _Modelled(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(1, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return _Lasting.apply(self.layer(x))


def _against_simulation(plan: Schedule, work: str) -> dict[str, Any]:
    run = launch(_traced, [(plan, work)] * plan.ranks, backend="gloo")
    link, spans = run.results[0]
    message = 4 * HEAVY**2 if work == "real" else 4
    measured, simulated = [], []
    for begin, end in spans[WARM_UP:]:
        actions = [e for e in run.trace if e.kind == "compute" and begin <= e.start < end]
        makespan = max(e.end for e in actions) - min(e.start for e in actions)
        measured.append(1 - sum(e.end - e.start for e in actions) / (plan.ranks * makespan))
        simulated.append(replay(plan, actions, link, message).bubble)
    ratios = [real / promised for real, promised in zip(measured, simulated, strict=True)]
    return {"what": f"{plan.name}, bubble, {work} work", "p": plan.ranks, "m": plan.microbatches,
            "measured": statistics.median(measured), "simulated": statistics.median(simulated),
            "ratio": statistics.median(ratios)}


def _traced(comm: Communicator, given: tuple[Schedule, str]) -> tuple[Link, list[tuple[float, float]]]:
    """Steps between barriers: the link between these ranks, and when each step began and ended."""
    plan, work = given
    torch.set_num_threads(1)
    link = calibrate_on(comm)
    stage, x = (_stage(comm.rank, HEAVY), torch.randn(HEAVY * plan.microbatches, HEAVY)) if work == "real" else \
        (_Modelled(), torch.randn(plan.microbatches, 1))
    executor, spans = Executor(comm, {comm.rank: stage}, plan, nn.functional.mse_loss), []
    for _ in range(WARM_UP + STEPS):
        comm.barrier()
        begin = comm.now()
        executor.step(x, x)
        comm.barrier()
        spans.append((begin, comm.now()))
    return link, spans


# -- the simulator ----------------------------------------------------------------------------------------------------


def _simulator(p: int, m: int) -> dict[str, Any]:
    plan = schedule("interleaved", p, m, chunks=4)
    start = time.perf_counter()
    timeline = simulate(plan, B=2.0)
    seconds = time.perf_counter() - start
    return {"what": "simulator", "p": p, "m": m, "actions": len(plan), "seconds": seconds, "actions/s": len(plan) / seconds,
            "simulated": timeline.bubble}
