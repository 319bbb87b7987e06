"""Submissions to try the grading with, made from a lab's source: five students, from full marks to one that never ends."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import nbformat
from nbformat import NotebookNode
from nbgrader.utils import is_grade, is_solution

from autograder.course import Course, write
from autograder.labs import released
from autograder.sources import make_notebook

SOLUTION = re.compile(r"^([ \t]*)### BEGIN SOLUTION.*?### END SOLUTION[^\n]*$", re.DOTALL | re.MULTILINE)

Answer = Callable[[NotebookNode, int, int], str | None]


def raises(cell: NotebookNode) -> str:
    """The solution cell with an error where the solution stood."""
    error = 'raise RuntimeError("I do not know")'
    if not SOLUTION.search(cell.source):
        return error
    return SOLUTION.sub(lambda region: region[1] + error, cell.source)


ENDLESS = "while True:\n    pass"

# What each student writes into the n-th of `count` solution cells; None leaves the cell as it was handed out.
STUDENTS: dict[str, Answer] = {
    "ada": lambda cell, n, count: cell.source,
    "ben": lambda cell, n, count: cell.source if n < (count + 1) // 2 else None,
    "cleo": lambda cell, n, count: None,
    "dan": lambda cell, n, count: raises(cell) if n == 0 else cell.source,
    "eve": lambda cell, n, count: ENDLESS if n == count // 2 else cell.source,
}


def make(course: Course, lab: str, folder: Path) -> list[Path]:
    """Write every sample to `folder`, in nbgrader's layout; returns their paths."""
    source = nbformat.read(make_notebook(course, lab), as_version=4)
    solutions = [cell for cell in source.cells if cell.cell_type == "code" and is_solution(cell) and not is_grade(cell)]
    paths = []
    for student, answer in STUDENTS.items():
        notebook = nbformat.reads(released(course, lab), as_version=4)
        cells = {cell.id: cell for cell in notebook.cells}
        for n, solution in enumerate(solutions):
            text = answer(solution, n, len(solutions))
            if text is not None:
                cells[solution.id].source = text
        paths.append(folder / student / lab / f"{lab}.ipynb")
        write(paths[-1], nbformat.writes(notebook) + "\n")
    return paths
