"""What a server does with a gradient: the user-defined update of a parameter server (Li et al. 2014, section 3.4).

A rule works on a flat shard and keeps its state as tensors beside it, so that a shard can be copied whole.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import torch

#: A learning rate: a number, or a function of (worker, clock).
Rate = float | Callable[[int, int], float]


class Rule(Protocol):
    def begin(self, values: torch.Tensor) -> dict[str, torch.Tensor]:
        """The state to begin with."""

    def apply(self, values: torch.Tensor, state: dict[str, torch.Tensor], gradient: torch.Tensor, worker: int,
              clock: int) -> None:
        """Update `values` and `state` in place. worker: whose gradient it is, -1 for the mean of all."""


def rate_at(rate: Rate, worker: int, clock: int) -> float:
    return rate(worker, clock) if callable(rate) else rate


@dataclass(frozen=True)
class SGD:
    """w := w - rate v with v := momentum v + g."""

    rate: Rate
    momentum: float = 0.0

    def begin(self, values):
        return {"momentum": torch.zeros_like(values)} if self.momentum else {}

    def apply(self, values, state, gradient, worker, clock):
        if self.momentum:
            gradient = state["momentum"].mul_(self.momentum).add_(gradient)
        values.sub_(gradient, alpha=rate_at(self.rate, worker, clock))


@dataclass(frozen=True)
class Adam:
    """Adam (Kingma and Ba 2015, algorithm 1), as torch.optim.Adam computes it.

    Its step doesn't depend on the gradient's scale, so where every gradient is applied by itself (ASP, SSP) a clock of W
    workers moves W steps.
    """

    rate: Rate = 1e-3
    betas: tuple[float, float] = (0.9, 0.999)
    eps: float = 1e-8

    def begin(self, values):
        return {"m": torch.zeros_like(values), "v": torch.zeros_like(values), "t": torch.zeros(1, dtype=torch.int64)}

    def apply(self, values, state, gradient, worker, clock):
        beta1, beta2 = self.betas
        t = state["t"].add_(1).item()
        m = state["m"].lerp_(gradient, 1 - beta1)
        v = state["v"].mul_(beta2).addcmul_(gradient, gradient, value=1 - beta2)
        denominator = v.sqrt().div_((1 - beta2**t) ** 0.5).add_(self.eps)
        values.addcdiv_(m, denominator, value=-rate_at(self.rate, worker, clock) / (1 - beta1**t))
