"""Gradient accumulation: a large batch through the model in parts, one update at the end."""

from __future__ import annotations

import torch
from torch import Tensor

from mlsyslab.memory.units import whole
from mlsyslab.model.gpt import GPT


def accumulate(model: GPT, tokens: Tensor, targets: Tensor, parts: int) -> Tensor:
    """Add the gradients of the mean loss of the whole batch to the parameters, one part at a time; return that loss.

    tokens, targets: (B, s); parts: 1 … B, as equal as B allows. The mean over the batch is the mean of the parts' means,
    weighted by their sizes: each part's loss is scaled by its share before backward. Only one part's activations are held
    at a time.
    """
    whole("parts", parts)
    B = tokens.shape[0]
    if parts > B:
        raise ValueError(f"accumulate(parts={parts}): a batch of {B} has at most {B} parts")
    total = torch.zeros((), device=tokens.device)
    for x, y in zip(tokens.tensor_split(parts), targets.tensor_split(parts), strict=True):
        loss = model.loss(x, y) * (len(x) / B)
        loss.backward()
        total += loss.detach()
    return total
