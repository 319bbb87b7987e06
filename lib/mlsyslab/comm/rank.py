"""The life of one rank that `launch` has started."""

from __future__ import annotations

import linecache
import os
import random
import signal
import socket
import sys
import threading
import traceback
from typing import Any

import numpy.random
import torch
import torch.distributed as dist

from mlsyslab.comm import wire
from mlsyslab.comm.connect import begin, connect, disconnect, keep_freed_memory, threads_a_rank
from mlsyslab.comm.errors import Wait
from mlsyslab.comm.stack import caller
from mlsyslab.comm.virtual import summary
from mlsyslab.comm.world import Position, World


def live(control: socket.socket) -> None:
    """Take a job from `control`, do it, report, and end the process when told to."""
    rank = _Rank(control)
    try:
        rank.work()
    except BaseException as error:
        rank.fail(error)
    rank.leave()


def prepare() -> None:
    """Import and make now what every rank needs, before it is forked."""
    wire.loads(wire.dumps(None))


class _Rank:
    """This process, as whoever launched it sees it."""

    def __init__(self, control: socket.socket):
        self.control, self.inlet = control, wire.Inlet(control)
        self.speaking = threading.Lock()
        self.may_leave = threading.Event()
        self.world: World | None = None
        self.comm = None

    def work(self) -> None:
        """The job: become a rank, run its function, send back what it returned."""
        self.job, given = self.inlet.one()
        self.rank, self.size = self.job["rank"], self.job["size"]
        threading.Thread(target=self._answer, args=(threading.get_ident(),), name="answers", daemon=True).start()
        _settle(self.job)
        fn, link = wire.loads(self.job["work"])
        store = dist.FileStore(self.job["store"], self.size)
        self.comm = connect(self.rank, self.size, self.job["backend"], store, local_rank=self.rank, network=link)
        self.world = self.comm.world
        given = wire.loads(given, self.world.device)
        begin(self.comm)
        result = fn(self.comm, given)
        trace, end = self.world.end()
        try:
            packed = wire.dumps(result)
        except Exception as error:
            raise TypeError(f"rank {self.rank} returned something that cannot be sent back to the caller "
                            f"({type(result).__name__}): {summary(error)}") from error
        sys.stdout.flush()
        sys.stderr.flush()
        self.say("done", packed, trace, end, self.world.told)

    def fail(self, error: BaseException) -> None:
        """Report `error`, with the traceback from the rank's function on."""
        trace = error.__traceback__
        own = trace.tb_next if trace and trace.tb_next else trace
        while own and own.tb_next and own.tb_frame.f_code.co_filename == __file__:
            own = own.tb_next
        text = "".join(traceback.format_exception(type(error), error, own))
        try:
            cause = wire.dumps(error)
        except Exception:
            cause = None
        sys.stdout.flush()
        sys.stderr.flush()
        self.say("failed", summary(error), text, cause, isinstance(error, dist.DistError) or "Gloo" in text)

    def leave(self) -> None:
        """End when all ranks may; nothing of the interpreter's own ending is needed, and none of it may hang."""
        while self.world is not None and not self.may_leave.is_set() and not self.world.flush(0.1):
            pass
        self.may_leave.wait()
        if self.comm is not None:
            disconnect(self.comm)
        os._exit(0)

    def say(self, *message: Any) -> None:
        with self.speaking:
            wire.send(self.control, *message)

    def _answer(self, thread: int) -> None:
        """Tell where this rank is, whenever asked; end the process when nobody is there to ask."""
        try:
            while True:
                word, *rest = self.inlet.one()
                if word == "where":
                    self.say("here", *rest, self._position(thread))
                elif word == "leave":
                    self.may_leave.set()
        except (EOFError, OSError):
            os._exit(1)

    def _position(self, thread: int) -> Position:
        if self.world is None:
            return Position(Wait(self.rank, "its start", None, 0, 0, *caller(thread)))
        return self.world.position(thread)


def _settle(job: dict) -> None:
    """Make this process like the caller's: its folder, paths and environment."""
    os.environ.clear()
    os.environ.update(job["environ"])
    if os.path.isdir(job["folder"]):
        os.chdir(job["folder"])
    sys.path[:] = job["path"]
    sys.argv[:] = job["argv"]
    for name, lines in job["sources"].items():
        linecache.cache[name] = (sum(map(len, lines)), None, lines, name)
    keep_freed_memory()
    torch.set_num_threads(threads_a_rank(job["size"]))
    random.seed()
    numpy.random.seed()


def replace_output(out: int, err: int) -> None:
    """Let everything this process prints go to the files `out` and `err`, line by line."""
    os.dup2(out, 1)
    os.dup2(err, 2)
    sys.stdout = open(1, "w", buffering=1, encoding="utf-8", errors="replace", closefd=False)  # noqa: SIM115
    sys.stderr = open(2, "w", buffering=1, encoding="utf-8", errors="backslashreplace", closefd=False)  # noqa: SIM115
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the caller ends the ranks
