"""Our DistributedDataParallel against torch's.

Same model, batch, optimizer (SGD with momentum), buckets (1 MiB, then 25 MiB), all-reduce (a ring, which is Gloo's), ranks
and backend (processes, Gloo), in turns within one run (`steps`). Torch's keeps its gradients in its buckets
(gradient_as_bucket_view), as ours does. A step is forward, backward and update.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel as TorchDDP

from mlsyslab.bench.steps import Step, compare
from mlsyslab.comm import Communicator
from mlsyslab.data_parallel import DistributedDataParallel

RANKS = 2, 4
LAYERS, WIDTH, ROWS = 8, 1024, 64  # 8.4 million parameters; rows a rank


def rows() -> Iterator[dict[str, Any]]:
    for p in RANKS:
        yield compare(p, _ours, _torchs, WIDTH)


def _model(width: int) -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(*(layer for _ in range(LAYERS) for layer in (nn.Linear(width, width), nn.ReLU())))


def _ours(comm: Communicator, width: int) -> Step:
    return _step(DistributedDataParallel(_model(width), comm, algorithm="ring"), width)


def _torchs(comm: Communicator, width: int) -> Step:
    return _step(TorchDDP(_model(width), gradient_as_bucket_view=True), width)


def _step(model: nn.Module, width: int) -> Step:
    optimizer, x = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9), torch.randn(ROWS, width)

    def step() -> None:
        nn.functional.mse_loss(model(x), x).backward()
        optimizer.step()
        optimizer.zero_grad()

    return step
