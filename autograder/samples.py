"""Submissions to try the grading with, made from a lab's source: five students, from full marks to one that never ends."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path

import nbformat
from nbformat import NotebookNode
from nbgrader.utils import is_grade, is_solution

from autograder.course import Course, write
from autograder.labs import released
from autograder.sources import make_notebook

SOLUTION = re.compile(r"^([ \t]*)### BEGIN SOLUTION.*?### END SOLUTION[^\n]*$", re.DOTALL | re.MULTILINE)

Answer = Callable[[str, int, int], str | None]


def raises(solution: str) -> str:
    """The solution cell with an error where the solution stood."""
    error = 'raise RuntimeError("I do not know")'
    if not SOLUTION.search(solution):
        return error
    return SOLUTION.sub(lambda region: region[1] + error, solution)


ENDLESS = "while True:\n    pass"

# What each student writes into the n-th of `count` solution cells; None leaves the cell as it was handed out.
STUDENTS: dict[str, Answer] = {
    "ada": lambda solution, n, count: solution,
    "ben": lambda solution, n, count: solution if n < (count + 1) // 2 else None,
    "cleo": lambda solution, n, count: None,
    "dan": lambda solution, n, count: raises(solution) if n == 0 else solution,
    "eve": lambda solution, n, count: ENDLESS if n == count // 2 else solution,
}


class HandedOut:
    """A lab as students get it, to be filled in.  solutions: the reference's code, by the ids of its cells."""

    def __init__(self, course: Course, lab: str):
        self.course, self.lab, self.text = course, lab, released(course, lab)
        cells = nbformat.read(make_notebook(course, lab), as_version=4).cells
        self.solutions = {cell.id: cell.source for cell in cells
                          if cell.cell_type == "code" and is_solution(cell) and not is_grade(cell)}

    def filled(self, answers: Mapping[str, str]) -> NotebookNode:
        """With what `answers` holds in the cells of these ids."""
        notebook = nbformat.reads(self.text, as_version=4)
        for cell in notebook.cells:
            cell.source = answers.get(cell.id, cell.source)
        return notebook

    def hand_in(self, student: str, answers: Mapping[str, str], folder: Path | None = None) -> Path:
        """Write a student's file to `folder`, or among the submissions of the course."""
        path = (folder or self.course.submitted) / student / self.lab / f"{self.lab}.ipynb"
        write(path, nbformat.writes(self.filled(answers)) + "\n")
        return path


def make(course: Course, lab: str, folder: Path) -> list[Path]:
    """Write every sample to `folder`, in nbgrader's layout; returns their paths."""
    handed_out, paths = HandedOut(course, lab), []
    count = len(handed_out.solutions)
    for student, answer in STUDENTS.items():
        answers = {name: answer(text, n, count) for n, (name, text) in enumerate(handed_out.solutions.items())}
        written = {name: text for name, text in answers.items() if text is not None}
        paths.append(handed_out.hand_in(student, written, folder))
    return paths
