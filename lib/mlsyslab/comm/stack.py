"""Which line of whose code a thread is at: what a person wants to read when ranks wait for one another."""

from __future__ import annotations

import linecache
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from types import CodeType, FrameType

_HERE = Path(__file__).parent
_PLUMBING = str(_HERE), str(_HERE.parent / "check")  # the checks stand between a student's rank and its communicator


#: A piece of code and the instruction in it: its line is looked up only for a message.
Place = tuple[CodeType, int]


def caller(thread: int) -> tuple[str, str]:
    """("file:line", code) of the innermost frame of `thread` outside here and the checks; ("", "") when there is none."""
    return text_of(innermost(sys._current_frames().get(thread), _plumbing))


def this_place() -> Place | None:
    """Where this thread is outside here and the checks.  Whoever asks was called from here itself."""
    return innermost(sys._getframe(3), _plumbing)


def text_of(place: Place | None) -> tuple[str, str]:
    """("file:line", code) of a place."""
    if place is None:
        return "", ""
    code, line = place[0], line_of(*place)
    return f"{code.co_filename}:{line}", linecache.getline(code.co_filename, line).strip()


def line_of(code: CodeType, instruction: int) -> int:
    """The number of the line that an instruction of some code belongs to."""
    lines = (line for begin, end, line in code.co_lines() if begin <= instruction < end)
    return next(lines, None) or code.co_firstlineno  # what Python adds itself has none


def innermost(frame: FrameType | None, passed_over: Callable[[str], bool]) -> Place | None:
    """Where `frame`, or the first of its callers, is whose file isn't passed over."""
    while frame is not None and passed_over(frame.f_code.co_filename):
        frame = frame.f_back
    return None if frame is None else (frame.f_code, frame.f_lasti)


@cache
def _plumbing(name: str) -> bool:
    return name.startswith((*_PLUMBING, "<frozen")) or name.endswith(("/threading.py", "/contextlib.py"))
