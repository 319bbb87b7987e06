"""The one call that makes a model ready for training by any stage."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import nn

from mlsyslab.comm import Communicator
from mlsyslab.zero.engine import Engine
from mlsyslab.zero.own import MakeOptimizer
from mlsyslab.zero.stage1 import Stage1
from mlsyslab.zero.stage2 import Stage2
from mlsyslab.zero.stage3 import Stage3


def shard(comm: Communicator, model: nn.Module, optimizer: MakeOptimizer, stage: int, *, bucket_bytes: int = 25 << 20,
          units: Sequence[nn.Module] | None = None, prefetch: int = 1, overlap: bool = True,
          offload: bool = False) -> Engine:
    """Shard `model`, in place, over the ranks of `comm`; every rank calls it, and all start from rank 0's parameters.

    optimizer: makes a torch optimizer that treats every element by itself, of a list of flat tensors:
        `partial(torch.optim.AdamW, lr=3e-4)`.
    stage: 1 shards the optimizer's state, 2 gradients too, 3 parameters too.
    bucket_bytes: how much of the gradients stages 1 and 2 reduce at a time.
    units: modules that stage 3 gathers at a time, by default the model's children and those of its containers. A unit's
        parameters are there while its forward runs, so a module whose parameters are read from elsewhere is not a unit.
    prefetch: how many units ahead stage 3 begins to gather.  overlap: whether communication goes on beside computing.
    offload: keep the optimizer's state, and a copy of the shard that it updates, in the memory of the CPU.

    A parameter that the loss doesn't depend on counts as one with gradient 0. Buffers stay as each rank has them.
    """
    common: dict[str, Any] = {"overlap": overlap, "offload": offload}
    if stage == 3:
        if prefetch < 0:
            raise ValueError(f"prefetch={prefetch}: how many units to gather ahead, 0 or more")
        return Stage3(comm, model, optimizer, units=units, prefetch=prefetch, **common)
    if stage not in (1, 2):
        raise ValueError(f"stage={stage!r}: ZeRO has stages 1 (optimizer state in shards), 2 (gradients too) and 3 "
                         f"(parameters too)")
    if units is not None:
        raise ValueError(f"units are what stage 3 gathers; stage {stage} reduces buckets: give bucket_bytes instead")
    if bucket_bytes < 1:
        raise ValueError(f"bucket_bytes={bucket_bytes}: a bucket has 1 byte or more")
    return (Stage1 if stage == 1 else Stage2)(comm, model, optimizer, bucket_bytes, **common)
