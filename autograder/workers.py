"""Workers: processes that grade, one submission at a time. Those that die are replaced; what they had is done anew."""

from __future__ import annotations

import ctypes
import gc
import multiprocessing
import os
import signal
import threading
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from contextlib import suppress
from multiprocessing.connection import Connection, wait
from multiprocessing.context import BaseContext

from autograder.errors import CourseError
from autograder.gpus import Gpu, some
from autograder.read import Submission
from autograder.work import Grader, Job, Result

TRIES = 3  # workers that a submission may cost before it is left to a person
TRIED = f"the grader's process ended {TRIES} times while it graded this submission"
SELDOM = 100_000  # objects more than there were before, until a worker looks for garbage: not after every run
IDLE = 600.0  # s after which a worker that is asked for nothing ends


class Crew:
    """The workers of one grading, for a `with` block.

    most: how many there may be; for a lab that asks for a GPU, one a GPU.
    """

    def __init__(self, job: Job, most: int):
        with Grader(job) as grader:
            self.gpus = some(job.lab)[:most] if grader.lab.gpu else [None] * most
        self.job = job
        self.workers: list[_Worker] = []

    def __enter__(self) -> Crew:
        return self

    def __exit__(self, *_: object) -> None:
        for worker in self.workers:
            worker.end()

    def start(self, submissions: int) -> None:
        """Have workers for so many submissions load what they need. To be called before anything is open (the gradebook)."""
        self._start(submissions, copies())

    def _start(self, submissions: int, context: BaseContext) -> None:
        for place in range(len(self.workers), min(len(self.gpus), submissions)):
            self.workers.append(_Worker(context, self.job, place, self.gpus[place]))

    def graded(self, submissions: Sequence[Submission]) -> Iterator[Result]:
        """The results, in the order in which they are ready."""
        self._start(len(submissions), afresh())
        waiting, tries = deque(submissions), Counter()
        while waiting or any(worker.has for worker in self.workers):
            for place, worker in enumerate(self.workers):
                if worker.has is None and waiting:
                    self.workers[place] = worker if worker.give(waiting[0]) else worker.another()
                    if self.workers[place] is worker:
                        waiting.popleft()
            ready = wait([worker.connection for worker in self.workers if worker.has])
            for worker in [worker for worker in self.workers if worker.connection in ready]:
                submission = worker.has
                with suppress(EOFError, OSError):
                    yield worker.take()
                    continue
                tries[submission.student] += 1
                worker.end()
                self.workers[worker.place] = worker.another()
                if tries[submission.student] < TRIES:
                    waiting.appendleft(submission)
                else:
                    yield Result.left(submission.student, TRIED)


def copies() -> BaseContext:
    """Makes a worker a copy of this process, in which all is loaded: at once, but for what other threads are about."""
    if threading.active_count() > 1:  # a copy might wait for ever for what another thread holds
        return afresh()
    gc.freeze()  # nobody looks for garbage among what is there now, here or in a worker, so its pages stay shared
    return multiprocessing.get_context("fork")


def afresh() -> BaseContext:
    """Makes a worker a copy of a process that does nothing but load what workers need, for a few seconds the first time."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["autograder.work"])
    return context


class _Worker:
    """A process that grades.  place: in the crew.  gpu: for it alone.  has: the submission that it has now."""

    def __init__(self, context: BaseContext, job: Job, place: int, gpu: Gpu | None):
        self.job, self.place, self.gpu = job, place, gpu
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
        return _Worker(afresh(), self.job, self.place, self.gpu)

    def end(self) -> None:
        self.connection.close()
        self.process.kill()
        self.process.join()
        self.process.close()


def work(connection: Connection, job: Job, gpu: Gpu | None = None) -> None:
    """The life of a worker. It ends when nobody is there to work for."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the grader, which ends it
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG: with the process that started it, it dies,
    if (grading := multiprocessing.parent_process()) and not grading.is_alive():  # also when that was before this line
        return
    gc.set_threshold(SELDOM, 10, 10)
    with Grader(job, gpu) as grader, suppress(EOFError, OSError):
        grader.load()
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
