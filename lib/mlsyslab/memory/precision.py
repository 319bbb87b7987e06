"""Mixed precision: 16-bit weights and activations, 32-bit master weights, and a loss scale (Micikevicius et al. 2018).

float16 ends at 65,504 and loses what is smaller than 6e-8, where many gradients lie. Scaling the loss by S scales every
gradient by S, out of that hole; before the update they are divided by S again, in 32 bits. bfloat16 has the range of float32
and needs no scale.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from mlsyslab.memory.units import positive, whole


class LossScaler:
    """A loss scale that finds its size: halved when a gradient overflows, doubled after `interval` good steps in a row."""

    def __init__(self, scale: float = 2.0**16, interval: int = 2000, growth: float = 2.0, backoff: float = 0.5):
        self.scale, self.interval = positive("scale", scale), whole("interval", interval)
        if growth < 1 or not 0 < backoff <= 1:
            raise ValueError(f"LossScaler(growth={growth!r}, backoff={backoff!r}): growth is 1 or more, backoff more "
                             "than 0 and at most 1")
        self.growth, self.backoff, self.good = growth, backoff, 0

    def update(self, overflowed: bool) -> None:
        """Take note of a step."""
        self.good = 0 if overflowed else self.good + 1
        if overflowed:
            self.scale *= self.backoff
        elif self.good == self.interval:
            self.scale, self.good = self.scale * self.growth, 0


class MixedPrecision:
    """Train `model`, whose weights become 16-bit, by an optimizer that updates 32-bit master copies of them.

    dtype: torch.float16 or torch.bfloat16.  optimizer: makes one from the list of masters, as torch.optim.AdamW.
    scaler: for float16; None scales by 1.  skipped: steps without an update, because a gradient overflowed.
    """

    def __init__(self, model: nn.Module, optimizer: Callable[[list[Tensor]], torch.optim.Optimizer],
                 dtype: torch.dtype = torch.float16, scaler: LossScaler | None = None):
        if dtype not in (torch.float16, torch.bfloat16):
            raise ValueError(f"MixedPrecision(dtype={dtype}): dtype is torch.float16 or torch.bfloat16")
        self.masters = [p.detach().float().clone().requires_grad_() for p in model.parameters()]
        self.weights = list(model.to(dtype).parameters())
        self.optimizer, self.scaler, self.skipped = optimizer(self.masters), scaler, 0

    def step(self, loss: Callable[[], Tensor]) -> Tensor:
        """One update from loss(), computed by the 16-bit model; returns it unscaled."""
        scale = self.scaler.scale if self.scaler else 1.0
        value = loss()
        (value * scale).backward()
        for master, weight in zip(self.masters, self.weights, strict=True):
            master.grad, weight.grad = None if weight.grad is None else weight.grad.float() / scale, None
        overflowed = not all(m.grad.isfinite().all() for m in self.masters if m.grad is not None)
        if overflowed:
            self.skipped += 1
        else:
            self.optimizer.step()
            self._copy_to_weights()
        if self.scaler:
            self.scaler.update(overflowed)
        return value.detach()

    @torch.no_grad()
    def _copy_to_weights(self) -> None:
        for master, weight in zip(self.masters, self.weights, strict=True):
            weight.copy_(master)
