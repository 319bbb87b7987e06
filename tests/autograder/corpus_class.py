"""The corpus as a class that hands in, how it is graded, and how each submission has to end."""

import os
import shutil
from collections.abc import Iterable
from pathlib import Path
from unittest.mock import patch

import corpus
from corpus import ADVERSARIAL, EXERCISES, HONEST_BUT_ODD, LAB

from autograder.course import Course
from autograder.grade import grade
from autograder.limits import Limits
from autograder.outcome import GRADED, Outcome
from autograder.samples import HandedOut

HARD = Limits(cell=4.0, submission=30.0, memory=1 << 30, disk=32 << 20, output=50_000, processes=128)
SOFT = Limits(cell=60.0, submission=300.0)  # nothing honest is cut off because the machine is busy
CASES = ADVERSARIAL | HONEST_BUT_ODD
SEED = "the-secret-seed-of-the-corpus"


def corpus_course(root: Path, names: Iterable[str] = CASES) -> Course:
    """A class: these cases, and an honest student before and after them."""
    course = Course.at(root)
    (course.root / "solutions").mkdir()
    shutil.copy(corpus.SOURCE, course.root / "solutions" / f"{LAB}.py")
    lab = HandedOut(course, LAB)
    for student in ("aaa", "zzz"):
        lab.hand_in(student, lab.solutions)
    for name in names:
        folder = course.submitted / name / LAB
        folder.mkdir(parents=True)
        CASES[name].write(folder, lab.filled({exercise: lab.solutions[exercise] for exercise in CASES[name].solved}))
    return course


def grade_corpus(course: Course, names: Iterable[str] = CASES, **where: object) -> dict[str, Outcome]:
    """How each ended, by name. Adversarial ones are graded with narrow limits.  where: see `grade`."""
    hostile, odd = ([name for name in names if name in some] for some in (ADVERSARIAL, HONEST_BUT_ODD))
    with patch.dict(os.environ, MLSYSLAB_SEED=SEED):
        ended = grade(course, LAB, limits=HARD, students=["aaa", *hostile, "zzz"], **where)
        if odd:
            ended = grade(course, LAB, limits=SOFT, students=odd, **where)
    assert len(ended) == len({outcome.student for outcome in ended})
    return {outcome.student: outcome for outcome in ended}


def points(outcome: Outcome) -> tuple[float, ...] | None:
    return tuple(outcome.points[f"{name}_test"] for name in EXERCISES) if outcome.points else None


def check(outcome: Outcome) -> None:
    """No adversarial submission gains a point, no honest one loses one, and each ends as it has to."""
    case = CASES.get(outcome.student)
    if case is None or outcome.student in HONEST_BUT_ODD:
        assert (points(outcome), outcome.kind) == (case.points if case else (4, 3, 3), GRADED), outcome
        return
    assert (points(outcome) is None) == (case.points is None), outcome
    assert all(came <= earned for came, earned in zip(points(outcome) or (), case.points or (), strict=True)), outcome
    assert outcome.kind in case.kinds and case.why in " ".join(outcome.why), outcome
