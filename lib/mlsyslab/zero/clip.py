"""Clipping gradients of which no rank has more than a shard."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from mlsyslab.collectives import all_reduce
from mlsyslab.comm import Communicator


def clip_grad_norm(comm: Communicator, shards: Sequence[torch.Tensor], max_norm: float) -> torch.Tensor:
    """Scale `shards`, this rank's gradients, in place, so that the norm over all ranks' is at most `max_norm`.

    The square of the norm is the sum of all ranks' sums of squares: an all-reduce of one number. Returns the norm before,
    the same on every rank. As `torch.nn.utils.clip_grad_norm_` (Pascanu et al. 2013) does it for whole gradients.
    """
    if not max_norm > 0:
        raise ValueError(f"max_norm={max_norm}: a norm to clip to is more than 0")
    norms = torch.stack([torch.linalg.vector_norm(shard, dtype=max(shard.dtype, torch.float32, key=lambda d: d.itemsize))
                         .double() for shard in shards])
    norm = all_reduce(comm, norms.square().sum()).sqrt()
    scale = (max_norm / (norm + 1e-6)).clamp(max=1.0).item()
    if scale < 1:
        for shard in shards:
            shard *= scale
    return norm
