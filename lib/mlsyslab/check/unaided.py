"""Keeping the library's own answers out of a student's function."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Collection
from types import FrameType, ModuleType
from typing import Any

from mlsyslab.check.elsewhere import Elsewhere
from mlsyslab.check.messages import Forbidden


def unaided(fn: Callable[..., Any], package: ModuleType, allowed: Collection[str] = ()) -> Callable[..., Any]:
    """`fn`, but that whatever it calls of `package`, directly or not, raises Forbidden.

    allowed: the names of the package's files that may be called all the same.
    """
    if isinstance(fn, Elsewhere):  # where it runs, the package isn't there
        return fn
    library = os.path.join(os.path.dirname(package.__file__), "")  # with the separator at its end
    spared = {os.path.join(library, name) for name in allowed}

    def refuse(frame: FrameType, event: str, _: Any) -> None:
        """Called by Python for every function that is called."""
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(library) and code.co_filename not in spared:
            raise Forbidden(f"{package.__name__} is called (its {code.co_name}): in this exercise you write that yourself")

    def call(*given: Any) -> Any:
        sys.setprofile(refuse)  # of this thread alone: nothing stays behind, should the call never end
        try:
            return fn(*given)
        finally:
            sys.setprofile(None)
    return call
