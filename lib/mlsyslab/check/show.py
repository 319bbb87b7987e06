"""A picture of a student's own run, also of one that didn't come to its end."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch

from mlsyslab.check.messages import failure
from mlsyslab.check.runs import run
from mlsyslab.comm import CommError, Link, Trace

if TYPE_CHECKING:
    from mlsyslab.draw import Picture


def show(name: str, fn: Callable[..., Any], arguments: Sequence[tuple], forbidden: Sequence[str] | None,
         timeout: float, picture: Callable[[Trace, str], Picture]) -> Picture | None:
    """Draw a run of `fn(comm, *arguments[rank])`; None, after a line that says so, where nothing was sent."""
    p, most = len(arguments), max(map(nbytes, arguments[0]))
    link = Link(alpha=1e-6, beta=1e-6 * p / most, gamma=0.5e-6 * p / most)
    try:
        trace = run(fn, arguments, link, forbidden, timeout).trace
    except CommError as error:
        print(failure(name, error))
        trace = error.trace
    if trace is None or not trace.messages():
        print(f"{name} sent nothing, so there is nothing to draw.")
        return None
    return picture(trace, f"{name} on {p} ranks")


def nbytes(argument: Any) -> int:
    """The bytes of a tensor, or of all tensors of a list."""
    if isinstance(argument, (list, tuple)):
        return sum(map(nbytes, argument))
    return argument.nbytes if isinstance(argument, torch.Tensor) else 0
