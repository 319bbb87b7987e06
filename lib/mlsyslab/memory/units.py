"""Checking of numbers that are given."""

from __future__ import annotations

import math


def whole(name: str, value: int, least: int = 1) -> int:
    """`value`, if it is a whole number, `least` or more."""
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise ValueError(f"{name}={value!r}: {name} is a whole number, {least} or more")
    return value


def positive(name: str, value: float) -> float:
    """`value`, if it is a finite number more than 0."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value) or value <= 0:
        raise ValueError(f"{name}={value!r}: {name} is a finite number, more than 0")
    return value
