"""Which line of whose code a thread is at: what a person wants to read when ranks wait for one another."""

from __future__ import annotations

import linecache
import sys
from functools import cache
from pathlib import Path
from types import FrameType

_HERE = Path(__file__).parent
_PLUMBING = str(_HERE), str(_HERE.parent / "check")  # the checks stand between a student's rank and its communicator


def caller(thread: int) -> tuple[str, str]:
    """("file:line", code) of the innermost frame of `thread` outside here and the checks; ("", "") when there is none."""
    return text_of(_outside(sys._current_frames().get(thread)))


def this_line() -> tuple[str, int] | None:
    """The file and line of the innermost frame of this thread outside here and the checks, for `text_of`.

    Whoever asks was called from here itself.
    """
    return _outside(sys._getframe(3))


def text_of(line: tuple[str, int] | None) -> tuple[str, str]:
    """("file:line", code) of a line of a file."""
    return (f"{line[0]}:{line[1]}", linecache.getline(*line).strip()) if line else ("", "")


def _outside(frame: FrameType | None) -> tuple[str, int] | None:
    while frame is not None and _plumbing(frame.f_code.co_filename):
        frame = frame.f_back
    if frame is None:
        return None
    return frame.f_code.co_filename, frame.f_lineno or frame.f_code.co_firstlineno  # between lines, a frame has none


@cache
def _plumbing(name: str) -> bool:
    return name.startswith((*_PLUMBING, "<frozen")) or name.endswith(("/threading.py", "/contextlib.py"))
