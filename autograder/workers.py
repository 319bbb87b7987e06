"""Workers: processes that grade, one submission at a time. Those that die are replaced; what they had is done anew."""

from __future__ import annotations

import ctypes
import multiprocessing
import os
import signal
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import suppress
from multiprocessing import forkserver
from multiprocessing.connection import Connection, wait

from autograder.errors import CourseError
from autograder.gpus import Gpu, some
from autograder.read import Submission
from autograder.work import Grader, Job, Result

TRIES = 3  # workers that a submission may cost before it is left to a person
TRIED = f"the grader's process ended {TRIES} times while it graded this submission"
IDLE = 600.0  # s after which a worker that is asked for nothing ends


def graded(job: Job, submissions: Sequence[Submission], workers: int) -> Iterator[Result]:
    """The results, in the order in which they are ready.  workers: at most; for a lab that asks for a GPU, one a GPU."""
    context = prepare()
    waiting = deque(submissions)
    with Grader(job) as grader:
        gpus = some(job.lab) if grader.lab.gpu else [None] * workers
    crew = [_Worker(context, job, place, gpu) for place, gpu in enumerate(gpus[:min(workers, len(waiting))])]
    tries: dict[str, int] = {}
    try:
        while waiting or any(worker.has for worker in crew):
            for place, worker in enumerate(crew):
                if worker.has is None and waiting:
                    crew[place] = worker if worker.give(waiting[0]) else worker.another()
                    if crew[place] is worker:
                        waiting.popleft()
            for worker in [worker for worker in crew if worker.connection in
                           wait([worker.connection for worker in crew if worker.has])]:
                submission = worker.has
                with suppress(EOFError, OSError):
                    yield worker.take()
                    continue
                tries[submission.student] = tries.get(submission.student, 0) + 1
                worker.end()
                crew[worker.place] = worker.another()
                if tries[submission.student] < TRIES:
                    waiting.appendleft(submission)
                else:
                    yield Result.left(submission.student, TRIED)
    finally:
        for worker in crew:
            worker.end()


def prepare() -> multiprocessing.context.BaseContext:
    """Have a process load what workers need; it runs no thread, and forked from it they are there at once."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["autograder.work"])
    forkserver.ensure_running()
    return context


class _Worker:
    """A process that grades.  place: in the crew.  gpu: for it alone.  has: the submission that it has now."""

    def __init__(self, context: multiprocessing.context.BaseContext, job: Job, place: int, gpu: Gpu | None):
        self.context, self.job, self.place, self.gpu = context, job, place, gpu
        self.connection, its = context.Pipe()
        self.process = context.Process(target=work_on_one_processor, args=(place, its, job, gpu), daemon=True)
        self.process.start()
        its.close()
        self.has: Submission | None = None

    def give(self, submission: Submission) -> bool:
        """Whether it has taken it; otherwise it is dead."""
        try:
            self.connection.send(submission)
        except OSError:
            self.end()
            return False
        self.has = submission
        return True

    def take(self) -> Result:
        result = self.connection.recv()
        self.has = None
        if isinstance(result, CourseError):
            raise result
        return result

    def another(self) -> _Worker:
        """One in its place."""
        return _Worker(self.context, self.job, self.place, self.gpu)

    def end(self) -> None:
        self.connection.close()
        self.process.kill()
        self.process.join()
        self.process.close()


def work(connection: Connection, job: Job, gpu: Gpu | None = None) -> None:
    """The life of a worker. It ends when nobody is there to work for."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the grader, which ends it
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG: with the process that started it, it dies
    with Grader(job, gpu) as grader, suppress(EOFError, OSError):
        while connection.poll(IDLE):
            submission = connection.recv()
            try:
                result = grader.grade(submission)
            except CourseError as error:
                result = error
            connection.send(result)


def work_on_one_processor(place: int, connection: Connection, job: Job, gpu: Gpu | None) -> None:
    """The life of a worker that stays on one processor, with the sandbox that it starts; each place has another one.

    Judge and sandbox take turns, and so do the ranks in there: to wake one on another processor takes longer than its turn.
    """
    processors = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {processors[place % len(processors)]})
    work(connection, job, gpu)
