"""What all stages share: a step is forward, backward, clipping, update; hooks see every gradient as it comes."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import nn

from mlsyslab.collectives import broadcast, ring
from mlsyslab.comm import Communicator
from mlsyslab.comm.connect import give_back_freed_memory
from mlsyslab.data_parallel.buckets import PART
from mlsyslab.zero.clip import clip_grad_norm
from mlsyslab.zero.flat import Flat, Named
from mlsyslab.zero.gradient import Gradient
from mlsyslab.zero.lane import Lane
from mlsyslab.zero.ledger import Ledger
from mlsyslab.zero.own import MakeOptimizer, Own


class Engine:
    """A model that is trained by all ranks of `comm`, each of which keeps a shard of what its stage shards.

    stage: 1, 2 or 3.  flats: all parameters.  shards: this rank's part of each flat.  steps: how many were made.
    optimizer: torch's, of this rank's shards alone; its `param_groups` hold the learning rate.
    """

    stage: int

    def __init__(self, comm: Communicator, model: nn.Module, optimizer: MakeOptimizer, overlap: bool, offload: bool):
        self.comm, self.model, self.steps = comm, model, 0
        self.lane, self.ledger = Lane(comm, overlap), Ledger(comm)
        self.flats = self._lay_out([*model.named_parameters()])
        _start_alike(comm, self.flats, model)
        self.trained = [flat for flat in self.flats if flat.trained]
        if not self.trained:
            raise ValueError("no parameter of the model has requires_grad: there is nothing to train")
        self.gradients = self._make_gradients()
        self.shards = {flat: self._shard(flat) for flat in self.flats}
        self.own = Own(optimizer, [self.shards[flat] for flat in self.trained], offload, self.ledger)
        self.optimizer = self.own.optimizer
        for gradient in self.gradients:
            for i, parameter in enumerate(gradient.flat.parameters):
                parameter.register_post_accumulate_grad_hook(self._taker(gradient, i))
        give_back_freed_memory()  # that of the parameters before they were laid out

    # -- a step -------------------------------------------------------------------------------------------------------

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """The model's forward."""
        return self.model(*args, **kwargs)

    def backward(self, loss: torch.Tensor, share: float | None = None, last: bool = True) -> None:
        """Add the gradients of `loss` to those of the step.

        share: what `loss` counts for. Where it is the mean over this rank's rows, the share is those rows over the rows
            of the whole batch, on all ranks and in all microbatches; by default 1/p, for equal parts.
        last: False for all microbatches of a step but its last.

        All ranks' gradients are summed. Every rank calls it, also one that has no row left (with a loss of 0).
        """
        if loss.numel() != 1:
            raise ValueError(f"backward starts from a loss, a single number, not from a tensor of shape {tuple(loss.shape)}")
        self.last = last
        self._begin_backward()
        loss.backward(torch.full_like(loss, 1 / self.comm.size if share is None else share))
        self._end_backward()

    def clip_grad_norm(self, max_norm: float) -> torch.Tensor:
        """Scale the gradients so that their norm, over all ranks' shards, is at most `max_norm`; returns it as it was."""
        return clip_grad_norm(self.comm, self._own_gradients(), max_norm)

    def step(self) -> None:
        """Update this rank's shards; afterwards the gradients are forgotten and the parameters up to date.

        Stage 1 keeps the memory of its whole gradients for the next step.
        """
        for i, shard in enumerate(self._own_gradients()):
            self.own.update(i, shard)
            self.gradients[i].forget()
            self._updated(self.trained[i])
        self.lane.wait()
        self.steps += 1

    def zero_grad(self) -> None:
        """Forget the gradients of a step that is not to be made."""
        for gradient in self.gradients:
            gradient.forget()

    def refresh(self) -> None:
        """Bring what this rank's shards hold to wherever the stage keeps it whole; every rank calls it."""
        for flat in self.flats:
            self._updated(flat)
        self.lane.wait()

    def whole(self) -> AbstractContextManager[None]:
        """Inside, all parameters are whole and up to date on every rank; to be entered by every rank."""
        return nullcontext()

    # -- what a stage does in its own way -----------------------------------------------------------------------------

    def _lay_out(self, parameters: list[Named]) -> list[Flat]:
        """All parameters, in flats."""
        raise NotImplementedError

    def _shard(self, flat: Flat) -> torch.Tensor:
        """This rank's part of the parameters of `flat`."""
        raise NotImplementedError

    def _make_gradients(self) -> list[Gradient]:
        return [Gradient(flat, self.ledger) for flat in self.trained]

    def _begin_backward(self) -> None:
        """Backward is about to begin."""
        for gradient in self.gradients:
            gradient.came.clear()

    def _take(self, gradient: Gradient, i: int, found: torch.Tensor) -> None:
        """The gradient of one parameter is there."""
        gradient.add(i, found)

    def _came(self, gradient: Gradient) -> None:
        """One more parameter's gradient is there."""

    def _end_backward(self) -> None:
        """Backward has ended: see to what has not been reduced yet."""
        raise NotImplementedError

    def _updated(self, flat: Flat) -> None:
        """This rank's shard of `flat` is up to date."""

    # -- gradients ----------------------------------------------------------------------------------------------------

    def _taker(self, gradient: Gradient, i: int) -> Callable[[nn.Parameter], None]:
        """What autograd calls when the gradient of a parameter is there, with all its uses added up."""

        def take(parameter: nn.Parameter) -> None:
            found, parameter.grad = parameter.grad, None
            self._take(gradient, i, found)
            self._came(gradient)

        return take

    def _reduce_scatter(self, gradient: Gradient, then: Callable[[], None]) -> None:
        """Begin to sum up a gradient over all ranks; `then()` finds the sum in this rank's part of `gradient.whole`."""
        self.lane.start(then, reduce_scatter, gradient.fill(), gradient.flat.lengths, gradient.flat.label)

    def _all_gather(self, flat: Flat, then: Callable[[], None]) -> None:
        """Begin to make the parameters of `flat` whole from every rank's part of `flat.whole`."""
        self.lane.start(then, all_gather, flat.whole, flat.lengths, flat.label)

    def _own_gradients(self) -> list[torch.Tensor]:
        if any(gradient.shard is None for gradient in self.gradients):
            raise RuntimeError("there is no gradient to step with: call backward(loss) first, with last=True for the last "
                               "microbatch of a step")
        return [gradient.shard for gradient in self.gradients]

    def held_gradients(self) -> Iterator[torch.Tensor]:
        """All memory of gradients that this rank has now."""
        return itertools.chain.from_iterable(gradient.tensors() for gradient in self.gradients)


