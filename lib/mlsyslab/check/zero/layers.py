"""A stack of linear layers whose every rank has samples of its own: what stages 2 and 3 are tried on."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

import torch

from mlsyslab.check.zero.sharded import normal


def stack(rng: Random, L: int) -> list[torch.Tensor]:
    """L weights W_l of shape (d_l, d_{l+1}), of about one length, which most numbers of ranks don't divide."""
    widths = [rng.choice((13, 14, 15)) for _ in range(L + 1)]
    return [normal(rng, d_in, d_out) / d_in**0.5 for d_in, d_out in zip(widths, widths[1:], strict=False)]


def rows(rng: Random, p: int) -> list[int]:
    """How many samples each rank has: not all of them as many."""
    return [1 + (rank + rng.randint(0, 1)) % 3 for rank in range(p)]


def forward(weights: Sequence[torch.Tensor], x: torch.Tensor) -> list[torch.Tensor]:
    """x_0, …, x_L."""
    activations = [x]
    for W in weights:
        activations.append(activations[-1] @ W)
    return activations


def backward(weights: Sequence[torch.Tensor], inputs: Sequence[torch.Tensor], gradient: torch.Tensor) -> list[torch.Tensor]:
    """The gradient of each W_l, from that of x_L, by autograd."""
    found = [W.clone().requires_grad_() for W in weights]
    return list(torch.autograd.grad(forward(found, inputs[0])[-1], found, gradient))


def shards(layers: Sequence[torch.Tensor], p: int, r: int) -> list[torch.Tensor]:
    """Rank r's part of each layer, flat."""
    return [layer.flatten().tensor_split(p)[r].clone() for layer in layers]
