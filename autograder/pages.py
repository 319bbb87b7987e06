"""What is kept of a judged notebook: its file, as nbgrader's formgrader reads it, and the student's feedback."""

from __future__ import annotations

from functools import cache

import nbformat
from nbconvert.exporters import HTMLExporter
from nbformat import NotebookNode
from nbgrader.converters import GenerateFeedback
from nbgrader.coursedir import CourseDirectory
from nbgrader.preprocessors import ClearHiddenTests, NbGraderPreprocessor
from nbgrader.utils import is_grade, is_solution

from autograder.course import Course
from autograder.outcome import Outcome


class Scores(NbGraderPreprocessor):
    """Puts the points of an outcome where nbgrader's feedback page looks for them; `GetGrades` asks the gradebook."""

    def preprocess(self, nb: NotebookNode, resources: dict) -> tuple[NotebookNode, dict]:
        points = resources["points"]
        for cell in nb.cells:
            if is_solution(cell):
                cell.metadata.nbgrader.comment = None
            if is_grade(cell):
                cell.metadata.nbgrader.score = points.get(cell.metadata.nbgrader.grade_id) or 0.0
        most = sum(cell.metadata.nbgrader.points for cell in nb.cells if is_grade(cell))
        about = {"score": sum(filter(None, points.values())), "max_score": most, "late_penalty": 0}
        resources["nbgrader"].update(about)
        return nb, resources


@cache
def exporter(course: Course) -> HTMLExporter:
    """nbgrader's own, with hidden tests left out of it; made once, because that takes long."""
    config = course.config()
    converter = GenerateFeedback(coursedir=CourseDirectory(config=config), config=config)
    settings = converter.config.copy()
    settings.Exporter.default_preprocessors = []
    made = HTMLExporter(config=settings)
    for step in (Scores, ClearHiddenTests, *[step for step in converter.preprocessors if step.__name__ != "GetGrades"]):
        made.register_preprocessor(step, enabled=True)
    return made


def graded_notebook(notebook: NotebookNode) -> str:
    """The text of the notebook's file, in the folder `autograded`."""
    return nbformat.writes(notebook) + "\n"


def feedback_page(text: str, outcome: Outcome, course: Course, lab: str) -> str:
    """The page that a student gets."""
    about = {"student": outcome.student, "assignment": lab, "notebook": lab, "db_url": course.db_url}
    page, _ = exporter(course).from_notebook_node(nbformat.reads(text, as_version=4), resources={
        "unique_key": lab, "nbgrader": about, "points": outcome.points})
    return page
