"""Do again, on this side, what the ranks of a run did in the sandbox: messages are matched and counted here."""

from __future__ import annotations

from typing import Any

import torch

from autograder.judge.frames import call_at, raise_at
from autograder.judge.told import error_of, nonnegative, positive
from mlsyslab.comm import Communicator


class Forged(Exception):
    """What the sandbox told of a run doesn't fit together."""


def replay(comm: Communicator, steps: Any) -> None:
    """Do the steps of one lane, as one rank.  comm: its communicator."""
    _Lane(comm).go(steps)


class _Lane:
    """What a lane has at hand: its communicators, sends and receives, tasks and open pieces of work, by number."""

    def __init__(self, comm: Communicator):
        self.comms, self.works, self.tasks, self.doing = [comm], [], [], []

    def go(self, steps: Any) -> None:
        for what, *about in steps:
            if what == "return":
                return
            if what == "raise":
                raise_at(about[0][3], error_of(about[0]))
            getattr(self, f"do_{what}")(*about)
        raise Forged("the run of a rank has no end")

    def do_isend(self, comm, tensor, to, tag, place):
        self.works.append(call_at(place, self.comms[comm].isend, tensor, to, tag))

    def do_irecv(self, comm, dtype, shape, source, tag, place):
        self.works.append(call_at(place, self.comms[comm].irecv, torch.empty(shape, dtype=dtype), source, tag))

    def do_wait(self, comm, numbers, place):
        call_at(place, self.comms[comm].wait_all, [self.works[number] for number in numbers])

    def do_wait_any(self, comm, numbers, place):
        call_at(place, self.comms[comm].wait_any, [self.works[number] for number in numbers])

    def do_combined(self, comm, nbytes, place):
        self.comms[comm]._combined(self.comms[comm].now(), nonnegative(nbytes))

    def do_compute(self, comm, seconds, label, place):
        call_at(place, self.comms[comm].compute, positive(seconds), str(label))

    def do_begin(self, comm, label, seconds, place):
        self.doing.append(self.comms[comm].work(str(label), positive(seconds)))
        self.doing[-1].__enter__()

    def do_end(self, comm, place):
        call_at(place, self.doing.pop().__exit__, None, None, None)

    def do_start(self, comm, steps, place):
        self.tasks.append(call_at(place, self.comms[comm].start, replay, steps))

    def do_task(self, number, place):
        call_at(place, self.tasks[number].wait)

    def do_barrier(self, comm, place):
        call_at(place, self.comms[comm].barrier)

    def do_split(self, comm, color, key, place):
        self.comms.append(call_at(place, self.comms[comm].split, color, key))
