"""A student's cells in the sandbox. What ends the child ends one cell or one test: a new child has run all others again."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from nbformat import NotebookNode

from autograder.inside.vocabulary import coder
from autograder.judge.frames import known
from autograder.judge.outputs import Outputs
from autograder.judge.pipe import Gone, Pipe
from autograder.judge.stub import Ref
from autograder.limits import Limits
from autograder.sandbox import Zygote


class Session:
    """limits: of the submission.  ran: the cells that a new child runs again, as (file, source)."""

    def __init__(self, zygote: Zygote, limits: Limits):
        self.zygote, self.limits = zygote, limits
        self.ran: list[tuple[str, str]] = []
        self.faults: dict[str, str] = {}  # what a cell's code raised, or which limit ended it, by file
        self.pipe: Pipe | None = None
        self.ends = time.monotonic() + limits.submission

    def close(self) -> None:
        if self.pipe is not None:
            self.pipe.close()

    def ready(self) -> Pipe:
        """A child in which all cells so far have run."""
        while self.pipe is None or self.pipe.gone:
            self.pipe = self._fork()
            for cell in list(self.ran):
                try:
                    self._ask(Outputs(self.limits.output), "cell", *reversed(cell))
                except Gone:
                    self.ran.remove(cell)
                    break
        return self.pipe

    def _fork(self) -> Pipe:
        own = coder()
        own.handles[Ref] = "comm", lambda ref: ref.parts
        own.reading["comm"] = Ref
        pipe = Pipe(self.zygote.fork(), own)
        pipe.ends, pipe.allowed_in_all = self.ends, f"time: the submission ran longer than {self.limits.submission:g} s"
        return pipe

    def _ask(self, outputs: Outputs, *question: Any) -> Any:
        """Ask the child; what it shows meanwhile goes into `outputs`. Raises Gone."""
        self.pipe.outputs = outputs
        self.pipe.allow(self.limits.cell, f"time: it ran longer than {self.limits.cell:g} s")
        return self.pipe.ask(*question)

    def run(self, file: str, source: str) -> tuple[Outputs, str | None]:
        """Run one cell; returns what it showed, and which limit ended it."""
        known(file, source)
        outputs, limit = Outputs(self.limits.output), None
        try:
            self.ready()
            fault = self._ask(outputs, "cell", source, file)
            self.ran.append((file, source))
        except Gone as gone:
            limit = fault = str(gone)
            outputs.error("Limit", limit)
        if fault:
            self.faults[file] = str(fault)
        return outputs, limit or self._felt(outputs)

    def _felt(self, outputs: Outputs) -> str | None:
        """The limit that was run into, but ended nothing."""
        if outputs.cut:
            return f"output: more than {outputs.most:,} bytes"
        if any(map(out_of_memory, outputs)):
            return f"memory: it asked for more than {self.limits.memory >> 20:,} MiB"
        return None

    def kinds(self, names: list[str]) -> list[str]:
        """What each name stands for: "missing", "function" or "value"."""
        self.ready()
        told = self._ask(Outputs(self.limits.output), "names", names)
        return told if isinstance(told, list) and len(told) == len(names) else ["missing"] * len(names)

    def value(self, name: str) -> Any:
        """What the student assigned to `name`, as plain data."""
        self.ready()
        return self._ask(Outputs(self.limits.output), "value", name)

    def during(self, outputs: Outputs, action: Callable[[], Any]) -> str | None:
        """Let `action` call the student's functions; returns which limit ended the child, if one did."""
        pipe = self.pipe
        pipe.outputs = outputs
        pipe.allow(self.limits.cell, f"time: it ran longer than {self.limits.cell:g} s")
        pipe.forget()
        pipe.calls = 0
        try:
            action()
        finally:
            pipe.tape = None
        return pipe.limit if pipe.gone else self._felt(outputs)


def out_of_memory(output: NotebookNode) -> bool:
    """Whether an error says that there was not enough memory."""
    text = f"{output.get('ename')}: {output.get('evalue')}"
    return output.output_type == "error" and ("MemoryError" in text or "can't allocate memory" in text)
