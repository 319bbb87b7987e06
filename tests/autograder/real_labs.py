"""The labs of this course, and a judge for each."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

from autograder.course import Course
from autograder.judge.lab import Lab
from autograder.judge.submission import Judge, Judged
from autograder.limits import Limits
from autograder.rebuild import rebuild
from autograder.samples import HandedOut
from autograder.sources import make_notebook
from mlsyslab.check.inputs import SEED

ROOT = Path(__file__).parents[2]
LABS = sorted(path.stem for path in (ROOT / "solutions").glob("*.py"))
LIMITS = Limits(cell=60.0, submission=300.0)  # nothing is cut off because the machine is busy


@contextmanager
def judging(name: str, folder: Path, patch: pytest.MonkeyPatch
            ) -> Iterator[tuple[HandedOut, Callable[[Mapping[str, str]], Judged]]]:
    """A lab, and a function that judges it with these answers."""
    patch.setenv(SEED, "")  # a judge sets it for its own process; here it is to be gone afterwards
    (folder / "solutions").mkdir()
    shutil.copy(ROOT / "solutions" / f"{name}.py", folder / "solutions")
    course = Course.at(folder)
    lab, handed_out = Lab.read(name, make_notebook(course, name)), HandedOut(course, name)
    judge = Judge(lab, LIMITS, "a secret seed")
    try:
        yield handed_out, lambda answers: judge.judge(rebuild(handed_out.filled(answers), lab, handed_out.filled({})))
    finally:
        judge.close()
