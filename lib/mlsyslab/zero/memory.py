"""How much memory the model states take on each rank: by the formulas, and as it is.

Model states are parameters, gradients and optimizer state. Activations and what a step needs for a moment (buckets on
their way, a gathered layer) come on top.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, NamedTuple

import torch

if TYPE_CHECKING:
    from mlsyslab.zero.engine import Engine


class Memory(NamedTuple):
    """Bytes on one rank.  offloaded: of the optimizer state, what lies in the memory of the CPU instead; not in `total`."""

    parameters: float
    gradients: float
    optimizer: float
    offloaded: float = 0

    @property
    def total(self) -> float:
        return self.parameters + self.gradients + self.optimizer


def memory(parameters: float, ranks: int, stage: int, parameter: float = 2, gradient: float = 2,
           optimizer: float = 12) -> Memory:
    """Bytes of model states on each of `ranks` ranks (Rajbhandari et al. 2020, section 5 and figure 1).

    parameters: how many, M.  parameter, gradient, optimizer: bytes a parameter; by default those of mixed-precision Adam:
    2 + 2 + 12, the 12 being a master copy of the parameters, momentum and variance in 32 bits.

        stage 0   (2 + 2 + 12) M            stage 2   2 M + (2 + 12) M / N
        stage 1   (2 + 2) M + 12 M / N      stage 3   (2 + 2 + 12) M / N
    """
    check_stage(stage)
    if ranks < 1 or min(parameters, parameter, gradient, optimizer) < 0:
        raise ValueError(f"memory(parameters={parameters}, ranks={ranks}): ranks are 1 or more, the rest 0 or more")
    share = [1 / ranks if stage >= sharded_from else 1 for sharded_from in (3, 2, 1)]
    return Memory(*(parameters * size * part for size, part in zip((parameter, gradient, optimizer), share, strict=True)))


def check_stage(stage: int) -> None:
    """Raise ValueError unless there is such a stage."""
    if stage not in (0, 1, 2, 3):
        raise ValueError(f"stage={stage!r}: ZeRO has stages 1 (optimizer state in shards), 2 (gradients too) and 3 "
                         f"(parameters too); 0 is data parallelism without shards")


def bytes_a_parameter(optimizer: Callable[[list[torch.Tensor]], torch.optim.Optimizer],
                      dtype: torch.dtype) -> tuple[int, int, int]:
    """(parameter, gradient, optimizer state): what `memory` takes, found by one step of `optimizer` on a small tensor.

    The optimizer state of 16-bit parameters holds their master copy of 32 bits.
    """
    small = torch.zeros(64, dtype=torch.float32 if dtype.itemsize < 4 else dtype)
    master = torch.nn.Parameter(small)
    trial = optimizer([master])
    master.grad = torch.zeros_like(master)
    trial.step()
    state = sum(tensor.nbytes for tensor in state_tensors(trial, master).values())
    return dtype.itemsize, dtype.itemsize, (state + (master.nbytes if dtype != master.dtype else 0)) // len(small)


def state_tensors(optimizer: torch.optim.Optimizer, parameter: torch.Tensor) -> dict[str, torch.Tensor]:
    """The state that `optimizer` keeps for every element of `parameter`, by name (a count of steps isn't of that kind)."""
    return {name: value for name, value in optimizer.state[parameter].items()
            if isinstance(value, torch.Tensor) and value.shape == parameter.shape and value.dim()}


def live(engine: Engine) -> Memory:
    """Bytes of the tensors of model states that this rank holds now, counted once where they share their memory."""
    seen: set[int] = set()
    parameters = _bytes((*engine.model.parameters(), *(flat.whole for flat in engine.flats), *engine.shards.values()), seen)
    gradients = _bytes(engine.held_gradients(), seen)
    optimizer = _bytes(engine.own.tensors(), seen)
    return Memory(parameters, gradients, 0, optimizer) if engine.own.offload else Memory(parameters, gradients, optimizer)


def _bytes(tensors: Iterable[torch.Tensor], seen: set[int]) -> int:
    """Bytes of the memory behind `tensors` that isn't in `seen` yet."""
    total = 0
    for tensor in tensors:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in seen and storage.nbytes():
            seen.add(storage.data_ptr())
            total += storage.nbytes()
    return total
