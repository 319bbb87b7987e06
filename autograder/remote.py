"""What runs on a Dask worker: each of its threads has a process of its own that grades, as on the grader's machine.

Dask finds these functions by their names in the checkout that the worker was started in. What it carries it doesn't open.
"""

from __future__ import annotations

import asyncio
import platform
import shutil
import socket
import subprocess
import tempfile
import threading
from contextlib import suppress
from importlib import metadata
from multiprocessing.connection import Connection

from distributed import get_worker

from autograder import sandbox
from autograder.errand import HERE, Errand, code, command

PACKAGES = ("torch", "numpy", "nbgrader")  # on which grades, or the inputs of hidden tests, may depend


class Ended(Exception):
    """The process that graded has ended."""


class OtherVersion(Exception):
    """This worker's code isn't the grader's; the message says what to do."""


def grade(errand: Errand, student: str, submission: bytes) -> bytes:
    """Grade one submission; the topic that is called by the grading's number is told that it begins.

    submission: a `read.Carried`, and what is returned a `work.Result`, both pickled: only the process that grades, and the
    grader itself, load what they are made of.
    """
    if errand.code != code():
        raise OtherVersion(f"{get_worker().address} has another version of the course; start it in the same one")
    get_worker().log_event(errand.number, student)
    desk = _desk(errand)
    with suppress(EOFError, OSError):
        return desk.grade(submission)
    raise Ended


def end(number: str) -> None:
    """End the processes that work for this grading, whatever they are at, and begin none for it any more."""
    with _lock:
        _ended.add(number)
        for desk in _desks.values():
            if desk.number == number:
                desk.end()


async def about(unsafe: bool) -> dict[str, str]:
    """What a machine has to have in common with the grader's; "sandbox" is there where it has none and needs one."""
    missing = None if unsafe else await asyncio.to_thread(sandbox.missing)
    return {**versions(), **({"sandbox": missing} if missing else {})}


def versions() -> dict[str, str]:
    return {"Python": ".".join(platform.python_version_tuple()[:2]), "the course": code(),
            **{name: metadata.version(name) for name in PACKAGES}}


_lock = threading.Lock()
_desks: dict[int, _Desk] = {}  # by thread
_ended: set[str] = set()  # numbers of gradings


def _desk(errand: Errand) -> _Desk:
    """The desk of this thread, which works for this errand. Raises Ended when that grading is over."""
    thread = threading.get_ident()
    with _lock:
        if errand.number in _ended:
            raise Ended
        desk = _desks.get(thread)
        if desk is None or desk.number != errand.number or desk.busy or desk.process.poll() is not None:
            if desk is not None:
                desk.end()
            desk = _desks[thread] = _Desk(errand)
        return desk


class _Desk:
    """A process that grades for one thread of a Dask worker. Dask lets its own processes fork none: it is a new Python.

    Its folder lies where Dask cleans up after workers that were killed.  busy: whether it has not answered yet.
    """

    def __init__(self, errand: Errand):
        self.number, self.busy = errand.number, False
        self.folder = tempfile.mkdtemp(prefix="grading-", dir=get_worker().local_directory)
        mine, its = socket.socketpair()
        with its:
            self.process = subprocess.Popen(command(its.fileno(), self.folder), cwd=HERE.parent, stdin=subprocess.DEVNULL,
                                            pass_fds=[its.fileno()])
        self.connection = Connection(mine.detach())
        self.connection.send(errand)

    def grade(self, submission: bytes) -> bytes:
        """Raises EOFError or OSError when the process has ended."""
        self.busy = True
        self.connection.send_bytes(submission)
        result = self.connection.recv_bytes()
        self.busy = False
        return result

    def end(self) -> None:
        self.process.kill()
        self.process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)
