"""Where the system allows no namespaces within those of a sandbox, each submission gets a sandbox of its own."""

import pytest
from corpus_class import HARD, SEED, check, corpus_course

from autograder import read, sandbox
from autograder.judge import submission
from autograder.judge.session import Session
from autograder.outcome import PERSON
from autograder.work import Grader, Job

pytestmark = pytest.mark.skipif(sandbox.missing() is not None, reason=str(sandbox.missing()))

# What one submission leaves behind for the next, what it tries on others, how it ends; and an honest one.
NAMES = ("leaves files for the next", "picks up what the last one left", "a daemon that stays", "reads the environment",
         "a plot")
KILLS = "kills all it can"  # the sandbox too, which is in its reach here


class Timed(Session):
    """A session, whose time begins when its sandbox is there."""

    def __init__(self, zygote, limits):
        assert zygote.process is not None and not zygote.used
        super().__init__(zygote, limits)


def test_the_corpus_ends_the_same_with_a_sandbox_for_each(tmp_path, monkeypatch):
    monkeypatch.setattr(submission, "Session", Timed)
    course = corpus_course(tmp_path, (*NAMES, KILLS))
    found = {folder.student: folder for folder in read.find(course.submitted, "collectives")}
    with Grader(Job(course, "collectives", HARD, SEED)) as grader:
        zygote = grader.judge.zygote
        zygote.nested = False
        begun = set()
        for name in NAMES:
            check(grader.grade(found[name]).outcome)
            assert not zygote.nested and zygote.process.pid not in begun
            begun.add(zygote.process.pid)
        left = grader.grade(found[KILLS]).outcome
        assert (left.kind, left.verdicts) == (PERSON, []) and "the sandbox went" in left.why[0]
        check(grader.grade(found["zzz"]).outcome)
