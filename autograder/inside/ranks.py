"""A rank's communicator in the sandbox: what is asked of it goes out to the judge's, which does it and counts it."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from contextlib import contextmanager
from typing import Any

import torch

from mlsyslab.comm.communicator import COMBINE, Communicator, check_combine

from .line import Line, version


class RemoteWork:
    """A send or receive that is under way on the judge's side.  out: what is received into."""

    def __init__(self, comm: RemoteCommunicator, number: int, out: torch.Tensor | None = None):
        self.comm, self.number, self.out, self.done = comm, number, out, False

    def wait(self) -> None:
        self.comm._wait([self])


class RemoteTask:
    """A function that runs beside its rank.  number: the judge's.  local: the one of its result here."""

    def __init__(self, line: Line, number: int, local: Local):
        self.line, self.number, self.local = line, number, local

    def wait(self) -> Any:
        try:
            self.line.request("task", self.number, blocks=True)
        except Exception:
            if self.local.error is None:
                raise
        return self.local.result()


class Local:
    """Something that the judge only starts: function, arguments and result stay here."""

    def __init__(self, fn: Any, args: tuple):
        self.fn, self.args = fn, args
        self.value: Any = None
        self.error: BaseException | None = None

    def run(self, comm: Communicator) -> None:
        try:
            self.value = self.fn(comm, *self.args)
        except Exception as error:
            self.error = error
            raise

    def result(self) -> Any:
        if self.error is not None:
            raise self.error
        return self.value


class Locals:
    """What the judge may start, by number."""

    def __init__(self):
        self.known: dict[int, Local] = {}

    def add(self, fn: Any, args: tuple) -> tuple[int, Local]:
        number, local = len(self.known) + 1, Local(fn, args)
        self.known[number] = local
        return number, local


class RemoteCommunicator(Communicator):
    """A rank's end of a group of ranks; all that it is asked is done by the judge.

    number: the judge's name for it.
    """

    device = torch.device("cpu")

    def __init__(self, line: Line, locals_: Locals, number: int, rank: int, ranks: Sequence[int], network: Any, life: int):
        self._line, self._locals, self._number = line, locals_, number
        self.rank, self.ranks, self.size, self.network, self.life = rank, ranks, len(ranks), network, life

    def _ask(self, what: str, *about: Any, blocks: bool = False) -> Any:
        return self._line.request(what, self._number, *about, blocks=blocks)

    # -- messages -----------------------------------------------------------------------------------------------------

    def send(self, tensor, to, tag=0):
        self._check(tensor, to, tag, "send(to")
        self._ask("send", tensor, to, tag, blocks=True)

    def recv(self, out, source, tag=0):
        self._check(out, source, tag, "recv(source")
        number, values = self._ask("recv", like(out), source, tag, blocks=True)
        self._follow(number, out)
        return filled(out, values)

    def sendrecv(self, tensor, to, out, source, tag=0):
        self._check(tensor, to, tag, "sendrecv(to")
        self._check(out, source, tag, "sendrecv(source")
        number, values = self._ask("sendrecv", tensor, to, like(out), source, tag, blocks=True)
        self._follow(number, out)
        return filled(out, values)

    def _isend(self, tensor, to, tag):
        number = self._ask("isend", tensor, self.ranks.index(to), tag)
        self._line.here.strand.sending[number] = tensor, version(tensor)
        return RemoteWork(self, number)

    def _irecv(self, out, source, tag):
        number = self._ask("irecv", like(out), self.ranks.index(source), tag)
        self._follow(number, out)
        return RemoteWork(self, number, out)

    def _follow(self, number: int, out: torch.Tensor) -> None:
        """Let the judge know when nobody has a name for `out` any more."""
        weakref.finalize(out, self._line.here.strand.freed.append, number).atexit = False

    def _wait(self, works):
        left = [work for work in works if not work.done]
        for work, values in zip(left, self._ask("wait", [work.number for work in left], blocks=True), strict=True):
            self._arrived(work, values)

    def _wait_any(self, works):
        index, values = self._ask("wait_any", [work.number for work in works], blocks=True)
        self._arrived(works[index], values)
        return index

    def _arrived(self, work: RemoteWork, values: torch.Tensor | None) -> None:
        self._line.here.strand.sending.pop(work.number, None)
        if work.out is not None and values is not None:
            filled(work.out, values)
        work.out, work.done = None, True

    # -- work ---------------------------------------------------------------------------------------------------------

    def combine(self, acc, incoming, op="sum"):
        check_combine(acc, incoming, op)
        COMBINE[op](acc, incoming)
        self._ask("combined", acc.nbytes)
        return acc

    def _combined(self, start, nbytes):
        self._ask("combined", nbytes)

    def compute(self, seconds, label=""):
        self._ask("compute", seconds, label, blocks=True)

    @contextmanager
    def work(self, label="", seconds=0.0):
        self._ask("begin", label, seconds)
        yield
        self._ask("end", blocks=True)

    def now(self):
        return self._ask("now")

    def record(self, kind, start, end, bytes=0, peer=-1, label=""):
        self._ask("record", kind, start, end, bytes, peer, label)

    # -- beside and groups --------------------------------------------------------------------------------------------

    def start(self, fn, *args):
        number, local = self._locals.add(fn, args)
        return RemoteTask(self._line, self._ask("start", number), local)

    def barrier(self):
        self._ask("barrier", blocks=True)

    def split(self, color, key=None):
        return self._ask("split", color, key, blocks=True)


def like(out: torch.Tensor) -> list[Any]:
    """What the judge needs to receive in its place."""
    return [out.dtype, list(out.shape)]


def filled(out: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
    with torch.no_grad():
        out.copy_(values)
    return out
