"""What a child does for the judge: run cells, say what names stand for, call functions."""

from __future__ import annotations

import inspect
from contextlib import nullcontext
from typing import Any

import torch

from mlsyslab.check.live import Live
from mlsyslab.check.products import Products
from mlsyslab.check.runs import Held
from mlsyslab.comm import Communicator, Deadlock, simulate

from .errors import described
from .line import Ended, Line, Strand
from .log import Logged, Steps
from .notebook import Notebook
from .places import place_of
from .ranks import Locals, RemoteCommunicator
from .wire import Blob


class Server:
    def __init__(self, line: Line, notebook: Notebook, locals_: Locals):
        self.line, self.notebook, self.locals = line, notebook, locals_
        line.serve = self.call
        line.coder.reading["comm"] = self.communicator
        line.coder.handles[RemoteCommunicator] = "comm", lambda comm: comm._number

    def run(self) -> None:
        """The main thread: one order after the other, until the judge has gone."""
        while True:
            try:
                order, *about = self.line.next(self.line.main)
            except (EOFError, OSError):
                return
            self.line.send("answer", getattr(self, f"on_{order}")(*about))

    def on_cell(self, source: str, file: str) -> str | None:
        return self.notebook.run(source, file)

    def on_names(self, names: list[str]) -> list[str]:
        return [self.notebook.kind(name) for name in names]

    def on_value(self, name: str) -> Any:
        return self.notebook.names.get(name)

    def on_run(self, name: str, arguments: list[list[Any]], link: Any, timeout: float, watch: bool) -> dict[str, Any] | None:
        """Run a function of the student on all ranks; None where it asks for what only the judge can do."""
        fn, given, held = self.notebook.names[name], copied(arguments), Held()
        live = [Live() if watch else None for _ in arguments]
        lanes: list[Steps] = []
        for _ in arguments:
            Steps(lanes, self.line.coder)

        def rank(comm: Communicator, own: list[Any]) -> Any:
            steps, memory = lanes[comm.rank], live[comm.rank]
            with memory or nullcontext():
                return steps.run(fn, Logged(comm, steps, held, memory), *own)

        self.line.asked = False
        told = {"error": None, "endless": None, "results": [], "changed": [], "held": {}, "live": []}
        try:
            results = simulate(rank, given, link, timeout=timeout).results
            changed = [rank for rank, own in enumerate(arguments) if not all(map(same, own, given[rank]))]
            told |= {"results": results, "changed": changed, "held": held.most,
                     "live": [[memory.peak, memory.at_peak] for memory in live if memory]}
        except Exception as error:
            endless = isinstance(error, Deadlock) and error.why
            told["endless" if endless else "error"] = described(error)
        if self.line.asked:
            return None
        wrong = told["error"] is not None or told["endless"] is not None
        places = [[place_of(point) for point in lane.places if wrong] for lane in lanes]  # read to say what went wrong
        return told | {"steps": [Blob(lane.stream.frame()) for lane in lanes], "places": places}

    def communicator(self, parts: list[Any]) -> RemoteCommunicator:
        return RemoteCommunicator(self.line, self.locals, *parts)

    def call(self, strand: Strand, message: list[Any]) -> tuple[Any, ...]:
        kind, number, *about = message
        try:
            return self.local(number, *about) if kind == "side" else self.function(number, *about)
        except Ended:
            raise
        except BaseException as error:
            return "raise", number, described(error)

    def local(self, number: int, which: int, comm: Communicator) -> tuple[Any, ...]:
        self.locals.known[which].run(comm)
        return "return", number, None, [], 0

    def function(self, number: int, name: str, args: list[Any], kwargs: dict[str, Any], counting: bool) -> tuple[Any, ...]:
        """Call a function of the student; the answer holds what it gave back, and what it changed of what it was given."""
        fn = self.notebook.names[name]
        before = copied(args)
        if counting:
            with Products() as products, Live() as live:
                result = fn(*args, **kwargs)
            seen = [products.number, live.peak]
        else:
            result, seen = fn(*args, **kwargs), None
        if inspect.iscoroutine(result):
            result.close()
            raise TypeError(f"{name} is declared with `async def`; write `def`")
        changed = [[place, new] for place, (old, new) in enumerate(zip(before, args, strict=True)) if not same(old, new)]
        return "return", number, result, changed, seen


def copied(value: Any) -> Any:
    if isinstance(value, (list, tuple)):
        return type(value)(map(copied, value)) if type(value) in (list, tuple) else value
    if isinstance(value, dict):
        return {key: copied(item) for key, item in value.items()}
    return value.clone() if isinstance(value, torch.Tensor) else value


def same(a: Any, b: Any) -> bool:
    """Whether two values are alike to the last bit."""
    if isinstance(a, torch.Tensor):
        return a is b or (isinstance(b, torch.Tensor) and a.shape == b.shape and a.dtype == b.dtype
                          and (torch.equal(a, b) or torch.equal(bits(a), bits(b))))
    if isinstance(a, (list, tuple)):
        return type(a) is type(b) and len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, dict):
        return type(a) is type(b) and a.keys() == b.keys() and all(same(a[key], b[key]) for key in a)
    return a is b or type(a) is type(b) and a == b


def bits(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.detach().contiguous().reshape(-1).view(torch.uint8)
