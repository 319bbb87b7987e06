"""A submission of the corpus: how it is made from the lab's reference, and how it has to end.

Most are a function under one of the decorators below: its body, as it stands, is what the student wrote into a cell. Names
that it doesn't define are those of the notebook. It is never called here.
"""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import nbformat
from nbformat import NotebookNode
from nbformat.v4 import new_code_cell

from autograder.outcome import GRADED, LIMITED

LAB = "collectives"  # so that the library's collectives are withheld, as in the lab of that name
ALL = (4, 3, 3)  # of mean, scaled and shift
HONEST = (4, 0, 0)  # what an adversarial submission has earned: it solves the first exercise, and tries to get the rest
EXERCISES = ("mean", "scaled", "shift")

Change = Callable[[NotebookNode], None]
Write = Callable[[Path, NotebookNode], None]


@dataclass(frozen=True)
class Case:
    """write: puts the submission into its folder, from the notebook given.  solved: the exercises solved in that notebook.

    kinds: its outcome is one of these.  points: what each exercise has earned; None where nothing can be graded.
    why: part of the reason.
    """

    name: str
    write: Write
    solved: tuple[str, ...]
    kinds: tuple[str, ...] = (GRADED,)
    points: tuple[float, ...] | None = HONEST
    why: str = ""


ADVERSARIAL: dict[str, Case] = {}
HONEST_BUT_ODD: dict[str, Case] = {}


def body(fn: Callable) -> str:
    """The source of a function's body without its docstring."""
    lines = textwrap.dedent(inspect.getsource(fn)).splitlines()
    definition = ast.parse("\n".join(lines)).body[0]
    first = definition.body[1 if ast.get_docstring(definition) else 0]
    start = min([first.lineno, *(part.lineno for part in getattr(first, "decorator_list", []))])
    return textwrap.dedent("\n".join(lines[start - 1:])).strip()


def cell(notebook: NotebookNode, name: str) -> NotebookNode:
    return next(cell for cell in notebook.cells if cell.id == name)


def put(source: str, at: str) -> Change:
    """Write a cell: over an exercise's, or a new one after the one named as "after NAME"."""
    def change(notebook: NotebookNode) -> None:
        if not at.startswith("after "):
            cell(notebook, at).source = source
            return
        here = notebook.cells.index(cell(notebook, at.removeprefix("after ")))
        notebook.cells.insert(here + 1, new_code_cell(source, id=f"added-{here}"))
    return change


def saved(change: Change) -> Write:
    """The notebook with its change, in the place where it belongs."""
    def write(folder: Path, notebook: NotebookNode) -> None:
        change(notebook)
        (folder / f"{LAB}.ipynb").write_text(nbformat.writes(notebook))
    return write


def _add(cases: dict[str, Case], fn: Callable, write: Write, solved: tuple[str, ...], **expected) -> Callable:
    name = fn.__name__.replace("_", " ")
    assert name not in cases, f"two submissions are called {name!r}"
    cases[name] = Case(name, write, solved, **expected)
    return fn


def attack(at: str = "after imports", kinds: tuple[str, ...] = (GRADED, LIMITED), **expected) -> Callable:
    """The body is code of a student who has solved `mean` only.  at: see `put`."""
    return lambda fn: _add(ADVERSARIAL, fn, saved(put(body(fn), at)), ("mean",), kinds=kinds, **expected)


def attack_on_cells(**expected) -> Callable:
    """The function changes the notebook of a student who has solved `mean` only."""
    return lambda fn: _add(ADVERSARIAL, fn, saved(fn), ("mean",), **expected)


def attack_on_files(**expected) -> Callable:
    """The function writes the files of a student who has solved `mean` only."""
    return lambda fn: _add(ADVERSARIAL, fn, fn, ("mean",), **expected)


def honest(at: str = "after imports", points: tuple[float, ...] = ALL, **expected) -> Callable:
    """The body is code of a student who has solved everything."""
    return lambda fn: _add(HONEST_BUT_ODD, fn, saved(put(body(fn), at)), EXERCISES, points=points, **expected)


def honest_cells(points: tuple[float, ...] = ALL, **expected) -> Callable:
    """The function changes the notebook of a student who has solved everything."""
    return lambda fn: _add(HONEST_BUT_ODD, fn, saved(fn), EXERCISES, points=points, **expected)


def honest_files(points: tuple[float, ...] = ALL, **expected) -> Callable:
    """The function writes the files of a student who has solved everything."""
    return lambda fn: _add(HONEST_BUT_ODD, fn, fn, EXERCISES, points=points, **expected)
