"""Grade a folder of submissions: several at a time, each by itself, and only those that are new."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path

from autograder import read, sandbox
from autograder.course import Course
from autograder.errors import CourseError
from autograder.judge.lab import Exercise, Lab
from autograder.limits import Limits
from autograder.outcome import Outcome
from autograder.record import Recorder
from autograder.report import Progress
from autograder.sources import make_notebook
from autograder.work import Job, Result
from autograder.workers import Crew

#: Grades submissions: their results, in the order in which they are ready.
Graders = Callable[[Sequence[read.Submission]], Iterator[Result]]


def grade(course: Course, lab: str, submissions: Path | None = None, limits: Limits | None = None, workers: int = 1,
          again: bool = False, unsafe: bool = False, progress: Progress | None = None,
          students: Sequence[str] = (), exercises: Sequence[str] = (), scheduler: str | None = None) -> list[Outcome]:
    """Grade every submission of `lab` under `submissions` that has changed since it was graded, or all of them.

    students: grade these only, changed or not.  again: the unchanged ones too.
    exercises: grade all, but change the verdicts of these only, where there was one before.
    scheduler: the address of a Dask scheduler, whose workers grade instead of processes here.
    Returns the outcomes of all submissions there, old and new. Raises KeyboardInterrupt after what was done is recorded.
    """
    if scheduler is None and not unsafe and (why := sandbox.missing()):
        raise CourseError(why)
    lab_exercises(course, lab)
    found = read.find(submissions or course.submitted, lab)
    job = Job(course, lab, limits or Limits(), course.seed(), unsafe)
    soon = [submission for submission in found
            if again or exercises or students or not course.outcome(lab, submission.student).exists()]
    with (graders(job, workers, scheduler, len(soon)) as graded, Recorder(course, lab) as recorder,
          progress or Progress(quiet=True) as bar):
        check_exercises(course, lab, exercises)
        new = chosen(found, students) if students else found if again or exercises else \
            [submission for submission in found if recorder.digest(submission.student) != job.digest(submission)]
        bar.begin(len(new), len(found) - len(new))
        with closing(graded(new)) as ready:
            for result in ready:
                recorder.record(result, exercises)
                bar.advance(result.outcome)
    outcomes = [Outcome.load(course.outcome(lab, submission.student)) for submission in found]
    return [outcome for outcome in outcomes if outcome is not None]


@contextmanager
def graders(job: Job, workers: int, scheduler: str | None, soon: int) -> Iterator[Graders]:
    """Processes here, or the workers of a scheduler.  soon: for so many submissions they load what they need at once."""
    if scheduler is None:
        with Crew(job, workers) as crew:
            crew.start(soon)
            yield crew.graded
        return
    try:
        from autograder import cluster
    except ImportError as error:
        raise CourseError(f"--scheduler needs Dask, which isn't installed ({error}): pip install distributed") from error
    yield lambda submissions: cluster.graded(job, submissions, scheduler)


def chosen(found: list[read.Submission], students: Sequence[str]) -> list[read.Submission]:
    """The submissions of these students."""
    if unknown := sorted(set(students) - {submission.student for submission in found}):
        raise CourseError(f"there is no submission of {', '.join(unknown)}; there are those of "
                          f"{', '.join(submission.student for submission in found)}")
    return [submission for submission in found if submission.student in students]


def check_exercises(course: Course, lab: str, names: Sequence[str]) -> None:
    known = [exercise.name for exercise in lab_exercises(course, lab)]
    if unknown := sorted(set(names) - set(known)):
        raise CourseError(f"{lab} has no exercise {', '.join(unknown)}; it has {', '.join(known)}")


def lab_exercises(course: Course, lab: str) -> list[Exercise]:
    return Lab.read(lab, make_notebook(course, lab)).exercises
