"""What stands for a student's function: a call of it goes into the sandbox, and plain values come back."""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from autograder.inside.errors import described
from autograder.inside.wire import Malformed, parts
from autograder.judge.frames import call_at, raise_at
from autograder.judge.pipe import Gone, Pipe
from autograder.judge.replay import Forged, Replay, library
from autograder.judge.told import error_of, nonnegative, positive
from mlsyslab.check import runs
from mlsyslab.check.elsewhere import Elsewhere
from mlsyslab.check.messages import Forbidden
from mlsyslab.comm import Communicator, Network

#: runs that were done again, by what they did
DONE: OrderedDict[tuple, runs.Outcome] = OrderedDict()
MOST_DONE = 4096

ENDED = "time: it went on after its run had been ended"


class Stub(Elsewhere):
    """A student's function, by its name.

    pipe: to a child in which it is defined.
    allowed: which functions of the library it may have the judge call, as (module, name) -> function or None.
    """

    def __init__(self, pipe: Pipe, name: str, allowed: Callable[[str, str], Callable | None]):
        self.pipe, self.allowed = pipe, allowed
        self.__name__ = self.__qualname__ = name
        self.step_by_step = False  # whether it has asked for functions of the library, which the judge calls

    def __repr__(self) -> str:
        return f"<function {self.__name__}>"

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._call(args, kwargs)[0]

    def watched(self, *args: Any) -> tuple[Any, int, int, bool]:
        result, changed, seen = self._call(args, {}, True)
        products, peak = map(nonnegative, seen if isinstance(seen, list) and len(seen) == 2 else (0, 0))
        return result, products, peak, bool(changed)

    def _call(self, args: tuple, kwargs: dict[str, Any], counting: bool = False) -> tuple[Any, Any, Any]:
        call = Call(self.pipe, self.allowed)
        result, changed, seen = call.run("call", self.__name__, call.out(list(args)), call.out(kwargs), counting)
        for place, new in changed if isinstance(changed, list) else []:
            if type(place) is int and 0 <= place < len(args):
                write_back(args[place], new)
        return result, changed, seen

    def run(self, arguments: Sequence[tuple], link: Network, forbidden: Sequence[str] | None, timeout: float,
            watch: bool) -> runs.Outcome:
        """All ranks run in the sandbox, and what they did is done again here; or step by step, where they need help."""
        if not self.step_by_step and type(link) in self.pipe.coder.known.values():
            told = self.pipe.ask("run", self.__name__, list(map(list, arguments)), link, timeout, watch)
            self.step_by_step = not isinstance(told, dict)
            if not self.step_by_step:
                return self._replayed(told, arguments, link, forbidden, timeout)
        return runs.run(lambda comm, *own: self(comm, *own), arguments, link, forbidden, timeout)

    def _replayed(self, told: dict[str, Any], arguments: Sequence[tuple], link: Network, forbidden: Sequence[str] | None,
                  timeout: float) -> runs.Outcome:
        if told["endless"] is not None:
            raise error_of(told["endless"])
        done = self._again(told, len(arguments), link, forbidden, timeout)
        if told["error"] is not None:
            raise error_of(told["error"])
        if len(told["results"]) != len(arguments):
            raise Forged("it gave back too few results")
        live = [watched(*of) for of in told["live"]]
        return replace(done, results=told["results"], changed=told["changed"], held=told["held"], live=live)

    def _again(self, told: dict[str, Any], p: int, link: Network, forbidden: Sequence[str] | None,
               timeout: float) -> runs.Outcome:
        """Do all steps again. The same steps come out the same, so those of many students are done only once."""
        rules = forbidden if forbidden is None else tuple(forbidden)
        key = tuple(hashlib.sha256(lane).digest() for lane in told["steps"]), p, link, rules, self.allowed
        if key in DONE:
            DONE.move_to_end(key)
            return DONE[key]
        try:
            lanes = [self.pipe.coder.value(*parts(lane)) for lane in told["steps"]]
        except Malformed as error:
            raise self.pipe.stop(f"it told of no run: {error}") from None
        if not any(lanes) and told["error"] is not None:
            raise error_of(told["error"])
        run = Replay(lanes, told["places"], self.allowed)
        done = runs.run(run.go, [(rank,) for rank in range(p)], link, forbidden, timeout)
        DONE[key] = done
        if len(DONE) > MOST_DONE:
            DONE.popitem(last=False)
        return done


