"""Activation checkpointing: keep a block's input only, and compute what is inside once more in backward.

`every(k)` and `selective(core)` plug into the model: GPT(config, run=every(2)), GPT(config, core=selective(written)).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from mlsyslab.model.attention import Core
from mlsyslab.model.gpt import Run, plain


def checkpoint(fn: Callable[..., Tensor], *inputs: Any) -> Tensor:
    """fn(*inputs), of which only the inputs are kept; backward computes fn again, all of it, with the same random numbers.

    fn: returns one tensor; at least one of the inputs is a tensor that needs a gradient, or fn's parameters get none.
    """
    return _Recompute.apply(fn, *inputs)


def every(k: int) -> Run:
    """Carry out the blocks in segments of k, each of them checkpointed; the last may be shorter."""
    if not isinstance(k, int) or k < 1:
        raise ValueError(f"every({k!r}): a segment is a whole number of blocks, 1 or more")

    def run(blocks: Sequence[nn.Module], x: Tensor) -> Tensor:
        for start in range(0, len(blocks), k):
            x = checkpoint(partial(plain, blocks[start:start + k]), x)
        return x

    return run


def selective(core: Core) -> Core:
    """Attention whose core alone is checkpointed: many bytes for few FLOPs (Korthikanti et al. 2022, section 5)."""
    return partial(checkpoint, core)


def spacing_bytes(layers: int, k: int, boundary: float = 1.0, block: float = 1.0) -> float:
    """What is held at most with a checkpoint every k layers: the boundaries, and the inside of one segment.

    boundary, block: bytes of a block's input, and of all that a block keeps.
    """
    if not 1 <= k <= layers:
        raise ValueError(f"spacing_bytes(layers={layers}, k={k}): k is 1 … {layers}")
    return math.ceil(layers / k) * boundary + k * block


def square_root_spacing(layers: int, boundary: float = 1.0, block: float = 1.0) -> float:
    """k = sqrt(L boundary/block), where L/k boundary + k block is least; sqrt(L) where both are equal (Chen et al. 2016)."""
    return math.sqrt(layers * boundary / block)


def best_spacing(layers: int, boundary: float = 1.0, block: float = 1.0) -> int:
    """The whole k that holds least; of several, the largest, which keeps the fewest boundaries."""
    return min(range(layers, 0, -1), key=lambda k: spacing_bytes(layers, k, boundary, block))


class _Recompute(torch.autograd.Function):
    """Forward without a graph; backward builds the graph from the inputs and goes through it at once."""

    @staticmethod
    def forward(ctx, fn: Callable[..., Tensor], *inputs: Any) -> Tensor:
        ctx.fn, ctx.others = fn, [None if isinstance(x, Tensor) else x for x in inputs]
        ctx.tensors = [i for i, x in enumerate(inputs) if isinstance(x, Tensor)]
        ctx.save_for_backward(*(inputs[i] for i in ctx.tensors))
        device = inputs[ctx.tensors[0]].device
        ctx.random, ctx.autocast = _random_state(device), _autocast(device)
        with torch.no_grad():
            return fn(*inputs)

    @staticmethod
    def backward(ctx, gradient: Tensor) -> tuple[Tensor | None, ...]:
        inputs = list(ctx.others)
        for i, tensor in zip(ctx.tensors, ctx.saved_tensors, strict=True):
            inputs[i] = tensor.detach().requires_grad_(tensor.requires_grad)
        device = gradient.device
        with torch.enable_grad(), _replayed(device, ctx.random), torch.autocast(**ctx.autocast):
            output = ctx.fn(*inputs)
        torch.autograd.backward(output, gradient)
        return None, *(x.grad if isinstance(x, Tensor) else None for x in inputs)


def _random_state(device: torch.device) -> Tensor:
    return torch.cuda.get_rng_state(device) if device.type == "cuda" else torch.get_rng_state()


def _set_random_state(device: torch.device, state: Tensor) -> None:
    if device.type == "cuda":
        torch.cuda.set_rng_state(state, device)
    else:
        torch.set_rng_state(state)


@contextmanager
def _replayed(device: torch.device, state: Tensor) -> Iterator[None]:
    """The random numbers that were drawn from `state` on, once more; afterwards the generator stands where it stood."""
    now = _random_state(device)
    _set_random_state(device, state)
    try:
        yield
    finally:
        _set_random_state(device, now)


def _autocast(device: torch.device) -> dict[str, Any]:
    """How autocast stands, as its own arguments."""
    kind = device.type if device.type in ("cpu", "cuda") else "cpu"
    return {"device_type": kind, "dtype": torch.get_autocast_dtype(kind), "enabled": torch.is_autocast_enabled(kind)}
