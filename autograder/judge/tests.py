"""Run a test cell here, where no student's code runs: their functions are stubs, their values copies."""

from __future__ import annotations

import ast
import contextlib
import io
import os
import random
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import numpy
import torch

from autograder.judge.conversations import Conversations, Tape
from autograder.judge.lab import TEST, Lab, Part
from autograder.judge.outputs import Outputs, made
from autograder.judge.pipe import Gone
from autograder.judge.session import Session
from autograder.judge.stub import ENDED, Stub
from mlsyslab.check import inputs
from mlsyslab.check.messages import is_number
from mlsyslab.check.withheld import withheld


@dataclass(frozen=True)
class Tested:
    """What a test cell showed, its error among that, what was earned, and which limit ended it."""

    outputs: Outputs
    points: float
    limit: str | None


class Tests:
    """The test cells of a lab.  seed: of the inputs of hidden tests."""

    def __init__(self, lab: Lab, seed: str):
        self.lab, self.seed = lab, seed
        self.own: dict[str, Any] = {"__name__": "__main__"}  # what the lab's own cells define
        self.done: set[int] = set()
        self.conversations = Conversations()
        tests = [other for other in lab.parts if other.role == TEST]
        self.passed_on = frozenset().union(*(other.binds for other in tests))  # what test cells leave to later ones
        found = find_spec(f"mlsyslab.check.{lab.name}")
        self.checks = vars(import_module(found.name)) if found else {}

    def names(self, part: Part) -> dict[str, Any]:
        """The lab's own names for a test cell, which are the same for every submission."""
        for setup in self.lab.setup_for(part.needs):
            if setup.number not in self.done:
                with contextlib.redirect_stdout(io.StringIO()):
                    exec(compile(setup.cell.source, setup.file, "exec"), self.own)
                self.done.add(setup.number)
        return dict(self.own)

    def run(self, part: Part, session: Session, names: dict[str, Any], most: int) -> Tested:
        """Run one test cell.  names: what earlier test cells have defined.  most: bytes that it may show."""
        outputs, limit, points = Outputs(most), None, 0.0
        self.forbidden = getattr(self.checks.get(self.lab.exercise_of(part)), "forbidden", ())
        said = Said(outputs)
        alone = not (part.binds | part.needs) & self.passed_on  # whether it has nothing to do with other test cells
        os.environ[inputs.SEED] = self.seed
        for seed in (random.seed, torch.manual_seed, numpy.random.seed):
            seed(0)

        def test() -> None:
            nonlocal points
            printed, events = self.conversations.follow(part.name, given, session.pipe) if alone else (None, [])
            if printed is not None:
                outputs.stream("stdout", printed)
                points = most_of(part)
                return
            session.pipe.tape = Tape(events) if alone else None
            with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
                points = earned(part, names, outputs)
            if alone and said.whole and points == most_of(part) and not session.pipe.gone:
                self.conversations.learn(part.name, given, session.pipe.tape.events, said.text)

        try:
            session.ready()
            names.update({**self.names(part), **names})
            theirs = self.theirs(part, session)
            names.update(theirs)
            given = session.pipe.coder.frame([[name, None if isinstance(value, Stub) else [value]]
                                              for name, value in theirs.items()])
            limit = session.during(outputs, test)
        except Gone as gone:
            limit = str(gone)
        if limit is not None and not (limit.startswith("output") and points):
            if limit != ENDED or not any(output.output_type == "error" for output in outputs):
                outputs[:] = [output for output in outputs if output.output_type != "error"]
                outputs.error("Limit", limit)  # otherwise the test has ended it, and its own error says why
            points = 0.0
        for output in outputs:
            if output.get("ename") == "NameError" and (fault := self.fault(part, session)):
                output.evalue += f": its cell ended with {fault}"
                output.traceback = [f"NameError: {output.evalue}"]
        return Tested(outputs, points, limit)

    def fault(self, part: Part, session: Session) -> str | None:
        """What went wrong in the cell that a test cell grades."""
        name = self.lab.exercise_of(part)
        return next((session.faults[cell.file] for cell in self.lab.parts
                     if cell.name == name and cell.file in session.faults), None)

    def theirs(self, part: Part, session: Session) -> dict[str, Any]:
        """What a test cell needs of the student's names."""
        ours = set(self.own) | self.passed_on
        wanted = sorted(name for name in part.needs if name in self.lab.theirs or name not in ours)
        found = {}
        for name, kind in zip(wanted, session.kinds(wanted) if wanted else [], strict=True):
            if kind == "function":
                found[name] = Stub(session.pipe, name, self.allowed)
            elif kind == "value":
                found[name] = session.value(name)
        return found

    def allowed(self, module: str, name: str) -> Callable[..., Any] | None:
        """The function of a withheld module that the judge calls for a student; None where he may not ask for it."""
        rules = withheld(self.lab.name).get(module)
        if rules is None or name not in rules.asked or self.forbidden is None or name in self.forbidden:
            return None
        return getattr(import_module(module), name)


class Said(io.TextIOBase):
    """What a test cell prints, put into its outputs."""

    def __init__(self, outputs: Outputs):
        self.outputs, self.text = outputs, ""

    @property
    def whole(self) -> bool:
        """Whether the outputs hold nothing else of the test's: no error, no value."""
        return all(output.output_type == "stream" for output in self.outputs)

    def write(self, text: str) -> int:
        self.outputs.stream("stdout", text)
        self.text += text
        return len(text)


def most_of(part: Part) -> float:
    """The points of a test cell."""
    return float(part.cell.metadata.nbgrader.points)


def earned(part: Part, names: dict[str, Any], outputs: Outputs) -> float:
    """Run the cell as a notebook would; returns its points, by nbgrader's rule.

    An error gives none. A number as the last expression is the points, and is shown; otherwise it is all of them.
    """
    most = most_of(part)
    tree = ast.parse(part.cell.source)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    try:
        exec(compile(tree, f"<{part.name}>", "exec"), names)
        value = eval(compile(ast.Expression(last.value), f"<{part.name}>", "eval"), names) if last else None
    except Exception as error:
        outputs.error(type(error).__name__, str(error))
        return 0.0
    if value is None:
        return most
    outputs.append(made("execute_result", data={"text/plain": repr(value)}, metadata={}, execution_count=None))
    return min(max(float(value), 0.0), most) if is_number(value) else most
