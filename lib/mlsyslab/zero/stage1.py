"""Stage 1: every rank has all parameters and gradients, and the optimizer's state of its shard (P_os)."""

from __future__ import annotations

import torch
from torch import nn

from mlsyslab.comm import Communicator
from mlsyslab.zero.engine import Engine
from mlsyslab.zero.flat import Flat, Named, buckets_of, flats_of
from mlsyslab.zero.gradient import Gradient
from mlsyslab.zero.own import MakeOptimizer


class Stage1(Engine):
    """An all-reduce in two halves with the update between them.

    Data parallelism ends a step by an all-reduce of the gradients, that is a reduce-scatter and an all-gather, and by the
    same update on every rank. But after the reduce-scatter rank r has all it needs to update shard r, so the all-gather can
    as well bring updated parameters instead of gradients: 2M (p-1)/p elements as before, 1/p of the optimizer's state.
    """

    stage = 1

    def __init__(self, comm: Communicator, model: nn.Module, optimizer: MakeOptimizer, bucket_bytes: int = 25 << 20,
                 overlap: bool = True, offload: bool = False):
        self.bucket_bytes = bucket_bytes
        self.reduced = 0  # buckets whose reduce-scatter has begun in this backward
        super().__init__(comm, model, optimizer, overlap, offload)

    def _make_gradients(self) -> list[Gradient]:
        """With their memory, where it stays: it is best taken before anything comes and goes."""
        gradients = super()._make_gradients()
        if self.stage == 1:
            for gradient in gradients:
                gradient.room()
        return gradients

    def _lay_out(self, parameters: list[Named]) -> list[Flat]:
        trained = [named for named in parameters if named[1].requires_grad]
        frozen = [named for named in parameters if not named[1].requires_grad]
        flats = buckets_of(trained, self.comm.size, self.bucket_bytes) + flats_of(frozen, self.comm.size, "frozen")
        for flat in flats:
            self.ledger.take("parameters", flat.nbytes)
        return flats

    def _shard(self, flat: Flat) -> torch.Tensor:
        return flat.parts(flat.whole)[self.comm.rank]

    # -- backward: reduce each bucket as soon as it is complete -------------------------------------------------------

    def _begin_backward(self) -> None:
        if self.stage == 1 and any(gradient.shard is not None for gradient in self.gradients):
            raise RuntimeError("the gradients of this step have been reduced already: call step(), or pass last=False for "
                               "all microbatches of a step but its last")
        super()._begin_backward()
        self.reduced = 0

    def _came(self, gradient: Gradient) -> None:
        while self._reduces and self.reduced < len(self.gradients) and self.gradients[self.reduced].complete:
            self._reduce_next()

    def _end_backward(self) -> None:
        while self._reduces and self.reduced < len(self.gradients):
            self._reduce_next()
        self.lane.wait()

    @property
    def _reduces(self) -> bool:
        """Whole gradients can add up all microbatches before they are reduced, once."""
        return self.last

    def _reduce_next(self) -> None:
        """Bucket after bucket, in the same order on every rank, whichever is complete first on one of them."""
        gradient = self.gradients[self.reduced]
        self.reduced += 1
        self._reduce(gradient)

    def _reduce(self, gradient: Gradient) -> None:
        self._reduce_scatter(gradient, lambda: gradient.point(self.comm.rank))

    # -- update: bring each updated bucket to all ranks while the next is updated -------------------------------------

    def _updated(self, flat: Flat) -> None:
        self._all_gather(flat, lambda: None)