def _start_alike(comm: Communicator, flats: Sequence[Flat], model: nn.Module) -> None:
    """Give every rank what rank 0 has: parameters that begin apart stay apart."""
    pieces = (piece for flat in flats for piece in flat.whole.split(_stripe(flat.whole)))
    for tensor in itertools.chain(pieces, model.buffers()):
        tensor.copy_(broadcast(comm, tensor))


def reduce_scatter(comm: Communicator, whole: torch.Tensor, lengths: Sequence[int], label: str) -> None:
    """Sum up `whole` over all ranks, in place: rank r's part on rank r."""
    start = comm.now()
    for parts in stripes(whole, lengths):
        ring.reduce_scatter(comm, parts, "sum")
    comm.record("reduce_scatter", start, comm.now(), whole.nbytes, label=label)


def all_gather(comm: Communicator, whole: torch.Tensor, lengths: Sequence[int], label: str) -> None:
    """Bring every rank's part of `whole` to every rank, in place."""
    start = comm.now()
    for parts in stripes(whole, lengths):
        ring.all_gather(comm, parts)
    comm.record("all_gather", start, comm.now(), whole.nbytes, label=label)


def stripes(whole: torch.Tensor, lengths: Sequence[int]) -> Iterator[list[torch.Tensor]]:
    """The ranks' parts of `whole`, a stretch of all of them at a time."""
    pieces = [part.split(_stripe(whole)) for part in whole.split(list(lengths))]
    return itertools.zip_longest(*pieces, fillvalue=whole[:0])


def _stripe(whole: torch.Tensor) -> int:
    """Elements of each rank's part that travel at one time: few between CPUs, where what is on its way takes memory."""
    return max(1, whole.numel() if whole.is_cuda else PART // whole.itemsize)
