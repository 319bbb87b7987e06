"""Do again, on this side, what the ranks of a run did in the sandbox: messages are matched and counted here."""

from __future__ import annotations

from collections.abc import Callable
from itertools import zip_longest
from typing import Any

from autograder.judge.frames import call_at, raise_at
from autograder.judge.told import error_of, nonnegative, positive, room, tensor_of
from mlsyslab.check.messages import Forbidden
from mlsyslab.comm import Communicator


class Forged(Exception):
    """What the sandbox told of a run doesn't fit together."""


class Replay:
    """A run as the sandbox tells of it.

    lanes: the steps of each rank's function, then of what was started beside them.  places: of each, the line it came from.
    allowed: which functions of the library are done for a student, as (module, name) -> function or None.
    """

    def __init__(self, lanes: list[Any], places: list[Any], allowed: Callable[[str, str], Callable | None]):
        self.lanes, self.places, self.allowed = lanes, places, allowed

    def go(self, comm: Communicator, number: int) -> None:
        """Do the steps of one lane, as one rank."""
        _Lane(self, comm).go(self.lanes[number], self.places[number])


class _Lane:
    """What a lane has at hand: its communicators, sends and receives, tasks and open pieces of work, by number."""

    def __init__(self, run: Replay, comm: Communicator):
        self.run, self.comms, self.works, self.tasks, self.doing = run, [comm], [], [], []

    def go(self, steps: Any, places: Any) -> None:
        for (what, *about), place in zip_longest(steps, places):
            if what == "return":
                return
            if what == "raise":
                raise_at(about[0][3], error_of(about[0]))
            getattr(self, f"do_{what}")(place, *about)
        raise Forged("the run of a rank has no end")

    def do_send(self, place, comm, tensor, to, tag):
        call_at(place, self.comms[comm].send, tensor_of(tensor), to, tag)

    def do_recv(self, place, comm, dtype, shape, source, tag):
        call_at(place, self.comms[comm].recv, room(dtype, shape), source, tag)

    def do_sendrecv(self, place, comm, tensor, to, dtype, shape, source, tag):
        call_at(place, self.comms[comm].sendrecv, tensor_of(tensor), to, room(dtype, shape), source, tag)

    def do_isend(self, place, comm, tensor, to, tag):
        self.works.append(call_at(place, self.comms[comm].isend, tensor_of(tensor), to, tag))

    def do_irecv(self, place, comm, dtype, shape, source, tag):
        self.works.append(call_at(place, self.comms[comm].irecv, room(dtype, shape), source, tag))

    def do_wait(self, place, comm, numbers):
        call_at(place, self.comms[comm].wait_all, [self.works[number] for number in numbers])

    def do_wait_any(self, place, comm, numbers):
        call_at(place, self.comms[comm].wait_any, [self.works[number] for number in numbers])

    def do_combined(self, place, comm, nbytes):
        self.comms[comm]._combined(self.comms[comm].now(), nonnegative(nbytes))

    def do_compute(self, place, comm, seconds, label):
        call_at(place, self.comms[comm].compute, positive(seconds), str(label))

    def do_begin(self, place, comm, label, seconds):
        self.doing.append(self.comms[comm].work(str(label), positive(seconds)))
        self.doing[-1].__enter__()

    def do_end(self, place, comm):
        call_at(place, self.doing.pop().__exit__, None, None, None)

    def do_start(self, place, comm, lane):
        self.tasks.append(call_at(place, self.comms[comm].start, self.run.go, lane))

    def do_task(self, place, number):
        call_at(place, self.tasks[number].wait)

    def do_barrier(self, place, comm):
        call_at(place, self.comms[comm].barrier)

    def do_split(self, place, comm, color, key):
        self.comms.append(call_at(place, self.comms[comm].split, color, key))

    def do_library(self, place, comm, module, name, args, kwargs):
        call_at(place, library(self.run.allowed, module, name), self.comms[comm], *args, **kwargs)


def library(allowed: Callable[[str, str], Callable | None], module: str, name: str) -> Callable[..., Any]:
    """A function of a withheld module, where a student may ask for it."""
    fn = allowed(module, name)
    if fn is None:
        raise Forbidden(f"{module} is called (its {name}): in this exercise you write that yourself")
    return fn
