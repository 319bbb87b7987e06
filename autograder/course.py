"""Where the course keeps its things, and what nbgrader is told of it."""

from __future__ import annotations

import os
import secrets
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError, SQLAlchemyError
from traitlets.config import Config

from autograder.errors import CourseError

if TYPE_CHECKING:
    from nbgrader.api import Gradebook

# What `nbgrader autograde` does with a submission: before it is run, and then.
SANITISE = ["autograder.preprocessors.Rebuild", "nbgrader.preprocessors.CheckCellMetadata"]
AUTOGRADE = ["autograder.preprocessors.Judged", "nbgrader.preprocessors.LimitOutput", "autograder.preprocessors.SaveScores",
             "nbgrader.preprocessors.AssignLatePenalties", "nbgrader.preprocessors.CheckCellMetadata"]

# What becomes of a graded notebook on its way to the feedback page.
FEEDBACK = ["nbgrader.preprocessors.GetGrades", "autograder.pages.Hidden",
            "nbconvert.preprocessors.CSSHTMLHeaderPreprocessor"]


@dataclass(frozen=True)
class Course:
    """A checkout of the course.

    root:   the checkout: `solutions/` and `labs/` are in it.
    grades: where submissions, graded notebooks, feedback and the gradebook go; git ignores it.
    database: the URL of the gradebook; by default it is an SQLite file in `grades`.
    """

    root: Path
    grades: Path
    database: str | None = field(default=None, repr=False)  # it may hold a password

    @classmethod
    def at(cls, root: Path, grades: Path | None = None, database: str | None = None) -> Course:
        """database: by default what the environment variable MLSYSLAB_DATABASE says."""
        root = Path(root).resolve()
        return cls(root, Path(grades).resolve() if grades else root / "grades",
                   database or os.environ.get("MLSYSLAB_DATABASE") or None)

    @property
    def labs(self) -> list[str]:
        """The names of all labs: there is one source a lab."""
        return sorted(path.stem for path in (self.root / "solutions").glob("*.py"))

    def source(self, lab: str) -> Path:
        path = self.root / "solutions" / f"{lab}.py"
        if not path.is_file():
            raise CourseError(f"there is no lab {lab!r}: {path} is missing; the labs are {', '.join(self.labs) or 'none'}")
        return path

    def notebook(self, lab: str) -> Path:
        """The source as a notebook, in the layout that nbgrader looks for; git ignores it."""
        return self.root / "solutions" / lab / f"{lab}.ipynb"

    def release(self, lab: str) -> Path:
        return self.root / "labs" / lab / f"{lab}.ipynb"

    @property
    def submitted(self) -> Path:
        return self.grades / "submitted"

    def autograded(self, lab: str, student: str) -> Path:
        return self.grades / "autograded" / student / lab / f"{lab}.ipynb"

    def feedback(self, lab: str, student: str) -> Path:
        return self.grades / "feedback" / student / lab / f"{lab}.html"

    def outcome(self, lab: str, student: str) -> Path:
        return self.grades / "outcomes" / lab / f"{student}.json"

    @property
    def db_url(self) -> str:
        return self.database or f"sqlite:///{self.grades / 'gradebook.db'}"

    @property
    def gradebook_name(self) -> str:
        """What a message calls the gradebook: its URL without a password, or its file."""
        try:
            return make_url(self.database).render_as_string() if self.database else str(self.grades / "gradebook.db")
        except ArgumentError:
            return "whose address is no URL"

    def seed(self) -> str:
        """The secret from which the inputs of hidden tests are drawn: made once, so that grading again gives the same grade.

        The environment variable MLSYSLAB_SEED goes before the file, for several machines that grade one class.
        """
        if given := os.environ.get("MLSYSLAB_SEED"):
            return given
        path = self.grades / "seed"
        if not path.exists():
            write(path, secrets.token_hex(16))
            path.chmod(0o600)
        return path.read_text(encoding="utf-8").strip()

    def gradebook(self) -> Gradebook:
        """nbgrader's gradebook, for a `with` block; made where there is none yet."""
        from nbgrader import api

        self._prepare()
        api.get_alembic_version = gradebook_version
        try:
            return _with_its_course(api.Gradebook(self.db_url, ""))
        except (ImportError, SQLAlchemyError, subprocess.SubprocessError) as error:
            why = str(error).strip().split("\n")[0]
            raise CourseError(f"the gradebook {self.gradebook_name} can't be opened: {why}") from error

    def _prepare(self) -> None:
        """SQLite makes no folders, and nbgrader calls `alembic` by its bare name, also where no environment is active."""
        self.grades.mkdir(parents=True, exist_ok=True)
        own = str(Path(sys.executable).parent)
        if own not in os.environ.get("PATH", "").split(os.pathsep):
            os.environ["PATH"] = os.pathsep.join(filter(None, (own, os.environ.get("PATH"))))

    def config(self) -> Config:
        """What `nbgrader_config.py` holds."""
        self._prepare()
        c = Config()
        c.CourseDirectory.root = str(self.root)
        c.CourseDirectory.source_directory = "solutions"
        c.CourseDirectory.release_directory = "labs"
        for step in ("submitted", "autograded", "feedback", "solution", "source_with_tests"):
            c.CourseDirectory[f"{step}_directory"] = self._step(step)
        c.CourseDirectory.db_url = self.db_url
        c.ExportPlugin.to = str(self.grades / "grades.csv")
        # labs/ is committed, so it is always there already; without this a fresh clone's gradebook would stay empty.
        c.GenerateAssignment.force = True
        # nbgrader's own `autograde` (and the formgrader's button) runs and scores as `python -m autograder grade` does.
        c.Autograde.sanitize_preprocessors = SANITISE
        c.Autograde.autograde_preprocessors = AUTOGRADE
        c.GenerateFeedback.preprocessors = FEEDBACK
        c.GenerateFeedback.exporter_class = "autograder.pages.FeedbackExporter"
        for exporter in ("HTMLExporter", "FeedbackExporter"):
            c[exporter].sanitize_html = True
        return c

    def _step(self, name: str) -> str:
        path = self.grades / name
        return str(path.relative_to(self.root)) if path.is_relative_to(self.root) else str(path)


def write(path: Path, text: str) -> None:
    """Write a file whole or not at all, and make the folders it lies in."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(prefix=".", dir=path.parent)
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())  # what is there after a crash is whole
        os.chmod(name, 0o644)
        os.replace(name, path)
    except BaseException:
        os.unlink(name)
        raise


def gradebook_version() -> str:
    """The version of nbgrader's tables, for a new gradebook. nbgrader starts a process to find it, which takes seconds."""
    from alembic.script import ScriptDirectory
    from nbgrader.dbutil import ALEMBIC_DIR

    return ScriptDirectory(ALEMBIC_DIR).get_current_head()


def _with_its_course(gradebook: Gradebook) -> Gradebook:
    """nbgrader never enters the course without a name, which its rows name: SQLite lets that pass, PostgreSQL does not."""
    from nbgrader.api import Course as Row

    if gradebook.db.get(Row, "") is None:
        gradebook.db.add(Row(id=""))
        gradebook.db.commit()
    return gradebook
