"""Threads for simulated ranks, used again for the next run: to start one takes longer than most ranks live."""

from __future__ import annotations

import ctypes
import os
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import torch
from torch.overrides import _get_current_function_mode

KEPT = 32  #: threads that wait for another rank, at most
_waiting: deque[_Worker] = deque()
if hasattr(os, "register_at_fork"):  # not on Windows, where nothing forks
    os.register_at_fork(after_in_child=_waiting.clear)  # no thread but the one that forks is there in the child


class Thread:
    """As much of a `threading.Thread` as a lane needs: it runs `target(*args)` from the moment it is made."""

    def __init__(self, target: Callable[..., Any], args: tuple, name: str):
        self.target, self.args, self.name = target, args, name
        self.interrupted = False
        self.done = threading.Lock()
        self.done.acquire()
        worker = _waiting.pop() if _waiting else _Worker()
        self.ident = worker.thread.ident
        worker.begin(self)

    def is_alive(self) -> bool:
        return self.done.locked()

    def join(self, timeout: float) -> None:
        """Wait until the target has ended, or for so many seconds."""
        if self.done.acquire(timeout=timeout):
            self.done.release()

    def interrupt(self, error: type[BaseException]) -> None:
        """Have `error` raised in the target, if that still runs."""
        self.interrupted = True  # before the look at `done`, and a worker looks here after it has released that
        if self.is_alive():
            ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(self.ident), ctypes.py_object(error))


class _Worker:
    """A thread of the system, which runs one target after another."""

    def __init__(self):
        self.go = threading.Lock()
        self.go.acquire()
        self.task: Thread | None = None
        self.thread = threading.Thread(target=self._work, daemon=True)
        self.thread.start()

    def begin(self, task: Thread) -> None:
        self.task, self.thread.name = task, task.name
        self.go.release()

    def _work(self) -> None:
        stay_until_blocked()
        while True:
            self.go.acquire()
            task, self.task = self.task, None
            try:
                task.target(*task.args)
            finally:
                self.thread.name = "waits for a rank"
                task.done.release()
            if task.interrupted or len(_waiting) >= KEPT or not as_new():
                return
            del task  # and what it holds
            _waiting.append(self)


def as_new() -> bool:
    """Whether a thread is as torch finds a new one."""
    return (torch.is_grad_enabled() and not torch.is_inference_mode_enabled() and not torch.is_autocast_enabled("cpu")
            and _get_current_function_mode() is None)


def stay_until_blocked() -> None:
    """Keep a thread that is woken from displacing the one that woke it, which is about to wait anyway.

    The woken thread could not run before it has Python's lock, so without this each baton costs two switches of the
    processor instead of one: 15 microseconds instead of 6 where it was measured. Linux alone knows the policy.
    """
    if hasattr(os, "SCHED_BATCH"):
        with suppress(OSError):
            os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))
