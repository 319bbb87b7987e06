"""Threads for simulated ranks that are used again: to start one takes longer than most of them live."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from typing import Any

import torch

from mlsyslab.comm import virtual


def lend() -> None:
    """From now on, simulated ranks of this process borrow their threads."""
    virtual.threading = Lender


class Borrowed:
    """As much of a `threading.Thread` as a simulated rank needs."""

    idle: deque[_Worker] = deque()

    def __init__(self, target: Callable[..., Any], args: tuple = (), name: str = "", daemon: bool = True):
        self.target, self.args = target, args
        self.done = threading.Lock()
        self.done.acquire()
        self.ident: int | None = None

    def start(self) -> None:
        worker = self.idle.pop() if self.idle else _Worker()
        self.ident, worker.task = worker.ident, self
        worker.go.release()

    def is_alive(self) -> bool:
        return self.done.locked()

    def join(self, timeout: float = -1) -> None:
        if self.done.acquire(timeout=timeout):
            self.done.release()


class Lender:
    """What stands for the module `threading` in the simulated world."""

    Thread = Borrowed
    Lock = staticmethod(threading.Lock)
    get_ident = staticmethod(threading.get_ident)


class _Worker:
    """A thread that runs one task after the other. One that was interrupted isn't used again."""

    def __init__(self):
        self.go, self.task = threading.Lock(), None
        self.go.acquire()
        thread = threading.Thread(target=self._run, daemon=True)
        thread.start()
        self.ident = thread.ident

    def _run(self) -> None:
        while True:
            self.go.acquire()
            task, self.task = self.task, None
            torch.set_grad_enabled(True)  # whatever the one before has left
            try:
                task.target(*task.args)
            finally:
                task.done.release()
            del task
            Borrowed.idle.append(self)
