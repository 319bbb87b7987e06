"""A Dask scheduler and its workers, each a process of its own, as `python -m dask` starts them."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

import psutil
from tiny_course import ROOT

SLOW = 120  # s, a guard against a hang


def missing() -> str | None:
    """Why there is no Dask here; None when there is."""
    return None if find_spec("distributed") else "distributed is not installed: pip install distributed"


class Cluster:
    """folder: for its logs and scratch files.  workers: processes that start a worker, and a new one when that dies."""

    def __init__(self, folder: Path):
        self.folder, self.workers = folder, []
        log = folder / "scheduler.log"
        self.scheduler = self._start(log, "scheduler", "--host", "127.0.0.1", "--port", "0", "--no-dashboard")
        self.address = until(lambda: next((line.split()[-1] for line in log.read_text().splitlines()
                                           if "Scheduler at:" in line), None))

    def add(self, *arguments: str, **environment: str) -> None:
        """One more worker with one thread."""
        more = ("--nthreads", "1", "--host", "127.0.0.1", "--no-dashboard", "--local-directory", str(self.folder))
        self.workers.append(self._start(self.folder / f"worker-{len(self.workers)}.log", "worker", self.address, *more,
                                        *arguments, **environment))

    def _start(self, log: Path, *arguments: str, **environment: str) -> subprocess.Popen:
        with log.open("w") as out:
            return subprocess.Popen([sys.executable, "-m", "dask", *arguments], cwd=ROOT, stdout=out, stderr=out,
                                    env={**os.environ, **environment})

    def grading(self) -> list[psutil.Process]:
        """The workers' processes that grade."""
        below = [child for worker in self.workers for child in psutil.Process(worker.pid).children(recursive=True)]
        return [child for child in below if "autograder.errand" in command_of(child)]

    def close(self) -> None:
        """Workers first: while their scheduler goes too, they take long."""
        for group in (self.workers, [self.scheduler]):
            for process in group:
                process.terminate()
            for process in group:
                process.wait(SLOW)


def command_of(process: psutil.Process) -> str:
    try:
        return " ".join(process.cmdline())
    except psutil.Error:  # it has ended
        return ""


def until(look, seconds: float = SLOW):
    """Wait until there is something, and return it."""
    deadline = time.monotonic() + seconds
    while not (found := look()):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    return found


@contextmanager
def running(folder: Path, workers: int = 2) -> Iterator[Cluster]:
    cluster = Cluster(folder)
    try:
        for _ in range(workers):
            cluster.add()
        yield cluster
    finally:
        cluster.close()
