"""A test that passed for one submission is not taken as passed for another that answers otherwise, or not at all."""

import pytest

from autograder import sandbox
from autograder.course import Course, write
from autograder.grade import grade
from autograder.limits import Limits
from autograder.samples import HandedOut

pytestmark = pytest.mark.skipif(sandbox.missing() is not None, reason=str(sandbox.missing()))

LAB = '''# %% nbgrader={"grade_id": "answer", "solution": true}
### BEGIN SOLUTION
answer = 42
### END SOLUTION

# %% nbgrader={"grade_id": "answer_check", "grade": true, "points": 1}
assert answer == 42

# %% nbgrader={"grade_id": "double", "solution": true}
def double(x):
    ### BEGIN SOLUTION
    return 2 * x
    ### END SOLUTION

# %% nbgrader={"grade_id": "double_check", "grade": true, "points": 2}
assert double(2) == 4

# %% nbgrader={"grade_id": "double_run", "grade": true, "points": 4}
twice = double(4)
assert isinstance(twice, int)

# %% nbgrader={"grade_id": "double_later", "grade": true, "points": 8}
assert twice == 8
'''

DOUBLE = "def double(x):\n    return 2 * x"

# By student, in the order in which they are graded: what they write, their points, and what they are told.
SUBMISSIONS = {
    "a right": ({"answer": "answer = 42", "double": DOUBLE}, 15, None),
    "b alike": ({"answer": "answer = 6 * 7", "double": "double = lambda x: x + x"}, 15, None),
    "c other value": ({"answer": "answer = 41", "double": DOUBLE}, 14, "AssertionError"),
    "d no function": ({"answer": "answer = 42", "double": "2 +"}, 1, "its cell ended with SyntaxError"),
    "e a value for a function": ({"answer": "answer = 42", "double": "double = 4"}, 1, "not callable"),
    "f a function for a value": ({"answer": "def answer():\n    return 42", "double": DOUBLE}, 14, ""),
    "g right in one": ({"answer": "answer = 42", "double": "def double(x):\n    return 4"}, 7, "AssertionError"),
    "h right again": ({"answer": "answer = 42", "double": "def double(x):\n    return x * 2"}, 15, None),
}


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory):
    course = Course.at(tmp_path_factory.mktemp("course"))
    write(course.root / "solutions" / "answers.py", LAB)
    handed_out = HandedOut(course, "answers")
    for student, (written, *_) in SUBMISSIONS.items():
        handed_out.hand_in(student, written)
    # One worker, so that it has learned from all that came before.
    return {outcome.student: outcome for outcome in grade(course, "answers", limits=Limits(cell=10.0), workers=1)}


@pytest.mark.parametrize("student", SUBMISSIONS)
def test_it_is_judged_by_its_own_answers(outcomes, student):
    _, points, told = SUBMISSIONS[student]
    outcome = outcomes[student]
    assert sum(outcome.points.values()) == points
    assert outcome.kind == "graded"
    if told is None:
        assert not outcome.why and not any(verdict.why for verdict in outcome.verdicts)
    else:
        assert told in " ".join(reason for verdict in outcome.verdicts for reason in verdict.why)
