"""The base of this lab's checks: the library's own schedules, counts and partitions are kept out of a student's function."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

from mlsyslab import pipeline
from mlsyslab.check.exercise import Formula
from mlsyslab.check.messages import Forbidden

LIBRARY = os.path.join(os.path.dirname(pipeline.__file__), "")  # with the separator at its end
#: what may be called all the same: reading and writing actions
ALLOWED = os.path.join(LIBRARY, "schedule.py")


class Unaided(Formula):
    """The check of a function of plain data that may not ask `mlsyslab.pipeline` for the answer."""

    def problem(self, fn, case):
        return super().problem(unaided(fn), case)


def unaided(fn: Callable[..., Any]) -> Callable[..., Any]:
    """`fn`, but that whatever it calls of `mlsyslab.pipeline`, directly or not, raises Forbidden."""
    def call(*given: Any) -> Any:
        sys.setprofile(refuse)  # of this thread alone: nothing stays behind, should the call never end
        try:
            return fn(*given)
        finally:
            sys.setprofile(None)
    return call


def refuse(frame: FrameType, event: str, _: Any) -> None:
    """Called by Python for every function that is called."""
    code = frame.f_code
    if event == "call" and code.co_filename.startswith(LIBRARY) and code.co_filename != ALLOWED:
        raise Forbidden(f"mlsyslab.pipeline is called (its {code.co_name}): in this exercise you write that yourself")
