"""Put a submission's test cells, points and kernel back to what the lab says, by nbgrader's own preprocessors."""

from __future__ import annotations

import nbformat
from nbformat import NotebookNode

from autograder.course import SANITISE, Course
from autograder.errors import NeedsPerson
from autograder.pipeline import preprocess


def sanitise(notebook: NotebookNode, course: Course, lab: str, student: str) -> NotebookNode:
    """The notebook as it will be run. Raises NeedsPerson where nbgrader can't put it right."""
    try:
        return nbformat.reads(preprocess(notebook, SANITISE, course, lab, student), as_version=4)
    except Exception as error:
        why = f"{type(error).__name__}: {error}".strip().split("\n")[0]
        raise NeedsPerson(f"its cells can't be matched with those of the lab: {why}") from error
