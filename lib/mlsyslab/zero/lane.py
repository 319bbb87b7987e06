"""Communication that goes on beside computing, one collective after the other, in the same order on every rank."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

from mlsyslab.comm import Communicator


class Lane:
    """Collectives under way, the oldest first, each with what is to be done when it has ended.

    Without `overlap` each ends before `start` returns.
    """

    def __init__(self, comm: Communicator, overlap: bool):
        self.comm, self.overlap = comm, overlap
        self.under_way: deque[tuple[Any, Callable[[], None]]] = deque()

    def start(self, then: Callable[[], None], collective: Callable, *args: Any) -> None:
        """Begin `collective(comm, *args)`; `then()` is called when it has ended and is waited for."""
        if self.overlap and self.comm.size > 1:
            self.under_way.append((self.comm.start(collective, *args), then))
        else:
            collective(self.comm, *args)
            then()

    def wait(self, left: int = 0) -> None:
        """Wait until at most `left` are under way."""
        while len(self.under_way) > left:
            self.wait_one()

    def wait_one(self) -> None:
        """Wait for the oldest."""
        task, then = self.under_way.popleft()
        task.wait()
        then()
