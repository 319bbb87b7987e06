"""Write what came out into nbgrader's gradebook and folders. Only one process writes."""

from __future__ import annotations

import warnings
from datetime import datetime

import nbformat
from nbconvert.exporters import HTMLExporter
from nbformat import NotebookNode
from nbgrader.api import Gradebook
from nbgrader.converters import GenerateFeedback
from nbgrader.coursedir import CourseDirectory
from sqlalchemy.exc import SAWarning
from traitlets.config import Config

from autograder.course import RECORD, Course, write
from autograder.errors import CourseError
from autograder.labs import released
from autograder.outcome import PERSON, Outcome
from autograder.pipeline import preprocess


def register(course: Course, lab: str) -> None:
    """Enter a lab with its cells and points into the gradebook.

    nbgrader doesn't change the cells of a lab that has been graded. Where they have changed, the lab is entered anew, and
    so all its submissions are graded anew, unless that would drop what a person wrote.
    """
    with course.gradebook() as gradebook:
        gradebook.update_or_create_assignment(lab)
    try:
        released(course, lab, Config())
    except RuntimeError as error:
        with course.gradebook() as gradebook:
            if _written_by_hand(gradebook, lab):
                raise CourseError(f"the exercises of {lab} have changed since people wrote grades or comments into "
                                  f"{course.db_url}; grade into another folder with --grades") from error
            gradebook.remove_assignment(lab)
        register(course, lab)


def _written_by_hand(gradebook: Gradebook, lab: str) -> bool:
    parts = [part for submission in gradebook.assignment_submissions(lab) for part in submission.notebooks]
    return any(grade.manual_score is not None or grade.extra_credit for part in parts for grade in part.grades) \
        or any(comment.manual_comment for part in parts for comment in part.comments)


def record(course: Course, lab: str, outcome: Outcome, notebook: NotebookNode | None, handed_in: datetime | None) -> None:
    """Enter one outcome. The file of the outcome comes last: without it the submission is graded again.

    notebook: as it was run; None when a person is needed.
    """
    student = outcome.student
    with course.gradebook() as gradebook:
        gradebook.update_or_create_student(student)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", SAWarning)  # nbgrader reads the new rows before it adds them, which does no harm
            submission = gradebook.update_or_create_submission(lab, student, timestamp=handed_in)
        if outcome.kind == PERSON:
            for grade in (grade for part in submission.notebooks for grade in part.grades):
                grade.auto_score, grade.needs_manual_grade = None, True
            gradebook.db.commit()
    if notebook is None:
        course.autograded(lab, student).unlink(missing_ok=True)
        course.feedback(lab, student).unlink(missing_ok=True)
    else:
        text = preprocess(notebook, RECORD, course, lab, student)
        write(course.autograded(lab, student), text)
        write(course.feedback(lab, student), _feedback(course, lab, student, text))
    outcome.save(course.outcome(lab, student))


def _feedback(course: Course, lab: str, student: str, autograded: str) -> str:
    """nbgrader's own feedback page."""
    converter = GenerateFeedback(coursedir=CourseDirectory(config=course.config()), config=course.config())
    return preprocess(nbformat.reads(autograded, as_version=4), converter.preprocessors, course, lab, student,
                      config=converter.config, exporter=HTMLExporter)
