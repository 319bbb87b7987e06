"""Distributed data parallelism: every rank has the model, computes on its part of the batch, and gradients are averaged.

The mean of the parts' mean gradients is the whole batch's mean gradient, so N ranks take the step that one would take with
the whole batch. What makes it fast is when the averaging happens: during backward (`reducer.py`; Li et al. 2020).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn
from torch.utils._pytree import tree_leaves

from mlsyslab.collectives import all_reduce
from mlsyslab.collectives.operations import check_algorithm
from mlsyslab.comm import Communicator
from mlsyslab.data_parallel.agree import check_same, copy_from_rank_0
from mlsyslab.data_parallel.buckets import MIB, Bucket
from mlsyslab.data_parallel.reducer import Reducer, Seconds


class DistributedDataParallel(nn.Module):
    """A module whose gradients, when `backward` returns, are the means over all ranks.

    That holds as long as this object is there; without it, the module's gradients are its own again.

    module: the model, of the same form on every rank; every rank begins with rank 0's values.
    first_bucket_bytes, bucket_bytes: see `buckets.assign`.
    gradient_dtype: in which dtype gradients travel and are added (torch.bfloat16, say); by default their own.
    find_unused_parameters: whether a loss may leave out some parameters. One that no rank used keeps its `.grad` as it was.
    broadcast_buffers: whether every training forward begins with rank 0's buffers (the statistics of batch normalization).
    algorithm: of the all-reduce; "auto" takes the cheapest for each bucket.
    seconds: (name, parameter) -> what the simulated clock charges for that parameter's part of backward.

    Raises ValueError, naming parameter and rank, when ranks have different models. A backward that gives some parameter no
    gradient raises RuntimeError with the parameter and the rank.
    """

    def __init__(self, module: nn.Module, comm: Communicator, *, first_bucket_bytes: int = MIB,
                 bucket_bytes: int = 25 * MIB, gradient_dtype: torch.dtype | None = None,
                 find_unused_parameters: bool = False, broadcast_buffers: bool = True, algorithm: str = "auto",
                 seconds: Seconds | None = None):
        super().__init__()
        check_algorithm("all_reduce", algorithm)
        if gradient_dtype is not None and not gradient_dtype.is_floating_point:
            raise TypeError(f"gradient_dtype={gradient_dtype}: gradients travel as floating-point numbers")
        check_same(comm, module)
        copy_from_rank_0(comm, [*module.parameters(), *module.buffers()])
        training = [(name, p) for name, p in module.named_parameters() if p.requires_grad]
        if not training:
            raise ValueError("no parameter of this module requires a gradient, so there is nothing to average")
        self.module, self.comm, self.broadcast_buffers = module, comm, broadcast_buffers
        self.reducer = Reducer(comm, *zip(*training, strict=True), first_bucket_bytes, bucket_bytes, gradient_dtype,
                               find_unused_parameters, algorithm, seconds)

    def forward(self, *inputs: Any, **options: Any) -> Any:
        """The module's own forward."""
        buffers = list(self.module.buffers())
        if self.training and self.broadcast_buffers and buffers and self.reducer.syncing:
            copy_from_rank_0(self.comm, buffers)
        outputs = self.module(*inputs, **options)
        if torch.is_grad_enabled():
            if self.reducer.find_unused:
                self.reducer.used = self._used_by(outputs) | (self.reducer.used or set())
            self.reducer.since = self.comm.now()
        return outputs

    @contextmanager
    def no_sync(self) -> Iterator[None]:
        """Backward inside adds up gradients on this rank, without messages; the next one outside averages the sums."""
        before, self.reducer.syncing = self.reducer.syncing, False
        try:
            yield
        finally:
            self.reducer.syncing = before

    def weigh(self, loss: torch.Tensor, rows: int, total: int | None = None) -> torch.Tensor:
        """A rank's mean loss over its `rows` rows, weighed so that the mean over ranks is the mean over all rows.

        total: the rows of all ranks together, and of all batches whose gradients add up before a step. Without it the ranks
        tell each other their rows of this batch. A rank without rows (whose mean is 0/0) gives zero gradients.
        """
        if total is None:
            total = all_reduce(self.comm, torch.tensor([rows], device=self.comm.device)).item()
        if not 0 <= rows <= total or not total:
            raise ValueError(f"weigh(rows={rows}, total={total}): rows are 0 or more, and no more than the total")
        if not rows:
            return sum((p * 0).sum() for p in self.reducer.parameters)
        return loss * (self.comm.size * rows / total)

    @property
    def buckets(self) -> list[Bucket]:
        """The buckets, in the order in which they are reduced; from the second step on, that of the first one's backward."""
        return self.reducer.buckets

    def _used_by(self, outputs: Any) -> set[int]:
        """The parameters that these outputs depend on, found by walking back through autograd's graph."""
        index = {parameter: i for i, parameter in enumerate(self.reducer.parameters)}
        to_visit = [leaf.grad_fn for leaf in tree_leaves(outputs)
                    if isinstance(leaf, torch.Tensor) and leaf.grad_fn is not None]
        seen, used = set(to_visit), set()
        while to_visit:
            node = to_visit.pop()
            variable = getattr(node, "variable", None)  # of the nodes that add to a leaf's .grad
            if variable is not None and variable in index:
                used.add(index[variable])
            for follower, _ in node.next_functions:
                if follower is not None and follower not in seen:
                    seen.add(follower)
                    to_visit.append(follower)
        return used
