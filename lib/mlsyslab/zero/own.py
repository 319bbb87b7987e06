"""The optimizer of one rank: it sees this rank's shards, and nothing else exists for it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import nn

from mlsyslab.zero.ledger import Ledger
from mlsyslab.zero.memory import state_tensors

MakeOptimizer = Callable[[list[torch.Tensor]], torch.optim.Optimizer]

#: Optimizers of torch that treat every element by itself, so that a shard of a flat row is as good as whole parameters.
ELEMENTWISE = (torch.optim.SGD, torch.optim.Adam, torch.optim.AdamW, torch.optim.Adagrad, torch.optim.RMSprop,
               torch.optim.Adadelta, torch.optim.Adamax, torch.optim.NAdam, torch.optim.RAdam, torch.optim.ASGD,
               torch.optim.Rprop)


class Own:
    """A torch optimizer of `shards`, one flat tensor each; updates one at a time, so that it can be sent on its way.

    masters: what the optimizer updates. For 16-bit shards a copy of 32 bits, in which small updates aren't rounded away
    (Micikevicius et al. 2018, section 3.1); with `offload` a copy in the memory of the CPU, where the optimizer's state is
    too (ZeRO-Offload, Ren et al. 2021); else the shards themselves.
    """

    def __init__(self, make: MakeOptimizer, shards: Sequence[torch.Tensor], offload: bool, ledger: Ledger):
        self.shards, self.offload, self.ledger = list(shards), offload, ledger
        self.masters = [nn.Parameter(self._master(shard)) for shard in shards]
        self.optimizer = make(list(self.masters))
        _check(self.optimizer)
        self.counted = 0
        self._count()

    def _master(self, shard: torch.Tensor) -> torch.Tensor:
        dtype = torch.float32 if shard.dtype.itemsize < 4 else shard.dtype
        if self.offload:
            return shard.to("cpu", dtype, copy=True)
        return shard.to(dtype)  # the shard itself where it has this dtype

    def update(self, i: int, gradient: torch.Tensor) -> None:
        """One step of the optimizer on shard number i."""
        master = self.masters[i]
        if not len(master):  # fewer elements than ranks
            return
        master.grad = gradient.to(master.device, master.dtype)
        self.optimizer.step()  # passes over parameters without a gradient: all others
        master.grad = None
        if self.is_copy(i):
            self.shards[i].copy_(master.detach())
        self._count()

    def is_copy(self, i: int) -> bool:
        """Whether master number i has memory of its own."""
        return self.masters[i].data_ptr() != self.shards[i].data_ptr()

    def state(self, i: int) -> dict[str, torch.Tensor]:
        """What the optimizer keeps for every element of shard number i."""
        return state_tensors(self.optimizer, self.masters[i])

    def counts(self, i: int) -> dict[str, torch.Tensor]:
        """What it keeps for the shard as a whole: how many steps it has made, as a rule."""
        return {name: value for name, value in self.optimizer.state[self.masters[i]].items()
                if isinstance(value, torch.Tensor) and name not in self.state(i)}

    def restore(self, states: dict[int, dict[str, torch.Tensor]], hyperparameters: dict[str, Any]) -> None:
        """Take back what `state` and `counts` gave, by the number of the shard, and the likes of the learning rate."""
        groups = [{**group, **hyperparameters} for group in self.optimizer.state_dict()["param_groups"]]
        self.optimizer.load_state_dict({"state": states, "param_groups": groups})
        self._count()

    def tensors(self) -> Iterator[torch.Tensor]:
        """All that takes memory: masters that are copies, and the optimizer's state."""
        for i, master in enumerate(self.masters):
            if self.is_copy(i):
                yield master
            yield from self.state(i).values()

    def _count(self) -> None:
        """Tell the ledger what has been added: torch makes its state at the first step of each shard."""
        nbytes = 0 if self.offload else sum(tensor.nbytes for tensor in self.tensors())
        self.ledger.take("optimizer", nbytes - self.counted)
        self.counted = nbytes


def _check(optimizer: torch.optim.Optimizer) -> None:
    if not isinstance(optimizer, torch.optim.Optimizer):
        raise TypeError(f"optimizer makes {type(optimizer).__name__}; it has to make a torch optimizer of a list of "
                        "tensors, as partial(torch.optim.AdamW, lr=3e-4) does")
    if not isinstance(optimizer, ELEMENTWISE):
        names = ", ".join(kind.__name__ for kind in ELEMENTWISE)
        raise ValueError(f"{type(optimizer).__name__} may need whole parameters, and a shard is a flat piece of several. "
                         f"Take an optimizer that treats every element by itself ({names})")
