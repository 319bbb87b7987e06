"""Workers and the grader itself are killed at random: every submission has its outcome, once, the one it has undisturbed."""

import dataclasses
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from itertools import product
from random import Random

import postgresql
import psutil
import pytest
from tiny_course import ROOT, new_course

from autograder import sandbox
from autograder.course import Course
from autograder.grade import grade
from autograder.outcome import Outcome
from autograder.samples import HandedOut

pytestmark = pytest.mark.skipif(sandbox.missing() is not None, reason=str(sandbox.missing()))

SUBMISSIONS, KILLS = (300, 30) if os.environ.get("SWEEP") else (24, 3)  # `make sweep` takes the whole class
SOLVED = list(product((True, False), repeat=3))  # which of the three exercises
EXERCISES = ("double", "warn", "count")
SLOW = 600  # s, a guard against a hang


def hand_in(course: Course, number: int) -> None:
    """`number` submissions: every way to solve some of the exercises, in turn."""
    handed_out = HandedOut(course, "tiny")
    for index in range(number):
        solved = zip(EXERCISES, SOLVED[index % len(SOLVED)], strict=True)
        handed_out.hand_in(f"student-{index:03}", {name: handed_out.solutions[name] if right else f"# {index}"
                                                   for name, right in solved})


class Grading:
    """`python -m autograder grade`, started again whenever it was killed."""

    def __init__(self, course: Course, workers: int):
        self.course, self.folder = course, course.grades / "outcomes" / "tiny"
        self.arguments = ["grade", "tiny", "--workers", str(workers)]
        if course.database:
            self.arguments += ["--database", course.database]
        self.start()

    def start(self) -> None:
        root = str(self.course.root)
        code = f"import pathlib, autograder.__main__ as it; it.ROOT = pathlib.Path({root!r}); exit(it.main())"
        self.process = subprocess.Popen([sys.executable, "-c", code, *self.arguments], cwd=ROOT,
                                        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    @property
    def done(self) -> int:
        return len(list(self.folder.glob("*.json")))

    def until(self, number: int) -> None:
        """Wait until so many outcomes are there."""
        deadline = time.monotonic() + SLOW
        while self.done < number:
            assert time.monotonic() < deadline and self.process.poll() is None
            time.sleep(0.01)

    def workers(self) -> list[psutil.Process]:
        """The processes that grade: children of the grader, and of the server that forks those that come in their place."""
        found = []
        for child in psutil.Process(self.process.pid).children():
            with suppress(psutil.NoSuchProcess):  # one that has just been killed
                command = " ".join(child.cmdline())
                if "multiprocessing.forkserver" in command:
                    found += child.children()
                elif "multiprocessing.resource_tracker" not in command:
                    found.append(child)
        return found

    def kill_one(self, chance: Random, grader: bool) -> str:
        """Kill the grader, or one of its workers."""
        workers = self.workers()
        if grader or not workers:
            self.process.kill()
            self.process.wait()
            self.start()
            return "grader"
        chance.choice(workers).kill()
        return "worker"


@pytest.fixture(params=["SQLite", "PostgreSQL"])
def database(request) -> Iterator[str | None]:
    """The URL of an empty gradebook; None for the file that is the default."""
    if request.param == "SQLite":
        yield None
        return
    if postgresql.missing():
        pytest.skip(postgresql.missing())
    with postgresql.server() as url:
        yield url


def test_kills_change_nothing(tmp_path, database):
    for name in ("calm", "stormy"):
        (tmp_path / name).mkdir()
    calm, stormy = new_course(tmp_path / "calm"), dataclasses.replace(new_course(tmp_path / "stormy"), database=database)
    hand_in(calm, len(SOLVED))
    expected = [outcome.points for outcome in grade(calm, "tiny", workers=2)]
    assert len({tuple(points.values()) for points in expected}) == len(SOLVED)

    hand_in(stormy, SUBMISSIONS)
    chance = Random(300)
    grading = Grading(stormy, workers=8 if database else 2)
    try:
        killed = []
        for number in sorted(chance.sample(range(2, SUBMISSIONS - 2), KILLS)):
            grading.until(number)
            killed.append(grading.kill_one(chance, grader=len(killed) % 3 == 1))
        assert grading.process.wait(SLOW) == 0
    finally:
        grading.process.kill()
        grading.process.wait()
    assert set(killed) == {"grader", "worker"} and len(killed) == KILLS

    names = [f"student-{index:03}" for index in range(SUBMISSIONS)]
    found = [Outcome.load(stormy.outcome("tiny", name)) for name in names]
    assert grading.done == SUBMISSIONS and [outcome.student for outcome in found] == names
    assert [outcome.points for outcome in found] == [expected[index % len(SOLVED)] for index in range(SUBMISSIONS)]
    with stormy.gradebook() as gradebook:
        entered = [(submission.student_id, submission.score) for submission in gradebook.assignment_submissions("tiny")]
    assert sorted(entered) == [(outcome.student, outcome.total) for outcome in found]
