"""ZeRO against torch: stage 1 against ZeroRedundancyOptimizer, stage 3 against FSDP2 (fully_shard).

Same model, batch, optimizer (fused AdamW), ranks and backend (processes, Gloo), in turns within one run (`steps`). A step
is forward, backward and update. ZeroRedundancyOptimizer (over DDP) is taken as it is by default, and with the views that
save it memory. On CPUs FSDP2 gathers nothing ahead and overlaps nothing, which takes less memory; so ours is also taken
without.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import torch
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel

from mlsyslab import zero
from mlsyslab.bench.steps import Step, compare
from mlsyslab.comm import Communicator

RANKS = 2, 4
LAYERS, WIDTH, ROWS = 8, 1024, 64  # 8.4 million parameters; rows a rank

ADAMW = partial(torch.optim.AdamW, lr=1e-4, fused=True)


def rows() -> Iterator[dict[str, Any]]:
    for p in RANKS:
        for peer, (ours, torchs) in MAKERS.items():
            yield {"against": peer, **compare(p, ours, torchs, WIDTH)}


# -- steps ------------------------------------------------------------------------------------------------------------


def _model(width: int) -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(*(nn.Sequential(nn.Linear(width, width), nn.ReLU()) for _ in range(LAYERS)))


def _ours(comm: Communicator, width: int, stage: int, **options: Any) -> Step:
    model, x = _model(width), torch.randn(ROWS, width)
    engine = zero.shard(comm, model, ADAMW, stage, units=list(model) if stage == 3 else None, **options)

    def step() -> None:
        engine.backward(nn.functional.mse_loss(engine(x), x))
        engine.step()

    return step


def _zero_redundancy(comm: Communicator, width: int, views: bool) -> Step:
    model, x = DistributedDataParallel(_model(width), gradient_as_bucket_view=views), torch.randn(ROWS, width)
    optimizer = ZeroRedundancyOptimizer(model.parameters(), ADAMW.func, parameters_as_bucket_view=views, **ADAMW.keywords)
    return _torch_step(model, optimizer, x)


def _fully_sharded(comm: Communicator, width: int) -> Step:
    model, mesh, x = _model(width), init_device_mesh("cpu", (comm.size,)), torch.randn(ROWS, width)
    for layer in model:
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    return _torch_step(model, ADAMW(model.parameters()), x)


def _torch_step(model: nn.Module, optimizer: torch.optim.Optimizer, x: torch.Tensor) -> Step:
    def step() -> None:
        nn.functional.mse_loss(model(x), x).backward()
        optimizer.step()
        optimizer.zero_grad()

    return step


#: by peer: our step, and the peer's
MAKERS = {"ZeroRedundancyOptimizer": (partial(_ours, stage=1), partial(_zero_redundancy, views=False)),
          "… with views": (partial(_ours, stage=1), partial(_zero_redundancy, views=True)),
          "FSDP2": (partial(_ours, stage=3), _fully_sharded),
          "FSDP2, ours without overlap": (partial(_ours, stage=3, overlap=False, prefetch=0), _fully_sharded)}
