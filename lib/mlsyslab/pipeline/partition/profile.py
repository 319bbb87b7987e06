"""How long each layer takes, measured."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

import torch
from torch import nn


@dataclass(frozen=True)
class LayerProfile:
    """One layer on one microbatch.

    forward, backward: seconds.  activations: bytes of its output.  weights: bytes of its parameters.
    """

    forward: float
    backward: float
    activations: int = 0
    weights: int = 0

    @property
    def time(self) -> float:
        """Seconds of forward and backward."""
        return self.forward + self.backward


def profile(layers: Sequence[nn.Module], example: torch.Tensor, repeats: int = 5) -> list[LayerProfile]:
    """Measure each layer of a chain on `example`, the input of the first: the median of `repeats` runs.

    One run before them is not counted. Parameters and their gradients are left as they were.
    """
    if repeats < 1:
        raise ValueError(f"repeats={repeats}: measure at least once")
    profiles, x = [], example
    for layer in layers:
        runs = [_run(layer, x) for _ in range(repeats + 1)][1:]
        output = runs[-1][2]
        profiles.append(LayerProfile(median(run[0] for run in runs), median(run[1] for run in runs), output.nbytes,
                                     sum(parameter.nbytes for parameter in layer.parameters())))
        x = output
    return profiles


def _run(layer: nn.Module, x: torch.Tensor) -> tuple[float, float, torch.Tensor]:
    """(seconds of forward, seconds of backward, output) of one run."""
    x = x.detach().requires_grad_(x.is_floating_point())
    start = _now(x)
    output = layer(x)
    between = _now(x)
    wanted = [tensor for tensor in (x, *layer.parameters()) if tensor.requires_grad]
    if wanted and output.requires_grad:
        torch.autograd.grad(output, wanted, torch.ones_like(output), allow_unused=True)
    return between - start, _now(x) - between, output.detach()


def _now(tensor: torch.Tensor) -> float:
    """Seconds on the clock, once the device of `tensor` has done what it was given."""
    if tensor.is_cuda:
        torch.cuda.synchronize(tensor.device)
    return time.perf_counter()
