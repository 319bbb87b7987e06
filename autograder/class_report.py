"""The report about a class: a page that needs nothing but a browser, and the grades as CSV."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import nbformat
from nbgrader.api import MissingEntry
from nbgrader.utils import is_grade, is_solution

from autograder import similar, tables
from autograder.class_page import page
from autograder.course import Course, write
from autograder.errors import CourseError
from autograder.judge.lab import Exercise, Lab
from autograder.labs import released
from autograder.outcome import GRADED, PERSON, Outcome
from autograder.sources import make_notebook
from autograder.statistics import Row


def make(course: Course, lab: str) -> list[Path]:
    """Write the report of what has been graded of `lab`; returns its files. Raises CourseError where nothing has been."""
    read = Lab.read(lab, make_notebook(course, lab))
    rows = found(course, lab, read.exercises)
    if not rows:
        raise CourseError(f"nothing of {lab} has been graded in {course.grades}: first `python -m autograder grade {lab}`")
    pairs = similar.pairs(*code(course, lab, [row.student for row in rows]))
    folder = course.grades / "reports" / lab
    files = {"index.html": page(lab, read.exercises, rows, pairs, unsafe(course, lab, rows)),
             "grades.csv": tables.grades(read.exercises, rows),
             "canvas.csv": tables.canvas(lab, read.exercises, rows),
             "moodle.csv": tables.moodle(lab, rows)}
    for name, text in files.items():
        write(folder / name, text)
    return [folder / name for name in files]


# -- what is known --------------------------------------------------------------------------------------------------------

def found(course: Course, lab: str, exercises: Sequence[Exercise]) -> list[Row]:
    """Every student with an outcome; points are the gradebook's, so that what a person gave counts."""
    rows = []
    with course.gradebook() as gradebook:
        for path in sorted((course.grades / "outcomes" / lab).glob("*.json")):
            outcome = Outcome.load(path)
            try:
                submission = outcome and gradebook.find_submission(lab, outcome.student)
            except MissingEntry:
                submission = None
            if submission is not None:
                rows.append(row(outcome, submission, exercises))
    return rows


def row(outcome: Outcome, submission, exercises: Sequence[Exercise]) -> Row:
    grades = {grade.name: grade for part in submission.notebooks for grade in part.grades}
    points = {exercise.name: earned([grades.get(name) for name in exercise.points]) for exercise in exercises}
    why = {verdict.exercise: verdict.why for verdict in outcome.verdicts if verdict.why}
    if not outcome.verdicts:
        why = {"all": outcome.why}
    student = submission.student
    name = ", ".join(filter(None, (student.last_name, student.first_name)))
    kind = outcome.kind if outcome.kind != PERSON or submission.needs_manual_grade else GRADED
    return Row(outcome.student, kind, points, submission.score - submission.late_submission_penalty, why, outcome.notes,
               name, student.email or "", student.lms_user_id or "")


def earned(grades: list) -> float | None:
    """The points of an exercise; None while a person has to give some."""
    if any(grade is None or grade.needs_manual_grade for grade in grades):
        return None
    return sum(grade.score for grade in grades)


def code(course: Course, lab: str, students: Sequence[str]) -> tuple[dict, dict, dict]:
    """What each student wrote by exercise, what they were given, and the reference's."""
    notebooks = {student: course.autograded(lab, student) for student in students}
    return ({student: solutions(nbformat.read(path, as_version=4)) for student, path in notebooks.items() if path.exists()},
            solutions(nbformat.reads(released(course, lab), as_version=4)),
            solutions(nbformat.read(make_notebook(course, lab), as_version=4)))


def solutions(notebook: nbformat.NotebookNode) -> dict[str, str]:
    return {cell.metadata.nbgrader.grade_id: cell.source for cell in notebook.cells
            if cell.cell_type == "code" and is_solution(cell) and not is_grade(cell)}


def unsafe(course: Course, lab: str, rows: Sequence[Row]) -> bool:
    """Whether any of them was graded without a sandbox."""
    paths = [path for row in rows if (path := course.autograded(lab, row.student)).exists()]
    return any(nbformat.read(path, as_version=4).metadata.get("outcome", {}).get("unsafe") for path in paths)
