"""Our DistributedDataParallel against torch's.

Same model, batch, optimizer (SGD with momentum), buckets (1 MiB, then 25 MiB), ranks and backend (processes, Gloo), in
turns within one run. Torch's keeps its gradients in its buckets (gradient_as_bucket_view), as ours does. A step is forward,
backward and update; a time is that of the slowest rank, from a barrier on. Memory is how far a rank's resident memory rises
at most above what it was before the model was made, each in processes of its own; the largest of the ranks.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from typing import Any

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel as TorchDDP

from mlsyslab.bench.report import summarize
from mlsyslab.bench.steps import Step, in_turns, peak
from mlsyslab.comm import Communicator, launch
from mlsyslab.data_parallel import DistributedDataParallel

RANKS = 2, 4
LAYERS, WIDTH, ROWS = 8, 1024, 64  # 8.4 million parameters; rows a rank


def rows() -> Iterator[dict[str, Any]]:
    for p in RANKS:
        times = launch(in_turns, [((_ours, _torchs), WIDTH)] * p, backend="gloo").results
        ours, theirs = ([max(of_ranks) for of_ranks in zip(*samples, strict=True)] for samples in zip(*times, strict=True))
        our_bytes, their_bytes = (max(launch(peak, [(make, WIDTH)] * p, backend="gloo").results)
                                  for make in (_ours, _torchs))
        yield {"p": p, "ours": summarize(ours), "torch": summarize(theirs),
               "ratio": statistics.median(ours) / statistics.median(theirs), "our MB": our_bytes / 1e6,
               "torch MB": their_bytes / 1e6, "memory ratio": our_bytes / their_bytes}


def _model(width: int) -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(*(layer for _ in range(LAYERS) for layer in (nn.Linear(width, width), nn.ReLU())))


def _ours(comm: Communicator, width: int) -> Step:
    return _step(DistributedDataParallel(_model(width), comm), width)


def _torchs(comm: Communicator, width: int) -> Step:
    return _step(TorchDDP(_model(width), gradient_as_bucket_view=True), width)


def _step(model: nn.Module, width: int) -> Step:
    optimizer, x = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9), torch.randn(ROWS, width)

    def step() -> None:
        nn.functional.mse_loss(model(x), x).backward()
        optimizer.step()
        optimizer.zero_grad()

    return step
