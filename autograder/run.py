"""Run a sanitised submission in the sandbox and put the outputs into its cells."""

from __future__ import annotations

import json
import sys
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from threading import Event

from nbformat import NotebookNode
from nbformat.v4 import new_output

from autograder import sandbox
from autograder.errors import NeedsPerson
from autograder.limits import Limits

INSIDE = Path(__file__).with_name("inside.py")
PER_NOTEBOOK = 64  # times the output of one cell


@dataclass
class Execution:
    """A notebook that was run. limits: what was cut short, in the words of a report; [] when nothing was."""

    notebook: NotebookNode
    limits: list[str] = field(default_factory=list)


def execute(notebook: NotebookNode, limits: Limits, seed: str, unsafe: bool = False, stop: Event | None = None) -> Execution:
    """Run every code cell of `notebook`; a cell that fails, ends late or never runs gets an output that says so.

    seed: of the hidden tests' inputs.  unsafe: with no sandbox.  stop: ends the run with `sandbox.Stopped` when it is set.
    Raises NeedsPerson when not even the first cell could be begun: that is the grader's trouble, not the submission's.
    """
    cells = [cell for cell in notebook.cells if cell.cell_type == "code" and cell.source.strip()]
    job = json.dumps({"cells": [cell.source for cell in cells], "limits": asdict(limits)}).encode()
    environment = {"NBGRADER_EXECUTION": "autograde", "MLSYSLAB_SEED": seed, "PYTHONHASHSEED": "0",
                   "OMP_NUM_THREADS": "1"}  # several submissions run at a time
    run = _Run(cells)
    argv = [sys.executable, "-I", str(INSIDE) if unsafe else "/inside.py"]
    with sandbox.Process(argv, job, limits, {"/inside.py": INSIDE}, environment, unsafe) as process:
        try:
            for line in process.lines(limits.submission, PER_NOTEBOOK * limits.output, stop):
                run.take(line)
            complaint = "" if run.done else f"it ended before it was done: {process.complaint()}"
        except sandbox.Ended as ended:
            complaint = str(ended)
    if run.begun is None and cells:
        raise NeedsPerson(f"it could not be run: {complaint}")
    run.finish(complaint)
    return Execution(notebook, run.limits)


class _Run:
    """What has come out of the sandbox so far."""

    def __init__(self, cells: list[NotebookNode]):
        self.cells = cells
        self.begun: int | None = None
        self.ended = -1
        self.limits: list[str] = []

    @property
    def done(self) -> bool:
        return self.ended == len(self.cells) - 1

    def take(self, line: bytes) -> None:
        """One line of what `inside.py` prints. It may be forged, so what doesn't fit is passed over."""
        with suppress(Exception):
            message = json.loads(line)
            if message.get("begin") == self.ended + 1:
                self.begun = message["begin"]
            elif message.get("end") == self.begun == self.ended + 1:
                self._end(message)

    def _end(self, message: dict) -> None:
        cell = self.cells[message["end"]]
        cell.outputs = [new_output(**output) for output in message["outputs"]]
        self.ended = message["end"]
        cell.execution_count = self.ended + 1
        if message["limit"]:
            self.limits.append(f"{name(cell, self.ended)}: {str(message['limit'])[:200]}")
        elif any(map(_out_of_memory, cell.outputs)):
            self.limits.append(f"{name(cell, self.ended)}: memory")

    def finish(self, complaint: str) -> None:
        """Mark the cells that never came to their end."""
        if self.done:
            return
        last = self.ended + 1
        self.limits.append(f"{name(self.cells[last], last)}: {complaint}")
        for number in range(last, len(self.cells)):
            text = complaint if number == last else "the submission had been ended before this cell"
            self.cells[number].outputs = [new_output("error", ename="Limit", evalue=text, traceback=[f"Limit: {text}"])]


def _out_of_memory(output: NotebookNode) -> bool:
    return output.get("ename") == "MemoryError" or "can't allocate memory" in output.get("evalue", "")


def name(cell: NotebookNode, number: int) -> str:
    """What a report calls this cell."""
    return cell.metadata.get("nbgrader", {}).get("grade_id") or f"code cell {number + 1}"
