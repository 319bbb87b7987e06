"""The labs of this course through the real grader: what solves them gets all points, what is handed out gets none."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from autograder import sandbox
from autograder.course import Course
from autograder.judge.lab import Lab
from autograder.judge.submission import Judge
from autograder.limits import Limits
from autograder.outcome import GRADED
from autograder.rebuild import rebuild
from autograder.samples import HandedOut
from autograder.sources import make_notebook
from mlsyslab.check.inputs import SEED

ROOT = Path(__file__).parents[2]
LABS = sorted(path.stem for path in (ROOT / "solutions").glob("*.py"))
LIMITS = Limits(cell=60.0, submission=300.0)  # nothing is cut off because the machine is busy

pytestmark = pytest.mark.skipif(sandbox.missing() is not None, reason=str(sandbox.missing()))


@pytest.fixture(params=LABS)
def grading(request, tmp_path, monkeypatch):
    """The lab, and a function that judges it with these answers."""
    monkeypatch.setenv(SEED, "")  # a judge sets it for its own process; here it is to be gone afterwards
    name = request.param
    (tmp_path / "solutions").mkdir()
    shutil.copy(ROOT / "solutions" / f"{name}.py", tmp_path / "solutions")
    course = Course.at(tmp_path)
    lab, handed_out = Lab.read(name, make_notebook(course, name)), HandedOut(course, name)
    judge = Judge(lab, LIMITS, "a secret seed")
    yield handed_out, lambda answers: judge.judge(rebuild(handed_out.filled(answers), lab, handed_out.filled({})))
    judge.close()


def test_the_reference_gets_all_points_and_what_is_handed_out_none(grading):
    lab, judged = grading
    solved = judged(lab.solutions)
    assert not solved.limits and {verdict.kind for verdict in solved.verdicts} == {GRADED}
    assert [(verdict.exercise, why) for verdict in solved.verdicts for why in verdict.why] == []
    assert sum(sum(verdict.points.values()) for verdict in solved.verdicts) == 100
    empty = judged({})
    assert not empty.limits and {verdict.kind for verdict in empty.verdicts} == {GRADED}
    assert not any(sum(verdict.points.values()) for verdict in empty.verdicts)
    for verdict in empty.verdicts:
        assert f"{verdict.exercise} is not written yet" in verdict.why[0]
