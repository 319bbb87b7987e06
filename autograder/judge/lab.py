"""What a lab asks for: its cells, which of them grade which exercise, and what each needs."""

from __future__ import annotations

import builtins
import dis
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from types import CodeType

import nbformat
from IPython.core.inputtransformer2 import TransformerManager
from nbformat import NotebookNode
from nbgrader.utils import is_grade, is_solution, is_task

from autograder.inside.places import CELL
from autograder.sandbox import Library, library_folder
from mlsyslab.check.withheld import withheld

#: modules of the checks that watch a student's function, and know no answer
WATCHING = tuple(f"mlsyslab.check.{name}" for name in ("elsewhere", "live", "messages", "products", "runs", "waiting"))
TEXT, SETUP, SOLUTION, TEST, MANUAL = "text", "setup", "solution", "test", "manual"


@dataclass(frozen=True)
class Part:
    """A cell of the lab.  number: its place.  name: its grade_id, or its id.  binds, needs: names."""

    number: int
    cell: NotebookNode
    role: str
    name: str
    binds: frozenset[str] = frozenset()
    needs: frozenset[str] = frozenset()

    @property
    def file(self) -> str:
        """The file name of its code."""
        return CELL.format(self.number)


@dataclass(frozen=True)
class Exercise:
    """A solution cell and the cells that grade it: points of each by its grade_id."""

    name: str
    points: dict[str, float] = field(default_factory=dict)

    @property
    def most(self) -> float:
        return sum(self.points.values())


class Lab:
    """A lab as its source says.  name: its topic.  notebook: with solutions and hidden tests."""

    def __init__(self, name: str, notebook: NotebookNode):
        self.name, self.notebook = name, notebook
        self.parts = [part_of(number, cell) for number, cell in enumerate(notebook.cells)]

    @classmethod
    def read(cls, name: str, path: Path) -> Lab:
        return cls(name, nbformat.read(path, as_version=4))

    @property
    def gpu(self) -> bool:
        """Whether a submission needs a GPU: `mlsyslab: {gpu: true}` in the head of the source says so."""
        return bool(self.notebook.metadata.get("mlsyslab", {}).get("gpu"))

    @cached_property
    def exercises(self) -> list[Exercise]:
        """In order: a test cell belongs to the last solution cell before it."""
        found: list[Exercise] = []
        for part in self.parts:
            if part.role in (SOLUTION, MANUAL):
                found.append(Exercise(part.name))
            if part.role in (TEST, MANUAL):
                if not found:
                    found.append(Exercise(part.name))
                found[-1].points[part.name] = float(part.cell.metadata.nbgrader.points)
        return [exercise for exercise in found if exercise.points]

    def exercise_of(self, part: Part) -> str:
        """The name of the exercise that a test cell grades."""
        return next((exercise.name for exercise in self.exercises if part.name in exercise.points), "")

    @cached_property
    def first(self) -> int:
        """The number of the first cell in which a student writes; those before it are the same for everyone."""
        return next((part.number for part in self.parts if part.role == SOLUTION), len(self.parts))

    @cached_property
    def theirs(self) -> frozenset[str]:
        """The names that students define, or that depend on what they define."""
        names = set().union(*(part.binds for part in self.parts if part.role == SOLUTION))
        for part in self.parts:
            if part.role == SETUP and part.needs & names:
                names |= part.binds
        return frozenset(names)

    def setup_for(self, names: frozenset[str]) -> list[Part]:
        """The lab's own cells that define `names`, with those that they need, in order."""
        wanted, chosen = set(names) - self.theirs, []
        for part in reversed(self.parts):
            if part.role == SETUP and part.binds & wanted and not part.needs & self.theirs:
                chosen.append(part)
                wanted |= part.needs
        return chosen[::-1]

    @cached_property
    def library(self) -> Library:
        """What of mlsyslab students find: `mlsyslab.check.LAB` says what it withholds, by default the module of its name."""
        root = library_folder()
        rules = withheld(self.name)
        kept = WATCHING + tuple(name for names in rules.values() for name in names.kept)
        hidden = [root / name for name in ("check", "draw", "bench")] + [path_of(root, name) for name in rules]
        return Library(tuple(path for path in hidden if path.exists()), tuple(path_of(root, name) for name in kept),
                       tuple(rules), kept, {name: names.asked for name, names in rules.items()})

    @property
    def cells(self) -> list[tuple[str, str]]:
        """What the warm process runs before anybody's code."""
        return [(part.file, part.cell.source) for part in self.parts[:self.first] if part.role == SETUP]


def path_of(root: Path, module: str) -> Path:
    path = root.joinpath(*module.split(".")[1:])
    return path if path.is_dir() else path.with_suffix(".py")


def part_of(number: int, cell: NotebookNode) -> Part:
    about = cell.metadata.get("nbgrader", {})
    name = about.get("grade_id") or cell.get("id") or f"cell {number}"
    if (is_grade(cell) and is_solution(cell)) or is_task(cell):
        return Part(number, cell, MANUAL, name)
    if cell.cell_type != "code":
        return Part(number, cell, TEXT, name)
    role = TEST if is_grade(cell) else SOLUTION if is_solution(cell) else SETUP
    return Part(number, cell, role, name, *names_of(cell.source))


def names_of(source: str) -> tuple[frozenset[str], frozenset[str]]:
    """The names that a cell binds, and those that it takes from elsewhere; empty where it can't be compiled."""
    try:
        code = compile(TransformerManager().transform_cell(source), "cell", "exec")
    except (SyntaxError, ValueError):
        return frozenset(), frozenset()
    binds, needs = set(), set()
    for body in bodies(code):
        for step in dis.get_instructions(body):
            if step.opname in ("STORE_GLOBAL", "STORE_NAME") and (body is code or step.opname == "STORE_GLOBAL"):
                binds.add(step.argval)
            elif step.opname in ("LOAD_NAME", "LOAD_GLOBAL"):
                needs.add(step.argval)
    return frozenset(binds), frozenset(needs - set(vars(builtins)))


def bodies(code: CodeType):
    """A code object and all those in it."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from bodies(constant)
