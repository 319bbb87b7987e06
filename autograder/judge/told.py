"""What the sandbox tells, taken for what it is worth."""

from __future__ import annotations

import math
from typing import Any

from autograder.inside.errors import Forbidden as ForbiddenInside
from autograder.inside.errors import rebuilt
from mlsyslab.check.messages import Forbidden


def error_of(told: Any) -> Exception:
    """An exception that was raised there."""
    error = rebuilt(told)
    return Forbidden(*error.args) if isinstance(error, ForbiddenInside) else error


def positive(seconds: Any) -> float:
    if not isinstance(seconds, (int, float)) or not math.isfinite(seconds) or seconds < 0:
        raise ValueError(f"{seconds!r} seconds: work takes 0 seconds or more")
    return float(seconds)


def nonnegative(nbytes: Any) -> int:
    if type(nbytes) is not int or nbytes < 0:
        raise ValueError(f"{nbytes!r} bytes: a reduction combines 0 or more")
    return nbytes
