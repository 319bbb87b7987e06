"""Keeping the library's own answers out of a student's function."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Collection
from types import FrameType, ModuleType
from typing import Any

from mlsyslab.check.elsewhere import Elsewhere
from mlsyslab.check.messages import Forbidden


def unaided(fn: Callable[..., Any], *packages: ModuleType, allowed: Collection[str] = ()) -> Callable[..., Any]:
    """`fn`, but that whatever it calls of these packages, directly or not, raises Forbidden.

    allowed: the names of the packages' files that may be called all the same.
    """
    if isinstance(fn, Elsewhere):  # where it runs, the packages aren't there
        return fn
    names = {os.path.join(os.path.dirname(package.__file__), ""): package.__name__ for package in packages}
    folders = tuple(names)  # with the separator at their end
    spared = {os.path.join(folder, name) for folder in folders for name in allowed}

    def refuse(frame: FrameType, event: str, _: Any) -> None:
        """Called by Python for every function that is called."""
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(folders) and code.co_filename not in spared:
            name = next(name for folder, name in names.items() if code.co_filename.startswith(folder))
            raise Forbidden(f"{name} is called (its {code.co_name}): in this exercise you write that yourself")

    def call(*given: Any) -> Any:
        sys.setprofile(refuse)  # of this thread alone: nothing stays behind, should the call never end
        try:
            return fn(*given)
        finally:
            sys.setprofile(None)
    return call
