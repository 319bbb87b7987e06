"""What every rank of a run did, in its order, so that the judge can do it again and count it himself."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import contextmanager
from typing import Any

import torch

from mlsyslab.check.live import Live
from mlsyslab.check.runs import Held
from mlsyslab.comm.communicator import Communicator
from mlsyslab.comm.lane import Died, Ended

from .errors import described
from .places import Point, point
from .wire import NAMES, Coder, flat


class Steps:
    """The steps of one lane: a rank's function, or what it started beside itself.

    Each is [what, communicator, …], written as it is noted, tensors as they are then; `places` says from which line. The
    last is ["return"] or ["raise", error]; a lane whose run ended elsewhere has neither.
    lanes: all lanes of the run, this one among them.
    """

    def __init__(self, lanes: list[Steps], coder: Coder):
        self.stream = coder.stream()
        self.places: list[Point | None] = []
        self.comms = self.works = self.tasks = 0
        self.lanes, self.coder = lanes, coder
        lanes.append(self)

    def note(self, *step: Any) -> None:
        self.stream.add(list(step))
        self.places.append(point())

    def run(self, fn: Any, *args: Any) -> Any:
        """Call a lane's function and note how it ends."""
        try:
            result = fn(*args)
        except (Died, Ended):
            raise
        except BaseException as error:
            self.note("raise", described(error))
            raise
        self.note("return")
        return result


class LoggedWork:
    """A send or receive that is under way.  number: in its lane's steps."""

    def __init__(self, comm: Logged, work: Any, number: int):
        self.comm, self.work, self.number = comm, work, number

    def wait(self) -> None:
        self.comm._wait([self])


class LoggedTask:
    """A function that runs beside its rank."""

    def __init__(self, steps: Steps, task: Any, number: int):
        self.steps, self.task, self.number = steps, task, number

    def wait(self) -> Any:
        self.steps.note("task", self.number)
        return self.task.wait()


class Logged(Communicator):
    """A rank's communicator that notes what is asked of it in `steps` before it is done.

    received: where the tensors that messages go into are watched.  live: what watches this rank's memory, if anything does.
    """

    def __init__(self, inner: Communicator, steps: Steps, received: Held, live: Live | None):
        self.inner, self.steps, self.number = inner, steps, steps.comms
        self.received, self.live = received, live
        steps.comms += 1
        self.rank, self.size, self.ranks = inner.rank, inner.size, inner.ranks
        self.device, self.life = inner.device, inner.life

    @property
    def network(self):
        return self.inner.network

    def _note(self, what: str, *about: Any) -> None:
        if self.live is None:
            self.steps.note(what, self.number, *about)
        else:
            with self.live.aside():
                self.steps.note(what, self.number, *about)

    def send(self, tensor, to, tag=0):
        self._check(tensor, to, tag, "send(to")
        self._note("send", flat(tensor), to, tag)
        self.inner.send(tensor, to, tag)

    def recv(self, out, source, tag=0):
        self._check(out, source, tag, "recv(source")
        self._note("recv", *self._expected(out, self.ranks[source]), source, tag)
        return self.inner.recv(out, source, tag)

    def sendrecv(self, tensor, to, out, source, tag=0):
        self._check(tensor, to, tag, "sendrecv(to")
        self._check(out, source, tag, "sendrecv(source")
        self._note("sendrecv", flat(tensor), to, *self._expected(out, self.ranks[source]), source, tag)
        return self.inner.sendrecv(tensor, to, out, source, tag)

    def _isend(self, tensor, to, tag):
        self._note("isend", flat(tensor), self.ranks.index(to), tag)
        return self._begun(self.inner._isend(tensor, to, tag))

    def _irecv(self, out, source, tag):
        self._note("irecv", *self._expected(out, source), self.ranks.index(source), tag)
        return self._begun(self.inner._irecv(out, source, tag))

    def _expected(self, out: torch.Tensor, source: int) -> tuple[str, list[int]]:
        """What the judge needs to receive in the place of `out`, which is watched from now on.  source: of the world."""
        self.received.add(out, self.ranks[self.rank], source)
        return NAMES[out.dtype], list(out.shape)

    def _begun(self, work: Any) -> LoggedWork:
        self.steps.works += 1
        return LoggedWork(self, work, self.steps.works - 1)

    def _wait(self, works: Sequence[LoggedWork]) -> None:
        self._note("wait", [work.number for work in works])
        self.inner._wait([work.work for work in works])

    def _wait_any(self, works: Sequence[LoggedWork]) -> int:
        self._note("wait_any", [work.number for work in works])
        return self.inner._wait_any([work.work for work in works])

    def _combined(self, start, nbytes):
        self._note("combined", nbytes)
        self.inner._combined(start, nbytes)

    def compute(self, seconds, label=""):
        self._note("compute", seconds, str(label))
        self.inner.compute(seconds, label)

    @contextmanager
    def work(self, label="", seconds=0.0):
        self._note("begin", str(label), seconds)
        with self.inner.work(label, seconds):
            yield
        self._note("end")

    def now(self):
        return self.inner.now()

    def record(self, kind, start, end, bytes=0, peer=-1, label=""):
        raise PermissionError("comm.record: the trace of a graded run is written by the grader alone")

    def start(self, fn, *args):
        own = Steps(self.steps.lanes, self.steps.coder)
        self._note("start", len(self.steps.lanes) - 1)

        def beside(side: Communicator, *given: Any) -> Any:
            return own.run(fn, Logged(side, own, self.received, self.live), *given)

        self.steps.tasks += 1
        return LoggedTask(self.steps, self.inner.start(beside, *args), self.steps.tasks - 1)

    def library(self, module: str, name: str, args: tuple, kwargs: dict[str, Any]) -> None:
        """Note a call of the library's that the judge does."""
        rest = {key: value for key, value in kwargs.items() if key != "comm"}
        self._note("library", module, name, list(args[1:]), rest)

    def barrier(self):
        self._note("barrier")
        self.inner.barrier()

    def split(self, color, key=None):
        self._note("split", color, key)
        return Logged(self.inner.split(color, key), self.steps, self.received, self.live)
