"""Inputs of a check: the same for everyone where they are seen, drawn from a secret seed where they are not."""

from __future__ import annotations

import os
from random import Random

import torch

SEED = "MLSYSLAB_SEED"
SIZES = (2, 3, 4, 5, 8, 1)  # one rank last: there nearly everything is right
DTYPES = (torch.float32, torch.int64, torch.bfloat16, torch.float64, torch.int32)


def source(name: str, hidden: bool) -> Random:
    """The random numbers of one exercise; hidden ones depend on the environment variable MLSYSLAB_SEED."""
    return Random(f"{name}/{os.environ.get(SEED, '0')}" if hidden else name)


def tensor(rng: Random, shape: tuple[int, ...], dtype: torch.dtype, values: range = range(-7, 8)) -> torch.Tensor:
    """Whole numbers, so small that sums over any world of the checks are exact in every dtype, bfloat16 too."""
    size = torch.Size(shape).numel()
    return torch.tensor([rng.choice(values) for _ in range(size)], dtype=torch.int64).to(dtype).reshape(shape)


def lengths(rng: Random, p: int) -> list[int]:
    """Lengths that p divides, doesn't divide, and one below p (some parts are then empty)."""
    return [p * rng.randint(1, 4), p * rng.randint(1, 3) + rng.randint(1, max(1, p - 1)), rng.randint(1, max(1, p - 1))]


def dtype_name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def distinct(rng: Random, shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    """Whole numbers of which no two are equal, so that what arrives somewhere can be recognized; exact in every dtype."""
    size = torch.Size(shape).numel()
    return torch.tensor(rng.sample(range(-255, 256), size), dtype=torch.int64).to(dtype).reshape(shape)


def even_lengths(length: int, p: int) -> list[int]:
    """The rows of each of p parts as `torch.tensor_split` cuts them."""
    return [len(part) for part in torch.empty(length).tensor_split(p)]
