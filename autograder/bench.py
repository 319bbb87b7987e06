"""Submissions graded a minute, against `nbgrader autograde` on the same honest ones, and how that grows with workers."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

from nbgrader.api import Gradebook

from autograder.course import Course, write
from autograder.samples import HandedOut

ROOT = Path(__file__).resolve().parents[1]
LAB, SUBMISSIONS = "collectives", 40
STOCK = """c = get_config()
c.CourseDirectory.source_directory = "solutions"
c.CourseDirectory.submitted_directory = "grades/submitted"
c.ExecutePreprocessor.timeout = 600
"""


def rows() -> Iterator[dict[str, Any]]:
    with tempfile.TemporaryDirectory(prefix="grading-") as folder:
        course = Course.at(Path(folder))
        shutil.copytree(ROOT / "solutions", course.root / "solutions", ignore=shutil.ignore_patterns("*.ipynb"))
        hand_in(course)
        seconds, expected = stock(course)
        slow = 60 * SUBMISSIONS / seconds
        yield {"grader": "nbgrader autograde", "workers": 1, "submissions": SUBMISSIONS, "s": seconds, "a minute": slow}
        for workers in counts(os.cpu_count() or 1):
            seconds, scores = ours(course, workers)
            rate = 60 * SUBMISSIONS / seconds
            yield {"grader": "this one", "workers": workers, "submissions": SUBMISSIONS, "s": seconds, "a minute": rate,
                   "times nbgrader": rate / slow, "same scores": scores == expected}


def counts(cores: int) -> list[int]:
    """1, 2, 4, … and as many as there are cores."""
    return sorted({*(1 << k for k in range(cores.bit_length()) if 1 << k <= cores), cores})


def hand_in(course: Course, lab: str = LAB, count: int = SUBMISSIONS) -> None:
    """Honest submissions: each solves the exercises that it came to, from all to a third of them, by lot."""
    handed_out, chance = HandedOut(course, lab), Random(lab)
    for number in range(count):
        share = chance.uniform(0.33, 1.2)
        solved = {name: text for name, text in handed_out.solutions.items() if chance.random() < share}
        handed_out.hand_in(f"student-{number:02}", solved)


def stock(course: Course, lab: str = LAB) -> tuple[float, dict[str, float]]:
    """Seconds and scores of nbgrader's own autograder, with nothing but the folders told to it."""
    write(course.root / "nbgrader_config.py", STOCK)
    nbgrader(course, "generate_assignment", lab)
    start = time.perf_counter()
    nbgrader(course, "autograde", lab)
    return time.perf_counter() - start, scores(f"sqlite:///{course.root / 'gradebook.db'}", lab)


def nbgrader(course: Course, *arguments: str) -> None:
    command = [str(Path(sys.executable).with_name("nbgrader")), *arguments]
    path = os.pathsep.join((str(Path(sys.executable).parent), os.environ.get("PATH", "")))  # it calls alembic by its name
    subprocess.run(command, cwd=course.root, check=True, capture_output=True, env={**os.environ, "PATH": path})


def ours(course: Course, workers: int) -> tuple[float, dict[str, float]]:
    """The same of `python -m autograder grade`, from an empty gradebook."""
    fresh = Course.at(ROOT, course.root / f"grades-{workers}")
    command = [sys.executable, "-m", "autograder", "grade", LAB, "--submissions", str(course.submitted), "--grades",
               str(fresh.grades), "--workers", str(workers), "--cell-seconds", "600", "--seconds", "3600"]
    start = time.perf_counter()
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    return time.perf_counter() - start, scores(fresh.db_url)


def scores(url: str, lab: str = LAB) -> dict[str, float]:
    with Gradebook(url) as gradebook:
        return {submission.student_id: submission.score for submission in gradebook.assignment_submissions(lab)}
