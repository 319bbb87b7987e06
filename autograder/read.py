"""Find submissions and read them, as data that anybody may have written."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import nbformat
from nbformat import NotebookNode
from nbgrader.utils import parse_utc

from autograder.errors import CourseError, NeedsPerson

LARGEST = 20 << 20  # bytes of a notebook; one with many pictures has a few million


@dataclass(frozen=True)
class Submission:
    """One student's folder for one lab, DIR/STUDENT/LAB."""

    student: str
    lab: str
    folder: Path

    def content(self) -> bytes:
        """The bytes of the notebook. Raises NeedsPerson where there is none that can be read."""
        path = self.folder / f"{self.lab}.ipynb"
        for link in (self.folder.parent, self.folder, path):
            if link.is_symlink():
                raise NeedsPerson(f"{link.name} is a link to another place")
        if not path.is_file():
            others = sorted(other.name for other in self.folder.glob("*.ipynb"))
            raise NeedsPerson(f"there is no {path.name} in it" + (f", but {', '.join(others)}" if others else ""))
        if path.stat().st_size > LARGEST:
            raise NeedsPerson(f"{path.name} has {path.stat().st_size:,} bytes; more than {LARGEST:,} are not read")
        return path.read_bytes()

    def timestamp(self) -> bytes:
        """The beginning of nbgrader's timestamp.txt; nothing where there is no such file."""
        path = self.folder / "timestamp.txt"
        if path.is_symlink() or not path.is_file():
            return b""
        with path.open("rb") as file:
            return file.read(100).strip()

    def time(self) -> datetime | None:
        """When it was handed in, as its timestamp says; None where that says nothing."""
        try:
            return parse_utc(self.timestamp().decode() or None)
        except (ValueError, OverflowError) as error:
            raise NeedsPerson(f"timestamp.txt holds no time: {error}") from error


def find(folder: Path, lab: str) -> list[Submission]:
    """All submissions of `lab` under `folder`, in nbgrader's layout: STUDENT/LAB/LAB.ipynb."""
    if not folder.is_dir():
        raise CourseError(f"there is no folder {folder}; submissions lie in DIR/STUDENT/{lab}/{lab}.ipynb")
    found = [Submission(path.parent.name, lab, path) for path in sorted(folder.glob(f"*/{lab}"))
             if path.is_dir() and re.fullmatch(r"[^.].*", path.parent.name)]
    if not found:
        raise CourseError(f"there are no submissions of {lab} in {folder}; they lie in DIR/STUDENT/{lab}/{lab}.ipynb")
    return found


def parse(content: bytes) -> NotebookNode:
    """The notebook that these bytes hold. Raises NeedsPerson where they hold none."""
    try:
        notebook = nbformat.reads(content.decode("utf-8-sig"), as_version=4)
        nbformat.validate(notebook)
    except RecursionError as error:
        raise NeedsPerson("it is no notebook: it is nested too deeply") from error
    except Exception as error:
        marks = any(line.startswith((b"<<<<<<< ", b">>>>>>> ")) for line in content.splitlines())
        why = "it holds the marks of a merge conflict" if marks else str(error).strip().split("\n")[0][:200]
        raise NeedsPerson(f"it is no notebook: {why}") from error
    return notebook
