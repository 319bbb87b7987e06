"""The bases of this lab's checks: the library's own server, clocks and buckets are kept out of a student's function."""

from __future__ import annotations

from typing import Any

import torch

from mlsyslab import data_parallel
from mlsyslab.check.exercise import Exercise, Formula
from mlsyslab.check.messages import difference
from mlsyslab.check.unaided import unaided
from mlsyslab.check.watched import CLOSE


class UnaidedFormula(Formula):
    """The check of a function of plain data that may not ask `mlsyslab.data_parallel` for the answer."""

    def problem(self, fn, case):
        return super().problem(unaided(fn, data_parallel), case)


class UnaidedExercise(Exercise):
    """The check of what every rank runs without `mlsyslab.data_parallel`; its results may differ by rounding."""

    def problem(self, fn, case):
        return super().problem(unaided(fn, data_parallel), case)

    def differ(self, rank, came, expected):
        return apart(rank, came, expected)


def near(came: Any, right: torch.Tensor) -> bool:
    """Whether it is a tensor like this one, but for rounding.

    The largest element is the measure: of a sum whose terms cancel, rounding is what is left.
    """
    if not isinstance(came, torch.Tensor) or came.shape != right.shape or came.dtype != right.dtype:
        return False
    largest = max(map(abs, right.flatten().tolist()), default=0.0)
    return torch.allclose(came, right, atol=CLOSE * largest)


def apart(rank: int, came: Any, expected: torch.Tensor) -> str | None:
    """How what a rank returned differs by more than rounding; None when it doesn't."""
    return None if near(came, expected) else difference(rank, came, expected)
