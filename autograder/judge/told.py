"""What the sandbox tells, taken for what it is worth."""

from __future__ import annotations

import math
from typing import Any

import torch

from autograder.inside import wire
from autograder.inside.errors import Forbidden as ForbiddenInside
from autograder.inside.errors import rebuilt
from mlsyslab.check.messages import Forbidden


def error_of(told: Any) -> Exception:
    """An exception that was raised there."""
    error = rebuilt(told)
    return Forbidden(*error.args) if isinstance(error, ForbiddenInside) else error


def tensor_of(told: Any) -> Any:
    """A tensor that was sent, however it was written; what is none, sending it will say."""
    if not isinstance(told, list):
        return told
    number, shape, data = told
    return wire.tensor_of(number, shape, data)


def room(name: Any, shape: Any) -> torch.Tensor:
    """A tensor to receive into.  name: of its dtype."""
    if name not in wire.DTYPES:
        raise ValueError(f"{name!r}: no dtype that a message can have")
    return torch.empty(shape, dtype=wire.DTYPES[name])


def positive(seconds: Any) -> float:
    if not isinstance(seconds, (int, float)) or not math.isfinite(seconds) or seconds < 0:
        raise ValueError(f"{seconds!r} seconds: work takes 0 seconds or more")
    return float(seconds)


def nonnegative(nbytes: Any) -> int:
    if type(nbytes) is not int or nbytes < 0:
        raise ValueError(f"{nbytes!r} bytes: a reduction combines 0 or more")
    return nbytes
