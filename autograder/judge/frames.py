"""Calls that look, to whoever reads the stack, as if they came from a line of a student's cell.

The library says in its messages at which line of whose code a rank waits or failed. The student's code is in the sandbox,
so the judge calls in its place from a frame that has that file, line and name, and nothing of the student's but those.
"""

from __future__ import annotations

import linecache
from collections.abc import Callable
from functools import lru_cache
from types import CodeType
from typing import Any

from autograder.inside.places import IS_CELL

HIGHEST = 20_000  # lines of a cell


def known(file: str, source: str) -> None:
    """Let messages show the lines of a cell."""
    linecache.cache[file] = len(source), None, source.splitlines(True), file


@lru_cache(4096)
def code_at(file: str, line: int, name: str, text: str) -> CodeType:
    code = compile("\n" * (line - 1) + text, file, "exec")
    return code.replace(co_name=name, co_qualname=name)


def checked(place: Any) -> tuple[str, int, str] | None:
    """A place as the sandbox tells it, where it makes sense."""
    if not isinstance(place, list) or len(place) != 3:
        return None
    file, line, name = place
    if not (isinstance(file, str) and IS_CELL.fullmatch(file) and type(line) is int and 0 < line < HIGHEST):
        return None
    return file, line, name if isinstance(name, str) and (name.isidentifier() or name == "<lambda>") else "a function"


def call_at(place: Any, fn: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """fn(*args, **kwargs), from that line."""
    where = checked(place)
    if where is None:
        return fn(*args, **kwargs)
    names = {"fn": fn, "args": args, "kwargs": kwargs}
    exec(code_at(*where, "result = fn(*args, **kwargs)"), names)
    return names["result"]


def raise_at(place: Any, error: BaseException) -> None:
    """Raise `error` from that line."""
    where = checked(place)
    if where is None:
        raise error
    exec(code_at(*where, "raise error"), {"error": error})
