"""What a reduction should give, by definition, and who was counted how often in what it gave."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from random import Random

import torch

from mlsyslab.check import inputs
from mlsyslab.check.exercise import Case, Exercise
from mlsyslab.check.messages import listing

OPS = ("sum", "max", "product", "min")


def reductions(rng: Random, p: int) -> list[tuple[tuple[int, ...], str]]:
    """Shapes and ops to try on p ranks: sums, then something else, half of each in one dimension, half in two.

    The largest world takes longest by far and shows little that smaller ones don't: there each number of rows comes once.
    """
    shapes = inputs.shapes(rng, p)
    one, two = ([shape for shape in shapes if len(shape) == dims] for dims in (1, 2))
    sums, others = [], []
    for number, pair in enumerate(zip(one, two, strict=True)):
        first, second = pair[::-1] if (number + p) % 2 else pair
        sums.append((first, "sum"))
        others.append((second, rng.choice(OPS[1:])))
    return [sums[0], others[1], sums[2]] if p == max(inputs.SIZES) else sums + others


class Reduction(Exercise):
    """An exercise to which every rank brings a tensor, and whose result is some part of the reduction of all."""

    @abstractmethod
    def case(self, given: list[torch.Tensor], op: str) -> Case:
        """A tensor from each rank."""

    def cases(self, rng: Random) -> list[Case]:
        cases = []
        for p in inputs.SIZES:
            for number, (shape, op) in enumerate(reductions(rng, p)):
                cases.append(self.case(vectors(rng, p, shape, inputs.dtype(number + p), op), op))
        return cases

    def example(self, p):
        return self.case(vectors(Random(0), p, (4 * p,), torch.float32, "sum"), "sum")


_REDUCE = {"sum": lambda stack: stack.sum(0), "product": lambda stack: stack.prod(0),
           "max": lambda stack: stack.amax(0), "min": lambda stack: stack.amin(0)}


def reduced(tensors: Sequence[torch.Tensor], op: str) -> torch.Tensor:
    """All tensors combined element by element; in float64 or int64, where small whole numbers are exact."""
    dtype = tensors[0].dtype
    wide = torch.float64 if dtype.is_floating_point else torch.int64
    return _REDUCE[op](torch.stack(tuple(tensors)).to(wide)).to(dtype)


def vectors(rng: Random, p: int, shape: tuple[int, ...], dtype: torch.dtype, op: str) -> list[torch.Tensor]:
    """A tensor for each rank, of numbers whose reduction is exact in every dtype, in whatever order it is done."""
    values = (-1, 1, 2) if op == "product" else range(-7, 8)
    return [inputs.tensor(rng, shape, dtype, values) for _ in range(p)]


def marked(p: int, length: int) -> list[torch.Tensor]:
    """Vectors whose sum tells who contributed to it: rank r brings 10^r everywhere, so digit r counts its contributions."""
    return [torch.full((length,), 10**rank, dtype=torch.int64) for rank in range(p)]


def contributions(element: int, p: int) -> list[int]:
    """How often each rank is counted in an element of a sum of `marked` vectors."""
    return [element // 10**rank % 10 for rank in range(p)]


def miscounted(result: torch.Tensor, p: int) -> str | None:
    """Which ranks are missing from a sum of `marked` vectors, or counted more than once; None when all is well."""
    for element in result.flatten().tolist():
        counts = contributions(element, p)
        if element >= 0 and counts != [1] * p:
            return told(counts)
    return None


def told(counts: Sequence[int]) -> str:
    """`lacks the contributions of ranks 0 and 2 and counts that of rank 1 2 times`."""
    lacking = [rank for rank, times in enumerate(counts) if times == 0]
    double = [rank for rank, times in enumerate(counts) if times > 1]
    parts = []
    if lacking:
        parts.append(f"lacks what {ranks(lacking)} had")
    if double:
        parts.append(f"counts what {ranks(double)} had more than once")
    return " and ".join(parts)


def ranks(numbers: Sequence[int]) -> str:
    """`rank 2` or `ranks 2 and 3`."""
    return f"rank{'s' if len(numbers) > 1 else ''} {listing(numbers)}"
