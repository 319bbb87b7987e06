"""Inputs of a check: the same for everyone where they are seen, drawn from a secret seed where they are not."""

from __future__ import annotations

import os
from collections.abc import Sequence
from random import Random

import torch

SEED = "MLSYSLAB_SEED"
#: World sizes, the most telling first: with two ranks everyone is a neighbour, with one nearly everything is right.
SIZES = (4, 3, 2, 5, 8, 1)
DTYPES = (torch.int64, torch.bfloat16, torch.float64, torch.int32, torch.float32)


def seed(name: str, hidden: bool) -> str:
    """What the random numbers of one exercise begin with; hidden ones depend on the environment variable MLSYSLAB_SEED."""
    return f"{name}/{os.environ.get(SEED, '0')}" if hidden else name


def source(name: str, hidden: bool) -> Random:
    """The random numbers of one exercise."""
    return Random(seed(name, hidden))


def tensor(rng: Random, shape: tuple[int, ...], dtype: torch.dtype, values: Sequence[int] = range(-7, 8)) -> torch.Tensor:
    """Whole numbers, so small that sums over any world of the checks are exact in every dtype, bfloat16 too."""
    size = torch.Size(shape).numel()
    return torch.tensor(rng.choices(values, k=size), dtype=torch.int64).to(dtype).reshape(shape)


def shapes(rng: Random, p: int) -> list[tuple[int, ...]]:
    """Shapes of one and of two dimensions, with rows that p divides, that it doesn't, and fewer than p (parts are empty)."""
    rows = [p * rng.randint(2, 4), p * rng.randint(2, 3) + rng.randint(1, max(1, p - 1)), rng.randint(1, max(1, p - 1))]
    return [(rows[0],), (rows[1],), (rows[0], 2), (rows[1], 3), (rows[2],), (rows[2], 2)]


def dtype(number: int) -> torch.dtype:
    """One dtype after the other."""
    return DTYPES[number % len(DTYPES)]


def about(p: int, tensor: torch.Tensor, **more: object) -> dict[str, object]:
    """The traits of a case in which every rank brings, or gets, a tensor like this one."""
    traits = {"world size": p, "length": len(tensor), "dtype": str(tensor.dtype).removeprefix("torch.")}
    return traits | ({"columns": tensor.shape[1]} if tensor.dim() > 1 else {}) | more


def distinct(rng: Random, shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    """Whole numbers of which no two are equal, so that what arrives somewhere can be recognized; exact in every dtype."""
    size = torch.Size(shape).numel()
    return torch.tensor(rng.sample(range(-255, 256), size), dtype=torch.int64).to(dtype).reshape(shape)
