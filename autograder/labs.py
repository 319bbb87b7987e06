"""The released labs: `labs/LAB/LAB.ipynb`, made from the sources by nbgrader's own preprocessors."""

from __future__ import annotations

from pathlib import Path

import nbformat
from nbgrader.converters import GenerateAssignment
from nbgrader.coursedir import CourseDirectory
from nbgrader.utils import compute_checksum, is_solution
from traitlets.config import Config

from autograder.course import Course, write
from autograder.pipeline import preprocess
from autograder.sources import make_notebook

NO_DATABASE = Config({"SaveCells": {"enabled": False}})


def released(course: Course, lab: str, config: Config = NO_DATABASE) -> str:
    """The text of the lab that students get: no solutions, no hidden tests."""
    notebook = nbformat.read(make_notebook(course, lab), as_version=4)
    steps = GenerateAssignment(coursedir=CourseDirectory(config=course.config())).preprocessors
    return preprocess(notebook, steps, course, lab, config=config)


def make(course: Course, lab: str) -> str:
    """Bring one released lab up to date; says what was done: "made", "unchanged" or "kept"."""
    path, text = course.release(lab), released(course, lab)
    if path.exists():
        if path.read_text(encoding="utf-8") == text:
            return "unchanged"
        if holds_answers(path):
            return "kept"
    write(path, text)
    return "made"


def holds_answers(path: Path) -> bool:
    """Whether somebody has worked in this lab. A released solution cell carries the checksum of its empty form."""
    try:
        cells = nbformat.read(path, as_version=4).cells
    except Exception:  # whatever this is, it isn't a released lab, and may be somebody's work
        return True
    return any(is_solution(cell) and cell.metadata.nbgrader.get("checksum") != compute_checksum(cell) for cell in cells)
