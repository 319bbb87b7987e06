"""Grade a folder of submissions: several at a time, each by itself, and only those that are new."""

from __future__ import annotations

import hashlib
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from threading import Event

import nbformat
from nbformat import NotebookNode

from autograder import read, sandbox
from autograder.course import Course
from autograder.errors import CourseError, NeedsPerson
from autograder.limits import Limits
from autograder.outcome import GRADED, LIMITED, PERSON, Outcome
from autograder.record import record, register
from autograder.report import Progress
from autograder.run import execute
from autograder.sanitise import sanitise
from autograder.score import Exercise, exercises_of, scores
from autograder.sources import make_notebook


@dataclass(frozen=True)
class Job:
    """What all submissions of one grading share."""

    course: Course
    lab: str
    exercises: list[Exercise]
    limits: Limits
    seed: str
    unsafe: bool
    stop: Event

    def digest(self, submission: read.Submission) -> str:
        """Changes whenever the submission, the lab, the seed or a limit does."""
        try:
            content = submission.content()
        except NeedsPerson as why:
            content = str(why).encode()
        parts = (content, submission.timestamp(), self.course.source(self.lab).read_bytes(), self.seed.encode(),
                 repr(self.limits).encode())
        return hashlib.sha256(b"".join(hashlib.sha256(part).digest() for part in parts)).hexdigest()


@dataclass(frozen=True)
class Result:
    """What a worker hands to the writer."""

    outcome: Outcome
    notebook: NotebookNode | None = None
    handed_in: datetime | None = None


def grade(course: Course, lab: str, submissions: Path | None = None, limits: Limits | None = None, workers: int = 1,
          again: bool = False, unsafe: bool = False, progress: Progress | None = None) -> list[Outcome]:
    """Grade every submission of `lab` under `submissions` that has changed since it was graded, or all of them.

    Returns the outcomes of all submissions there, old and new. Raises KeyboardInterrupt after what was done is recorded.
    """
    if not unsafe and (why := sandbox.missing()):
        raise CourseError(why)
    exercises = lab_exercises(course, lab)
    found = read.find(submissions or course.submitted, lab)
    register(course, lab)
    job = Job(course, lab, exercises, limits or Limits(), course.seed(), unsafe, Event())
    old = set() if again else _graded(job, found)
    new = [submission for submission in found if submission.student not in old]
    with progress or Progress(quiet=True) as bar:
        bar.begin(len(new), len(old))
        for result in _results(job, new, workers):
            record(course, lab, result.outcome, result.notebook, result.handed_in)
            bar.advance(result.outcome)
    outcomes = [Outcome.load(course.outcome(lab, submission.student)) for submission in found]
    return [outcome for outcome in outcomes if outcome is not None]


def lab_exercises(course: Course, lab: str) -> list[Exercise]:
    return exercises_of(nbformat.read(make_notebook(course, lab), as_version=4))


def _graded(job: Job, submissions: list[read.Submission]) -> set[str]:
    """The students whose submission is in the gradebook, with an outcome of just this content."""
    with job.course.gradebook() as gradebook:
        entered = {submission.student_id for submission in gradebook.assignment_submissions(job.lab)}
    last = {student: Outcome.load(job.course.outcome(job.lab, student)) for student in entered}
    return {submission.student for submission in submissions
            if (outcome := last.get(submission.student)) and outcome.digest == job.digest(submission)}


def _results(job: Job, submissions: list[read.Submission], workers: int):
    """The results, in the order in which they are ready."""
    pool = ThreadPoolExecutor(workers, thread_name_prefix="grader")
    try:
        waiting = {pool.submit(work, job, submission) for submission in submissions}
        while waiting:
            done, waiting = wait(waiting, return_when=FIRST_COMPLETED)
            for future in done:
                yield future.result()
    finally:
        job.stop.set()
        pool.shutdown(cancel_futures=True)


def work(job: Job, submission: read.Submission) -> Result:
    """Grade one submission. Whatever is wrong with it, or with the grader, ends in an outcome, never in an exception."""
    try:
        digest = job.digest(submission)
        handed_in = submission.time()
        notebook = sanitise(read.parse(submission.content()), job.course, job.lab, submission.student)
        execution = execute(notebook, job.limits, job.seed, job.unsafe, job.stop)
        points = scores(execution.notebook, job.exercises)
        kind = LIMITED if execution.limits else GRADED
        return Result(Outcome(submission.student, kind, digest, execution.limits, points), execution.notebook, handed_in)
    except NeedsPerson as why:
        return Result(Outcome(submission.student, PERSON, digest, [str(why)]))
    except sandbox.Stopped:
        raise
    except Exception as error:
        return Result(Outcome(submission.student, PERSON, "", [f"the grader failed: {type(error).__name__}: {error}"]))
