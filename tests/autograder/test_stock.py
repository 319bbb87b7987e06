"""Honest submissions get the score that `nbgrader autograde` gives them, on every lab."""

import os
import shutil
from random import Random

import pytest
from tiny_course import ROOT

from autograder import bench, samples, sandbox
from autograder.course import Course
from autograder.grade import grade, lab_exercises
from autograder.limits import Limits

pytestmark = pytest.mark.skipif(sandbox.missing() is not None, reason=str(sandbox.missing()))

LABS = sorted(path.stem for path in (ROOT / "solutions").glob("*.py"))
SAMPLE = LABS if os.environ.get("SWEEP") else ["memory", "zero"]  # stock nbgrader is slow; `make sweep` takes every lab
LENIENT = Limits(cell=600, submission=3600)  # nothing is cut off because the machine is busy


@pytest.fixture
def course(tmp_path) -> Course:
    course = Course.at(tmp_path)
    shutil.copytree(ROOT / "solutions", course.root / "solutions", ignore=shutil.ignore_patterns("*.ipynb"))
    return course


def scores(course: Course, lab: str) -> dict[str, float]:
    """Those that nbgrader gives; ours are the same."""
    _, expected = bench.stock(course, lab)
    assert {outcome.student: outcome.total for outcome in grade(course, lab, limits=LENIENT, workers=2)} == expected
    return expected


@pytest.mark.parametrize("lab", SAMPLE)
def test_who_solved_some_exercises_gets_the_score_of_nbgrader(lab, course):
    exercises = lab_exercises(course, lab)
    solved = Random(lab).sample(exercises, 3)
    handed_out = samples.HandedOut(course, lab)
    handed_out.hand_in("some", {exercise.name: handed_out.solutions[exercise.name] for exercise in solved})
    assert scores(course, lab) == {"some": sum(exercise.most for exercise in solved)}


@pytest.mark.skipif(not os.environ.get("SWEEP"), reason="takes long: SWEEP=1 runs it")
@pytest.mark.parametrize("lab", LABS)
def test_a_class_gets_the_scores_of_nbgrader(lab, course):
    """The reference, the lab as it was handed out, those of the samples that end, and six that solve a part by lot."""
    bench.hand_in(course, lab, 6)
    samples.make(course, lab, course.submitted)
    shutil.rmtree(course.submitted / "eve")  # which never ends
    found = scores(course, lab)
    assert (found["ada"], found["cleo"]) == (sum(exercise.most for exercise in lab_exercises(course, lab)), 0)
