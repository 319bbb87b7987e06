"""The types that may travel between judge and sandbox besides plain ones; both sides begin with these."""

from __future__ import annotations

import dataclasses

from mlsyslab import comm
from mlsyslab.check.waiting import OnlyWaiting

from .wire import Coder


def coder() -> Coder:
    """Networks and what a trace is made of."""
    return Coder([OnlyWaiting, *(cls for cls in vars(comm).values() if isinstance(cls, type) and plain(cls))])


def plain(cls: type) -> bool:
    """Whether it is a dataclass or a named tuple whose fields make it anew."""
    if dataclasses.is_dataclass(cls):
        return all(field.init for field in dataclasses.fields(cls)) and not issubclass(cls, BaseException)
    return issubclass(cls, tuple) and hasattr(cls, "_fields")
