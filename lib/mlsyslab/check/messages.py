"""What a failed check says: what came, what was expected, where, and which mistake that looks like."""

from __future__ import annotations

import math
import traceback
from collections.abc import Iterable, Mapping
from numbers import Integral, Real
from pathlib import Path
from typing import Any

import torch

from mlsyslab.comm.communicator import describe
from mlsyslab.comm.errors import CommError, Deadlock, RankFailed

LIBRARY = str(Path(__file__).parents[1])


class Wrong(AssertionError):
    """A check found a mistake. In a notebook only its message is shown: the way through the checks helps nobody."""

    def _render_traceback_(self) -> list[str]:
        return f"Wrong: {self}".splitlines()


class Forbidden(Exception):
    """The exercise asks to write what was called instead."""


def values(tensor: torch.Tensor, most: int = 12) -> str:
    """A tensor's values in one line: `[3, 1, 4, … 20 in all]`."""
    flat = tensor.detach().flatten().tolist()
    shown = ", ".join(f"{value:g}" if isinstance(value, float) else str(value) for value in flat[:most])
    return f"[{shown}, … {len(flat)} in all]" if len(flat) > most else f"[{shown}]"


def count(number: int, noun: str) -> str:
    """`1 message`, `3 messages`."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def listing(items: Iterable[Any]) -> str:
    """`1, 2 and 5`."""
    *head, last = [str(item) for item in items]
    return f"{', '.join(head)} and {last}" if head else last


def is_number(value: object) -> bool:
    """Whether it is a number, NumPy's included."""
    return isinstance(value, Real) and not isinstance(value, bool)


def is_whole(value: object) -> bool:
    """Whether it is a whole number, NumPy's included, and no float."""
    return isinstance(value, Integral) and not isinstance(value, bool)


def alike(came: Any, right: torch.Tensor) -> bool:
    """Whether it is a tensor of this shape with these values, but for rounding."""
    return isinstance(came, torch.Tensor) and came.shape == right.shape and torch.allclose(came.to(right.dtype), right)


def difference(rank: int, came: Any, expected: torch.Tensor, exact: bool = True) -> str | None:
    """How what a rank returned differs from what it should have returned; None when it doesn't.

    exact: whether values must be equal, or may differ by rounding.
    """
    if came is None:
        return f"rank {rank} returned None: end with `return …` on every rank (printing a result does not return it)"
    if not isinstance(came, torch.Tensor):
        return f"rank {rank} returned {article(type(came).__name__)}; expected a tensor: {describe(expected)}"
    if came.dtype != expected.dtype:
        return (f"rank {rank} returned {describe(came)}; expected {describe(expected)}: "
                "the result has the dtype of the input (make buffers with torch.empty_like or tensor.new_empty)")
    if came.shape != expected.shape:
        return f"rank {rank} returned {describe(came)}; expected {describe(expected)}"
    if not (torch.equal if exact else torch.allclose)(came, expected):
        text = f"rank {rank} returned {values(came)}\n  expected        {' ' * len(str(rank))}{values(expected)}"
        return text + ("" if values(came) != values(expected) else f"\n  {where(came, expected)}")
    return None


def where(came: torch.Tensor, expected: torch.Tensor) -> str:
    """Where two tensors differ most, with enough digits to tell them apart."""
    a, b = came.detach().flatten(), expected.flatten()
    place = int((a.double() - b.double()).abs().nan_to_num(nan=math.inf).argmax())
    return f"They differ in element {place}: it came as {a[place].item()!r}, expected {b[place].item()!r}"


def article(noun: str) -> str:
    """`an int`, `a list`."""
    return f"{'an' if noun[0] in 'aeiou' else 'a'} {noun}"


def failure(name: str, error: RankFailed | Deadlock) -> str:
    """Why a run did not come to its end."""
    if isinstance(error, Deadlock):
        if error.why:
            return f"{error}\n  Does a loop (or a recursion) there ever end?"
        return f"Deadlock: {error}"
    cause = error.__cause__
    if stub(error):
        return f"{name} is not written yet: replace `raise NotImplementedError` by your solution"
    if isinstance(cause, Forbidden):
        return str(cause)
    who = f"rank {error.rank}" if error.size > 1 else "it"
    text = f"{who} raised {cause if isinstance(cause, CommError) else error.reason}"
    if place := line_of(cause):
        text += f"\n      at {place}"
    if isinstance(cause, RecursionError):
        text += "\n  The function calls itself without end: where does the recursion stop?"
    if "process group" in error.reason:
        text += "\n  torch.distributed has no part in this: a rank knows the world through `comm` alone"
    return text


def stub(error: RankFailed | Deadlock) -> bool:
    """Whether the exercise is still as it was handed out."""
    return isinstance(error.__cause__, NotImplementedError)


def line_of(error: BaseException | None) -> str:
    """The innermost line of an exception's traceback that is neither this library's nor PyTorch's."""
    if error is None:
        return ""
    inner = (LIBRARY, str(Path(torch.__file__).parent), "<frozen")
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if not frame.filename.startswith(inner)]
    return f"line {frames[-1].lineno} of {frames[-1].name}: {frames[-1].line}" if frames else ""


def traits(case: Mapping[str, Any]) -> str:
    """`world size 3, root 1, length 5, dtype int64`."""
    return ", ".join(f"{name} {value}" for name, value in case.items())