@dataclass(frozen=True)
class Watched:
    """What `Live` saw of a rank's memory in the sandbox."""

    peak: int
    at_peak: list[int]


def watched(peak: Any, at_peak: Any) -> Watched:
    return Watched(nonnegative(peak), [nonnegative(size) for size in at_peak])


def write_back(old: Any, new: Any) -> None:
    """Let what was given look as it does in the sandbox, as far as that is possible in place."""
    if isinstance(old, torch.Tensor):
        if isinstance(new, torch.Tensor) and new.shape == old.shape and new.dtype == old.dtype:
            with torch.no_grad():
                old.copy_(new)
        else:
            old.zero_().add_(1)
    elif isinstance(old, list) and isinstance(new, list):
        for before, after in zip(old, new, strict=False):
            write_back(before, after)
        old[:] = [before if isinstance(before, (torch.Tensor, list, dict)) else after
                  for before, after in zip(old, new, strict=False)] + new[len(old):]
    elif isinstance(old, tuple) and isinstance(new, tuple):
        for before, after in zip(old, new, strict=False):
            write_back(before, after)
    elif isinstance(old, dict) and isinstance(new, dict):
        old.clear()
        old.update(new)


class Call:
    """One call in the sandbox, and what this side holds for it."""

    def __init__(self, pipe: Pipe, allowed: Callable[[str, str], Callable | None]):
        self.pipe, self.allowed = pipe, allowed
        pipe.calls += 1
        self.number = pipe.calls
        self.comms: list[Communicator] = []
        self.works: dict[int, Any] = {}  # what is under way
        self.held: dict[int, torch.Tensor] = {}  # received tensors that the sandbox still has
        self.sent: dict[int, torch.Tensor] = {}  # tensors that are being sent
        self.tasks: list[Any] = []
        self.doing: list[Any] = []  # open `with comm.work`
        self.count = 0

    # -- the conversation ---------------------------------------------------------------------------------------------

    def run(self, kind: str, *about: Any) -> list[Any]:
        """Begin the call, and serve its requests until it ends; returns [result, changed arguments, what was seen]."""
        pipe, served = self.pipe, False
        try:
            pipe.send(kind, self.number, *about)
            while True:
                message = pipe.read()
                if message[0] == "display":
                    pipe.outputs.display("display_data", message[-1])  # never a result: nbgrader reads that as a score
                    continue
                if message[0] not in ("request", "return", "raise") or message[1] != self.number:
                    raise pipe.stop("it spoke out of turn")
                if message[0] == "return":
                    return message[2:5]
                if message[0] == "raise":
                    break
                served = True
                answer = self.serve(*message[2:])
                served = False
                pipe.send(*answer)
        except Gone:
            raise
        except BaseException:  # the run has ended on this side
            if served:
                pipe.waiting.append(self.number)
            else:
                pipe.stop(ENDED)
            raise
        return raise_at(message[2][3], error_of(message[2]))

    def serve(self, what: Any, about: Any, place: Any, freed: Any, changed: Any) -> tuple[Any, ...]:
        """Do what a rank asks for; its errors are the rank's to handle."""
        for number in freed:
            self.held.pop(number, None)
        for number, values in changed:
            if number in self.sent and isinstance(values, torch.Tensor) and values.shape == self.sent[number].shape:
                self.sent[number].copy_(values)
        try:
            do = getattr(self, f"do_{what}", None) if isinstance(what, str) else None
            if do is None:
                raise ValueError(f"there is no {what!r} to ask for")
            return "reply", self.number, do(place, *about)
        except Gone:
            raise
        except Exception as error:
            return "fault", self.number, described(error)

    def out(self, value: Any) -> Any:
        """Arguments as they travel: communicators by their number."""
        if isinstance(value, Communicator):
            return Ref(self.named(value))
        if type(value) in (list, tuple):
            return type(value)(map(self.out, value))
        if type(value) is dict:
            return {key: self.out(item) for key, item in value.items()}
        return value

    def named(self, comm: Communicator) -> list[Any]:
        self.comms.append(comm)
        return [len(self.comms) - 1, comm.rank, list(comm.ranks), comm.network, comm.life]

    def comm(self, number: Any) -> Communicator:
        if type(number) is not int or not 0 <= number < len(self.comms):
            raise ValueError("that communicator is not this rank's")
        return self.comms[number]

    def new(self) -> int:
        self.count += 1
        return self.count

    # -- messages -----------------------------------------------------------------------------------------------------

    def do_send(self, place, comm, tensor, to, tag):
        call_at(place, self.comm(comm).send, tensor, to, tag)

    def do_recv(self, place, comm, like, source, tag):
        number, out = self.receiving(like)
        return [number, call_at(place, self.comm(comm).recv, out, source, tag)]

    def do_sendrecv(self, place, comm, tensor, to, like, source, tag):
        number, out = self.receiving(like)
        return [number, call_at(place, self.comm(comm).sendrecv, tensor, to, out, source, tag)]

    def do_isend(self, place, comm, tensor, to, tag):
        number = self.new()
        self.works[number] = call_at(place, self.comm(comm).isend, tensor, to, tag), self.comm(comm)
        self.sent[number] = tensor
        return number

    def do_irecv(self, place, comm, like, source, tag):
        number, out = self.receiving(like)
        self.works[number] = call_at(place, self.comm(comm).irecv, out, source, tag), self.comm(comm)
        return number

    def receiving(self, like: Any) -> tuple[int, torch.Tensor]:
        """A tensor to receive into, which is kept for as long as the sandbox keeps its own."""
        dtype, shape = like
        number, out = self.new(), torch.empty(shape, dtype=dtype)
        self.held[number] = out
        return number, out

    def do_wait(self, place, comm, numbers):
        works = [self.works[number][0] for number in numbers]
        call_at(place, self.comm(comm).wait_all, works)
        return [self.arrived(number) for number in numbers]

    def do_wait_any(self, place, comm, numbers):
        index = call_at(place, self.comm(comm).wait_any, [self.works[number][0] for number in numbers])
        return [index, self.arrived(numbers[index])]

    def arrived(self, number: int) -> torch.Tensor | None:
        self.sent.pop(number, None)
        return self.held.get(number)

    # -- work ---------------------------------------------------------------------------------------------------------

    def do_combined(self, place, comm, nbytes):
        self.comm(comm)._combined(self.comm(comm).now(), nonnegative(nbytes))

    def do_compute(self, place, comm, seconds, label):
        call_at(place, self.comm(comm).compute, positive(seconds), str(label))

    def do_begin(self, place, comm, label, seconds):
        work = self.comm(comm).work(str(label), positive(seconds))
        work.__enter__()
        self.doing.append(work)

    def do_end(self, place, comm):
        call_at(place, self.doing.pop().__exit__, None, None, None)

    def do_now(self, place, comm):
        return self.comm(comm).now()

    def do_record(self, place, *_):
        raise Forbidden("comm.record: the trace of a graded run is written by the grader alone")

    # -- beside and groups --------------------------------------------------------------------------------------------

    def do_start(self, place, comm, local):
        def beside(side: Communicator) -> None:
            call = Call(self.pipe, self.allowed)
            call.run("side", local, call.out(side))
        self.tasks.append(call_at(place, self.comm(comm).start, beside))
        return len(self.tasks) - 1

    def do_task(self, place, number):
        call_at(place, self.tasks[number].wait)

    def do_barrier(self, place, comm):
        call_at(place, self.comm(comm).barrier)

    def do_split(self, place, comm, color, key):
        return self.out(call_at(place, self.comm(comm).split, color, key))

    # -- the library --------------------------------------------------------------------------------------------------

    def do_library(self, place, module, name, args, kwargs):
        fn = library(self.allowed, module, name)
        comms = {key: self.comm(value.parts) if isinstance(value, Ref) else value for key, value in kwargs.items()}
        return call_at(place, fn, *(self.comm(arg.parts) if isinstance(arg, Ref) else arg for arg in args), **comms)


class Ref:
    """A communicator on its way: out as [number, rank, ranks, network, life], back as its number."""

    def __init__(self, parts: Any):
        self.parts = parts
