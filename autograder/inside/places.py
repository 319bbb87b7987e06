"""Which line of a student's code is at work.

A cell's code goes by the file name `CELL`, in which messages of the library see a cell of a notebook.
"""

from __future__ import annotations

import re
import sys
from functools import cache
from types import TracebackType

from mlsyslab.comm.stack import Place as Point
from mlsyslab.comm.stack import innermost, line_of

CELLS = "/ipykernel_1/"
CELL = CELLS + "{}.py"
IS_CELL = re.compile(r"/ipykernel_1/\d+\.py")

Place = list  # [file, line, function]


def place() -> Place | None:
    """The innermost line of a cell on this thread."""
    return place_of(point())


def point() -> Point | None:
    """The innermost instruction of a cell on this thread."""
    return innermost(sys._getframe(2), _no_cell)


@cache
def _no_cell(file: str) -> bool:
    return not file.startswith(CELLS)


def place_of(point: Point | None) -> Place | None:
    """Its line."""
    return None if point is None else [point[0].co_filename, line_of(*point), point[0].co_name]


def raised_at(traceback: TracebackType | None) -> Place | None:
    """The innermost line of a cell that an exception came through."""
    found = None
    while traceback is not None:
        code = traceback.tb_frame.f_code
        if code.co_filename.startswith(CELLS):
            found = [code.co_filename, traceback.tb_lineno or 1, code.co_name]
        traceback = traceback.tb_next
    return found
