"""Find submissions and read them, as data that anybody may have written."""

from __future__ import annotations

import json
import os
import re
import warnings
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

    def file(self) -> Path:
        """The notebook. Raises NeedsPerson where there is none, or where it can't be told which it is."""
        path = self.folder / f"{self.lab}.ipynb"
        for link in (self.folder.parent, self.folder, path):
            if link.is_symlink():
                raise NeedsPerson(f"{link.name} is a link to another place")
        if path.is_file():
            return path
        others = sorted(other.name for other in self.folder.glob("*.ipynb") if other.is_file() and not other.is_symlink())
        if len(others) == 1:
            return self.folder / others[0]
        raise NeedsPerson(f"there is no {path.name} in it" + (f", but {', '.join(others)}" if others else ""))

    def content(self) -> bytes:
        """The bytes of the notebook. Raises NeedsPerson where there is none that can be read."""
        path = self.file()
        with open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), "rb") as file:
            size = os.fstat(file.fileno()).st_size
            if size > LARGEST:
                raise NeedsPerson(f"{path.name} has {size:,} bytes; more than {LARGEST:,} are not read")
            return file.read(LARGEST + 1)

    def notebook(self) -> tuple[NotebookNode, list[str]]:
        """The notebook, and what was odd about its file. Raises NeedsPerson where it is none."""
        notebook, notes = parse(self.content())
        name = self.file().name
        return notebook, notes + ([f"its file is called {name}"] if name != f"{self.lab}.ipynb" else [])

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

    def carried(self) -> Carried:
        """As data, for a machine that doesn't have the folder. Raises NeedsPerson where there is no notebook."""
        return Carried(self.student, self.lab, self.folder, self.file().name, self.content(), self.timestamp())


@dataclass(frozen=True)
class Carried(Submission):
    """One that was read where its folder is.  name, held: of its notebook's file.  stamp: what its timestamp.txt holds."""

    name: str
    held: bytes
    stamp: bytes

    def file(self) -> Path:
        return self.folder / self.name

    def content(self) -> bytes:
        return self.held

    def timestamp(self) -> bytes:
        return self.stamp


def find(folder: Path, lab: str) -> list[Submission]:
    """All submissions of `lab` under `folder`, in nbgrader's layout: STUDENT/LAB/LAB.ipynb."""
    if not folder.is_dir():
        raise CourseError(f"there is no folder {folder}; submissions lie in DIR/STUDENT/{lab}/{lab}.ipynb")
    found = [Submission(path.parent.name, lab, path) for path in sorted(folder.glob(f"*/{lab}"))
             if path.is_dir() and re.fullmatch(r"[^.].*", path.parent.name)]
    if not found:
        raise CourseError(f"there are no submissions of {lab} in {folder}; they lie in DIR/STUDENT/{lab}/{lab}.ipynb")
    return found


def parse(content: bytes) -> tuple[NotebookNode, list[str]]:
    """The notebook that these bytes hold, and what was odd about them. Raises NeedsPerson where they hold none."""
    notes = []
    try:
        text = content.decode("utf-16" if content.startswith((b"\xff\xfe", b"\xfe\xff")) else "utf-8-sig")
        told = json.loads(text)
        written = told.get("nbformat") if isinstance(told, dict) else None
        if written != 4:
            notes.append(f"it is written in nbformat {written}; it was read as 4")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # missing and double ids, which are put right
            notebook = nbformat.reads(text, as_version=4)
            nbformat.validate(notebook)
    except RecursionError as error:
        raise NeedsPerson("it is no notebook: it is nested too deeply") from error
    except Exception as error:
        marks = any(line.startswith((b"<<<<<<< ", b">>>>>>> ")) for line in content.splitlines())
        why = "it holds the marks of a merge conflict" if marks else str(error).strip().split("\n")[0][:200]
        raise NeedsPerson(f"it is no notebook: {why}") from error
    return notebook, notes
