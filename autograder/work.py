"""Grade one submission, from its folder to what goes into the gradebook. This is what a worker does, wherever it is."""

from __future__ import annotations

import hashlib
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property

import nbformat

from autograder import read
from autograder.course import Course
from autograder.errors import CourseError, NeedsPerson
from autograder.gpus import Gpu, some
from autograder.judge.lab import Lab
from autograder.judge.submission import Judge
from autograder.labs import released
from autograder.limits import Limits
from autograder.outcome import GRADED, LIMITED, PERSON, Outcome
from autograder.pages import feedback_page, graded_notebook
from autograder.rebuild import rebuild
from autograder.sources import make_notebook


@dataclass(frozen=True)
class Job:
    """What all submissions of one grading share; plain data, so that it can be sent to another machine.

    source: the text of the lab's source.  seed: of hidden tests.  unsafe: with no sandbox at all.
    """

    course: Course
    lab: str
    limits: Limits
    seed: str
    unsafe: bool = False

    def digest(self, submission: read.Submission) -> str:
        """Changes whenever the submission, the lab, the seed or a limit does."""
        try:
            content = submission.content()
        except NeedsPerson as why:
            content = str(why).encode()
        parts = (content, submission.timestamp(), self.course.source(self.lab).read_bytes(), self.seed.encode(),
                 repr((self.limits, self.unsafe)).encode())
        return hashlib.sha256(b"".join(hashlib.sha256(part).digest() for part in parts)).hexdigest()


@dataclass(frozen=True)
class Result:
    """What a worker hands to the writer.

    notebook: as it was judged, the text of its file; page: the student's feedback. None when a person is needed.
    """

    outcome: Outcome
    notebook: str | None = None
    page: str | None = None
    handed_in: datetime | None = None

    @classmethod
    def left(cls, student: str, why: str, digest: str = "") -> Result:
        """A submission that is left to a person; without a digest the next run tries again."""
        return cls(Outcome(student, PERSON, digest, [why]))


class Grader:
    """Grades submissions one after the other; what takes long to load it loads once. For a `with` block.

    gpu: what they may use if the lab asks for one; by default the first that there is.
    """

    def __init__(self, job: Job, gpu: Gpu | None = None):
        self.job, self.gpu = job, gpu

    @cached_property
    def lab(self) -> Lab:
        return Lab.read(self.job.lab, make_notebook(self.job.course, self.job.lab))

    @cached_property
    def released(self) -> nbformat.NotebookNode:
        """What the students were given."""
        return nbformat.reads(released(self.job.course, self.job.lab), as_version=4)

    @cached_property
    def judge(self) -> Judge:
        gpu = (self.gpu or some(self.lab.name)[0]) if self.lab.gpu else None
        return Judge(self.lab, self.job.limits, self.job.seed, self.job.unsafe, gpu)

    def __enter__(self) -> Grader:
        return self

    def __exit__(self, *_: object) -> None:
        if "judge" in vars(self):
            self.judge.close()

    def load(self) -> None:
        """Have the sandbox there before the first submission is. What is wrong with it, that one will show."""
        with suppress(CourseError):
            self.judge.zygote.ready()

    def grade(self, submission: read.Submission) -> Result:
        """Whatever is wrong with a submission, or with the grader, ends in an outcome; raises CourseError for the course."""
        student, digest = submission.student, self.job.digest(submission)
        try:
            return self._grade(submission, digest)
        except NeedsPerson as why:
            return Result.left(student, str(why), digest)
        except CourseError:
            raise
        except Exception as error:
            return Result.left(student, f"the grader failed: {type(error).__name__}: {error}")

    def _grade(self, submission: read.Submission, digest: str) -> Result:
        handed_in = submission.time()
        notebook, notes = submission.notebook()
        rebuilt = rebuild(notebook, self.lab, self.released)
        judged = self.judge.judge(rebuilt)
        doubtful = [verdict for verdict in judged.verdicts if verdict.kind != GRADED]
        why = list(dict.fromkeys(judged.limits + [f"{verdict.exercise}: {verdict.why[0]}" for verdict in doubtful]))
        kinds = {verdict.kind for verdict in judged.verdicts} | ({LIMITED} if judged.limits else set())
        kind = next((kind for kind in (PERSON, LIMITED) if kind in kinds), GRADED)
        outcome = Outcome(submission.student, kind, digest, why, judged.verdicts, notes + rebuilt.notes)
        text = graded_notebook(judged.notebook, outcome, self.job.unsafe)
        return Result(outcome, text, feedback_page(text, outcome, self.job.course, self.job.lab), handed_in)
