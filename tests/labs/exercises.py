"""What the tests of all labs share: the solved notebook as names, and the message of a check that fails."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import jupytext
import pytest

from mlsyslab.check import Check, Wrong

SOLUTIONS = Path(__file__).parents[2] / "solutions"


@cache
def cells(lab: str) -> list:
    """The code cells of a lab's source."""
    return [cell for cell in jupytext.read(SOLUTIONS / f"{lab}.py", fmt="py:percent").cells if cell.cell_type == "code"]


def nbgrader(cell) -> dict:
    return cell.metadata.get("nbgrader", {})


def exercises(lab: str) -> list[str]:
    """The functions that students write, in order."""
    return [nbgrader(cell)["grade_id"] for cell in cells(lab) if nbgrader(cell).get("solution")]


@cache
def solved(lab: str) -> dict[str, Any]:
    """What the solved lab defines, its checks and pictures included, run from top to bottom."""
    names: dict[str, Any] = {}
    for cell in cells(lab):
        exec(compile(cell.source, nbgrader(cell).get("grade_id", "cell"), "exec"), names)
    return names


def message(check: Check, fn: Callable, hidden: bool = False) -> str:
    """What the check says of a wrong function."""
    with pytest.raises(Wrong) as caught:
        check(fn, hidden=hidden)
    return str(caught.value)
