"""Grades as CSV: one table to read, and the forms that Canvas and Moodle import.

Texts in them may have been written by students. A spreadsheet would run one that begins like a formula, so it gets an
apostrophe in front.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence

from autograder.judge.lab import Exercise
from autograder.outcome import PERSON
from autograder.statistics import Row


def grades(exercises: Sequence[Exercise], rows: Sequence[Row]) -> str:
    """Every student's points by exercise, outcome and reasons."""
    head = ["student", "outcome", *(exercise.name for exercise in exercises), "total", "of", "why"]
    most = sum(exercise.most for exercise in exercises)
    return table([head, *([row.student, row.kind, *(row.points.get(exercise.name) for exercise in exercises),
                           row.total, most, reasons(row)] for row in rows)])


def canvas(lab: str, exercises: Sequence[Exercise], rows: Sequence[Row]) -> str:
    """Canvas, Gradebook > Import: its five columns about the student, then the assignment; the second line is its points.

    Who has to be looked at by a person gets no grade, and Canvas leaves theirs as it is.
    """
    most = sum(exercise.most for exercise in exercises)
    head = ["Student", "ID", "SIS User ID", "SIS Login ID", "Section", lab]
    return table([head, ["    Points Possible", "", "", "", "", most],
                  *([row.name or row.student, row.lms, "", row.student, "", grade(row)] for row in rows)])


def moodle(lab: str, rows: Sequence[Row]) -> str:
    """Moodle, Grades > Import > CSV file: map "Username" to the user, and the last two columns to grade and feedback."""
    return table([["Username", "Email address", lab, f"{lab} feedback"],
                  *([row.student, row.email, grade(row), reasons(row)] for row in rows)])


def grade(row: Row) -> float | None:
    return None if row.kind == PERSON else row.total


def reasons(row: Row) -> str:
    """What the tests said, an exercise a line."""
    return "\n".join(f"{name}: {'; '.join(said)}" for name, said in row.why.items() if said)


def table(rows: Iterable[Sequence[object]]) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows([harmless(value) for value in row] for row in rows)
    return text.getvalue()


def harmless(value: object) -> object:
    """A value that no spreadsheet takes for a formula; numbers in their shortest form."""
    if isinstance(value, str):
        return f"'{value}" if value[:1] in ("=", "+", "-", "@", "\t", "\r") else value
    return f"{value:g}" if isinstance(value, float) else value
