"""Grade on the workers of a Dask scheduler, whatever machines they are on: submissions travel there, results come back."""

from __future__ import annotations

import logging
import pickle
import time
import uuid
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from queue import Empty, Queue

from distributed import Client, Future
from distributed.scheduler import KilledWorker

from autograder import remote
from autograder.errand import Errand
from autograder.errors import CourseError, NeedsPerson
from autograder.read import Carried, Submission
from autograder.work import Grader, Job, Result
from autograder.workers import TRIED, TRIES

REACHED = 10.0  # s until a scheduler has answered
PATIENCE = 60.0  # s for which there may be no worker at all
TICK = 1.0  # s between two looks at the workers
AHEAD = 2  # submissions sent for each that can be graded at the time, so that the next one is there
AGAIN = "what was graded is recorded: run it again to go on"
START = "in a checkout of the course: .venv/bin/python -m dask"


def graded(job: Job, submissions: Sequence[Submission], address: str) -> Iterator[Result]:
    """The results, in the order in which they are ready.  address: of the scheduler."""
    needed = needs(job)
    with connected(address) as client:
        check(client, address, job, needed)
        yield from _Grading(client, address, job, needed).results(submissions)


@contextmanager
def connected(address: str) -> Iterator[Client]:
    """A client of the scheduler. Raises CourseError when nobody answers there."""
    logging.getLogger("distributed").setLevel(logging.CRITICAL)  # what there is to say is in the errors
    try:
        client = Client(address, timeout=REACHED, set_as_default=False)
    except (OSError, ValueError, TypeError) as error:
        raise CourseError(f"no Dask scheduler answers at {address}; start one {START} scheduler") from error
    try:
        yield client
    finally:
        with suppress(OSError):
            client.close(timeout=REACHED)


def check(client: Client, address: str, job: Job, needed: dict[str, float]) -> None:
    """Raise CourseError unless there are workers, and all of them grade as this machine would."""
    try:
        client.wait_for_workers(1, timeout=PATIENCE)
    except TimeoutError as error:
        raise CourseError(f"the scheduler at {address} has no workers; start some {START} worker {address}") from error
    told = client.run(remote.about, job.unsafe, on_error="return")
    try:
        told["the scheduler"] = client.run_on_scheduler(remote.about, True)
    except Exception as error:  # whatever it is, it comes from there
        told["the scheduler"] = error
    wrong = [f"{name}: {fault}" for name, theirs in told.items() if (fault := amiss(theirs))]
    if wrong:
        raise CourseError("not every machine can grade as this one would:\n  " + "\n  ".join(wrong))
    if not lanes(client, needed):
        raise CourseError(f"{job.lab} asks for a GPU, and no worker of {address} offers one: start a worker for each GPU, "
                          "with CUDA_VISIBLE_DEVICES=NUMBER and --resources GPU=1")


def needs(job: Job) -> dict[str, float]:
    """The resources that Dask holds a worker's to."""
    with Grader(job) as grader:
        return {"GPU": 1} if grader.lab.gpu else {}


def lanes(client: Client, needed: dict[str, float]) -> int:
    """How many submissions can be graded at a time."""
    workers = client.scheduler_info(n_workers=-1)["workers"].values()
    if not needed:
        return sum(worker["nthreads"] for worker in workers)
    return sum(min(worker["nthreads"], int(worker["resources"].get("GPU", 0))) for worker in workers)


def amiss(theirs: dict[str, str] | Exception) -> str:
    """What a machine lacks that told this about itself; "" when it can grade."""
    if isinstance(theirs, Exception):
        return f"{type(theirs).__name__}: {theirs}; start it {START} …"
    other = [f"{name} {theirs.get(name)}, here {version}" for name, version in remote.versions().items()
             if theirs.get(name) != version]
    return "; ".join(other) or theirs.get("sandbox", "")


class _Grading:
    """One grading.

    needed: see `needs`.  begun: how often each student's submission was.  sent: those on their way, by student.
    """

    def __init__(self, client: Client, address: str, job: Job, needed: dict[str, float]):
        self.client, self.address, self.job, self.needed = client, address, job, needed
        self.errand = Errand.of(job, uuid.uuid4().hex)
        self.news: Queue[tuple[str, Future | None]] = Queue()  # a submission that has begun, or that has ended
        self.begun: Counter[str] = Counter()
        self.sent: dict[str, tuple[Carried, Future]] = {}
        self.seen = time.monotonic()  # when there was a worker

    def results(self, submissions: Sequence[Submission]) -> Iterator[Result]:
        waiting = deque(submissions)
        self.client.subscribe_topic(self.errand.number, lambda event: self.news.put((event[1], None)))
        try:
            while waiting or self.sent:
                room = AHEAD * self._lanes() - len(self.sent)
                for submission in [waiting.popleft() for _ in range(min(room, len(waiting)))]:
                    try:
                        self._send(submission.carried())
                    except NeedsPerson as why:
                        yield Result.left(submission.student, str(why), self.job.digest(submission))
                    except OSError as error:
                        yield Result.left(submission.student, f"it can't be read: {error}")
                with suppress(Empty):
                    result = self._told(*self.news.get(timeout=TICK))
                    if result is not None:
                        yield result
        except OSError as error:
            raise self._gone() from error
        finally:
            self._end()

    def _lanes(self) -> int:
        """How many submissions can be graded at a time. Raises CourseError when there has been no worker for long."""
        number = lanes(self.client, self.needed)
        self.seen = time.monotonic() if number else self.seen
        if time.monotonic() - self.seen > PATIENCE:
            raise CourseError(f"the scheduler at {self.address} has had no workers for {PATIENCE:g} s; {AGAIN}")
        return number

    def _send(self, submission: Carried) -> None:
        key = f"grade-{submission.student}-{uuid.uuid4().hex}"
        future = self.client.submit(remote.grade, self.errand, submission.student, pickle.dumps(submission), key=key,
                                    pure=False, resources=self.needed or None)
        self.sent[submission.student] = submission, future
        future.add_done_callback(lambda future: self.news.put((submission.student, future)))

    def _told(self, student: str, future: Future | None) -> Result | None:
        """What there is to record, if anything, when a submission has begun or, with its future, ended."""
        submission, sent = self.sent.get(student, (None, None))
        if future is None:
            self.begun[student] += 1
            if sent is None or self.begun[student] <= TRIES:
                return None
            self.client.cancel([self.sent.pop(student)[1]])  # Dask itself may try more often
            return Result.left(student, TRIED)
        if future is not sent:
            return None
        del self.sent[student]
        if future.status == "finished":
            return self._opened(future.result(timeout=PATIENCE))
        if future.status != "error":
            raise self._gone()
        error = future.exception()
        if not isinstance(error, (KilledWorker, remote.Ended)):
            raise CourseError(f"a worker of {self.address} failed: {type(error).__name__}: {error}; {AGAIN}") from error
        if self.begun[student] >= TRIES:
            return Result.left(student, TRIED)
        return self._send(submission)

    def _opened(self, result: bytes) -> Result:
        found = pickle.loads(result)
        if isinstance(found, CourseError):
            raise found
        return found

    def _gone(self) -> CourseError:
        return CourseError(f"the scheduler at {self.address} has gone; {AGAIN}")

    def _end(self) -> None:
        """Take back what is on its way, and end the processes that work for this grading."""
        if self.client.status == "running":
            with suppress(OSError):
                self.client.cancel([future for _, future in self.sent.values()])
                self.client.run(remote.end, self.errand.number, on_error="ignore")
