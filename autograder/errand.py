"""A job that goes to another machine, and the process that does it there.

This module itself loads next to nothing, so that what only carries errands, as Dask does, has them at once.
"""

from __future__ import annotations

import hashlib
import sys
from dataclasses import dataclass
from functools import cache
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TYPE_CHECKING

from autograder import sandbox
from autograder.limits import Limits

if TYPE_CHECKING:
    from autograder.work import Job

HERE = Path(__file__).parent


@dataclass(frozen=True)
class Errand:
    """A job without the course's folders and its gradebook.

    number: of this grading, unlike any other.  source: the file of the lab's source.  code: see `code`.
    """

    number: str
    lab: str
    source: bytes
    limits: Limits
    seed: str
    unsafe: bool
    code: str

    @classmethod
    def of(cls, job: Job, number: str) -> Errand:
        return cls(number, job.lab, job.course.source(job.lab).read_bytes(), job.limits, job.seed, job.unsafe, code())

    def job(self, folder: Path) -> Job:
        """The job again, with a course of this lab alone in an empty folder."""
        from autograder.course import Course
        from autograder.work import Job

        path = folder / "solutions" / f"{self.lab}.py"
        path.parent.mkdir()
        path.write_bytes(self.source)
        return Job(Course(folder, folder / "grades"), self.lab, self.limits, self.seed, self.unsafe)


@cache
def code() -> str:
    """The version of library and grader: a digest of their files."""
    digest = hashlib.sha256()
    for folder in (HERE, sandbox.library_folder()):
        for path in sorted(folder.rglob("*.py")):
            digest.update(str(path.relative_to(folder.parent)).encode() + hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()[:12]


def command(connection: int, folder: str) -> list[str]:
    """What starts the process that does an errand.  connection: over which the errand comes, then submissions."""
    return [sys.executable, "-m", "autograder.errand", str(connection), folder]


def main() -> None:
    from autograder.workers import work

    connection = Connection(int(sys.argv[1]))
    work(connection, connection.recv().job(Path(sys.argv[2])))


if __name__ == "__main__":
    main()
