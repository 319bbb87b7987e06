"""How often Python looks for garbage while ranks are simulated."""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from contextlib import contextmanager

EACH = 1000  #: objects more than there were before, for each rank, instead of the usual 700 for all

_lock = threading.Lock()
_found: list[tuple[int, int, int]] = []  # the thresholds that the runs found as they began which are still going on


@contextmanager
def seldom_sought(ranks: int) -> Iterator[None]:
    """Let Python look less often for cycles of objects that nobody uses any more.

    What ranks post is millions of objects, most of which live for a moment, and none is in such a cycle; to look through
    those on their way again and again takes a tenth of the time of a run.
    """
    with _lock:
        _found.append(gc.get_threshold())
        if 0 < _found[-1][0] < EACH * ranks:
            gc.set_threshold(EACH * ranks, *_found[-1][1:])
    try:
        yield
    finally:
        with _lock:
            usual = _found[0]
            _found.pop()
            if not _found:
                gc.set_threshold(*usual)
