"""A training program that can be killed at any time and goes on from its last checkpoint, with whatever ranks there are.

    MLSYSLAB_TRAINING='{"folder": "/shared/run"}' torchrun --nproc-per-node 4 -m mlsyslab.run \\
        mlsyslab.zero.training:main --inputs mlsyslab.zero.training:inputs

Three things make that possible: the whole batch of a step depends on the step alone, never on the world size; a checkpoint
holds all that the next step depends on; and whoever starts looks for a checkpoint first.
"""

from __future__ import annotations

import json
import os
import signal
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch
from torch import nn

from mlsyslab.collectives import all_reduce
from mlsyslab.comm import Communicator
from mlsyslab.zero.checkpoint import latest, load, save
from mlsyslab.zero.shard import shard

FEATURES = 6


@dataclass(frozen=True)
class Settings:
    """folder: of checkpoints and log.  steps: how many to make.  every: steps between checkpoints.  stage: of ZeRO.
    rows: of the whole batch.  kill: (rank, step), a rank that is to die in the middle of a step, for a trial.
    """

    folder: str
    steps: int = 16
    every: int = 5
    stage: int = 2
    rows: int = 22
    kill: tuple[int, int] | None = None


def inputs(size: int) -> list[Settings]:
    """The settings in the environment, for every rank."""
    return [Settings(**json.loads(os.environ["MLSYSLAB_TRAINING"]))] * size


def main(comm: Communicator, settings: Settings) -> list[float]:
    """Train up to step number `steps`; returns the losses of the steps made here, and writes them to folder/log.jsonl."""
    folder = Path(settings.folder)
    engine = shard(comm, model(), partial(torch.optim.Adam, lr=0.01), settings.stage)
    found = latest(folder)
    if found is not None:
        load(engine, found)
    losses = []
    for step in range(engine.steps, settings.steps):
        x, y = batch(step, settings.rows)
        mine = slice(*_span(settings.rows, comm.rank, comm.size))
        loss = nn.functional.mse_loss(engine(x[mine]), y[mine], reduction="sum") / settings.rows
        if settings.kill is not None and tuple(settings.kill) == (comm.rank, step):
            os.kill(os.getpid(), signal.SIGKILL)
        engine.backward(loss, share=1.0)
        engine.step()
        losses.append(all_reduce(comm, loss.detach()).item())
        if comm.rank == 0:
            _log(folder / "log.jsonl", {"step": step, "loss": losses[-1], "ranks": comm.size})
        if engine.steps % settings.every == 0:
            save(engine, folder)
    return losses


def model() -> nn.Module:
    """What is trained: the same at every start."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return nn.Sequential(nn.Linear(FEATURES, 16), nn.Tanh(), nn.Linear(16, 1)).double()


def batch(step: int, rows: int) -> tuple[torch.Tensor, torch.Tensor]:
    """The whole batch of a step: (rows, features) and (rows, 1)."""
    generator = torch.Generator().manual_seed(step)
    x = torch.randn(rows, FEATURES, dtype=torch.float64, generator=generator)
    return x, x.square().mean(1, keepdim=True)


def _span(rows: int, rank: int, ranks: int) -> tuple[int, int]:
    """First row of this rank, and the one after its last."""
    return rows * rank // ranks, rows * (rank + 1) // ranks


def _log(path: Path, line: dict) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "a", encoding="utf-8") as file:
        file.write(json.dumps(line) + "\n")
