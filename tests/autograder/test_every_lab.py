"""The labs of this course through the real grader: what solves them gets all points, what is handed out gets none."""

from __future__ import annotations

import pytest
from real_labs import LABS, judging

from autograder import sandbox
from autograder.outcome import GRADED

pytestmark = pytest.mark.skipif(sandbox.missing() is not None, reason=str(sandbox.missing()))


@pytest.mark.parametrize("lab", LABS)
def test_the_reference_gets_all_points_and_what_is_handed_out_none(lab, tmp_path, monkeypatch):
    with judging(lab, tmp_path, monkeypatch) as (handed_out, judge):
        solved, empty = judge(handed_out.solutions), judge({})
    assert not solved.limits and {verdict.kind for verdict in solved.verdicts} == {GRADED}
    assert [(verdict.exercise, why) for verdict in solved.verdicts for why in verdict.why] == []
    assert sum(sum(verdict.points.values()) for verdict in solved.verdicts) == 100
    assert not empty.limits and {verdict.kind for verdict in empty.verdicts} == {GRADED}
    assert not any(sum(verdict.points.values()) for verdict in empty.verdicts)
    for verdict in empty.verdicts:
        assert f"{verdict.exercise} is not written yet" in verdict.why[0]
