"""What staleness does to training, measured on a small real task: asynchronous methods beside the synchronous one.

The task: learn by heart which of four classes each of 256 points in 16 dimensions has, as a random quadratic form decided
it. The network is deep, one layer a stage. Every method starts from the same weights, sees the same microbatches in the same
order and runs on simulated ranks by its own schedule.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import nn

from mlsyslab.comm import Communicator, simulate
from mlsyslab.pipeline.asynchronous import PipeMare, train
from mlsyslab.pipeline.execute import Executor
from mlsyslab.pipeline.schedules import schedule

METHODS = ("synchronous", "AMPNet", "PipeMare", "PipeDream", "PipeDream-2BW")
POINTS, WIDTH, CLASSES, ROWS = 256, 16, 4, 16


@dataclass(frozen=True)
class Curve:
    """How one method trained.  losses: by microbatch, before its update.  weight_versions: the most on any rank."""

    method: str
    losses: tuple[float, ...]
    weight_versions: int

    @property
    def final(self) -> float:
        """The mean loss over the last tenth of the microbatches; log 4 = 1.39 is chance. Infinite where it ran away."""
        last = self.losses[-max(1, len(self.losses) // 10):]
        return sum(last) / len(last) if all(map(math.isfinite, last)) else math.inf


def converge(method: str, p: int = 8, microbatches: int = 800, accumulate: int = 1, rate: float = 0.02,
             momentum: float = 0.9, pipemare: PipeMare | None = None, seed: int = 0) -> Curve:
    """Train by one method on p simulated ranks, by SGD with momentum.

    method: one of METHODS; "synchronous" is 1F1B, drained before each update.
    microbatches: of 16 points each; the points come round every 16 microbatches.
    accumulate: microbatches to an update; 1 for PipeDream, at least p for PipeDream-2BW.
    pipemare: PipeMare's techniques; by default its rates anneal over the first quarter of the updates.
    """
    if method not in METHODS:
        raise ValueError(f"method={method!r}: choose one of {', '.join(METHODS)}")
    if accumulate < 1 or microbatches % accumulate:
        raise ValueError(f"accumulate={accumulate}: 1 or more, and {microbatches} microbatches a multiple of it")
    stages, (x, y) = network(p, seed), points(seed)
    batches = [(a, b) for a, b in zip(x.split(ROWS), y.split(ROWS), strict=True)]
    batches = [batches[i % len(batches)] for i in range(microbatches)]

    def optimizer(parameters: Sequence[nn.Parameter]) -> torch.optim.Optimizer:
        return torch.optim.SGD(parameters, lr=rate, momentum=momentum)

    if method == "synchronous":
        plan = schedule("1F1B", p, accumulate)

        def one(comm: Communicator, stage: nn.Module) -> tuple[dict[int, torch.Tensor], int]:
            return _synchronous(Executor(comm, {comm.rank: stage}, plan, nn.functional.cross_entropy),
                                optimizer(list(stage.parameters())), batches), 1
    else:
        plan = schedule(method, p, microbatches, **({} if method == "PipeDream" else {"accumulate": accumulate}))
        if method == "PipeMare" and pipemare is None:
            pipemare = PipeMare(anneal=microbatches // accumulate // 4)
        xs, ys = zip(*batches, strict=True)

        def one(comm: Communicator, stage: nn.Module) -> tuple[dict[int, torch.Tensor], int]:
            step = train(comm, {comm.rank: stage}, plan, xs, ys, nn.functional.cross_entropy, optimizer, pipemare=pipemare)
            return step.losses, step.weight_versions

    results = simulate(one, stages).results
    losses, _ = results[-1]
    return Curve(method, tuple(losses[i].item() for i in range(microbatches)), max(versions for _, versions in results))


def points(seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    """(256, 16) points and (256,) their classes."""
    generator = torch.Generator().manual_seed(seed)
    forms = torch.randn(CLASSES, WIDTH, WIDTH, generator=generator) / math.sqrt(WIDTH)
    x = torch.randn(POINTS, WIDTH, generator=generator)
    return x, (torch.einsum("ni,kij,nj->nk", x, forms, x) + 2 * x[:, :CLASSES]).argmax(dim=1)


def network(p: int, seed: int) -> list[nn.Module]:
    """p stages, a layer each; orthogonal weights, so that a deep one trains too."""
    generator = torch.Generator().manual_seed(seed)
    stages = []
    for s in range(p):
        layer = nn.Linear(WIDTH, WIDTH if s < p - 1 else CLASSES)
        nn.init.orthogonal_(layer.weight, gain=1.2, generator=generator)
        nn.init.zeros_(layer.bias)
        stages.append(nn.Sequential(layer, nn.Tanh()) if s < p - 1 else layer)
    return stages


def _synchronous(executor: Executor, optimizer: torch.optim.Optimizer,
                 batches: Sequence[tuple[torch.Tensor, torch.Tensor]]) -> dict[int, torch.Tensor]:
    """What one rank does: a step, an update, and so on. Returns the losses that it has, by microbatch."""
    N, losses = executor.schedule.microbatches, {}
    for start in range(0, len(batches), N):
        x, y = zip(*batches[start:start + N], strict=True)
        step = executor.step(x, y)
        losses |= {start + i: loss for i, loss in step.losses.items()}
        optimizer.step()
        optimizer.zero_grad()
    return losses
