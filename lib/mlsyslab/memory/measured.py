"""What autograd keeps, measured: every tensor that it saves for backward passes through a hook."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor, nn


def saved_bytes(fn: Callable[[], Any], besides: Iterable[Tensor] = ()) -> int:
    """Bytes that autograd keeps for backward while fn() runs.

    Tensors that share memory count once. What is there anyway doesn't count: the memory of `besides`, as model.parameters().
    Single numbers (the constant of a division, the denominator of a mean) don't count either.
    """
    owned = {tensor.untyped_storage()._cdata for tensor in besides}
    kept: dict[int, torch.UntypedStorage] = {}

    def pack(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if tensor.dim() and storage._cdata not in owned:
            kept[storage._cdata] = storage  # holding on to it, so that no other tensor gets the same address
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        result = fn()
    del result
    return sum(storage.nbytes() for storage in kept.values())


def model_saved_bytes(model: nn.Module, tokens: Tensor, targets: Tensor) -> int:
    """The same for one forward pass of a `GPT` with its loss; parameters, tokens and targets don't count."""
    return saved_bytes(lambda: model.loss(tokens, targets), [*model.parameters(), tokens, targets])
