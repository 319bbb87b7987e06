"""Write what came out into nbgrader's gradebook and folders. Only one process writes."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import replace

from nbgrader.api import Gradebook
from sqlalchemy.exc import SAWarning
from traitlets.config import Config

from autograder.course import Course, write
from autograder.errors import CourseError
from autograder.labs import released
from autograder.outcome import PERSON, Outcome
from autograder.work import Result


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
                                  f"{course.gradebook_name}; grade into another folder with --grades") from error
            gradebook.remove_assignment(lab)
        register(course, lab)


def _written_by_hand(gradebook: Gradebook, lab: str) -> bool:
    parts = [part for submission in gradebook.assignment_submissions(lab) for part in submission.notebooks]
    return any(grade.manual_score is not None or grade.extra_credit for part in parts for grade in part.grades) \
        or any(comment.manual_comment for part in parts for comment in part.comments)


class Recorder:
    """Enters outcomes of one lab, for a `with` block."""

    def __init__(self, course: Course, lab: str):
        self.course, self.lab = course, lab

    def __enter__(self) -> Recorder:
        register(self.course, self.lab)
        self.gradebook = self.course.gradebook().__enter__()
        entered = self.gradebook.assignment_submissions(self.lab)
        self.entered = {submission.student_id for submission in entered}
        return self

    def __exit__(self, *_: object) -> None:
        self.gradebook.close()

    def digest(self, student: str) -> str | None:
        """Of the last outcome of this student; None where there is none in the gradebook."""
        outcome = Outcome.load(self.course.outcome(self.lab, student)) if student in self.entered else None
        return outcome.digest if outcome else None

    def record(self, result: Result, exercises: Sequence[str] = ()) -> None:
        """Enter one outcome. The file of the outcome comes last: without it the submission is graded again.

        exercises: where they are given, all others keep the verdict that they had.
        """
        student = result.outcome.student
        before = Outcome.load(self.course.outcome(self.lab, student)) if exercises else None
        if before is not None and before.verdicts and result.outcome.verdicts:
            result = replace(result, outcome=result.outcome.keeping(before, exercises))
        self._enter(result)
        for path, text in ((self.course.autograded(self.lab, student), result.notebook),
                           (self.course.feedback(self.lab, student), result.page)):
            if text is None:
                path.unlink(missing_ok=True)
            else:
                write(path, text)
        result.outcome.save(self.course.outcome(self.lab, student))

    def _enter(self, result: Result) -> None:
        """The points of every graded cell, in one transaction."""
        outcome = result.outcome
        kinds = {name: verdict.kind for verdict in outcome.verdicts for name in verdict.points}
        self.gradebook.update_or_create_student(outcome.student)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", SAWarning)  # nbgrader reads the new rows before it adds them, which does no harm
            submission = self.gradebook.update_or_create_submission(self.lab, outcome.student, timestamp=result.handed_in)
        for grade in (grade for part in submission.notebooks for grade in part.grades):
            grade.auto_score = outcome.points.get(grade.name)
            grade.needs_manual_grade = kinds.get(grade.name, PERSON) == PERSON and grade.manual_score is None
        self.gradebook.db.commit()


