"""The students' archive: labs, the library, what to install and how to start. No solution and no hidden test is in it."""

from __future__ import annotations

import re
import zipfile
from collections.abc import Iterator
from pathlib import Path

from autograder.course import Course
from autograder.errors import CourseError
from autograder.labs import released

NAME = "mlsyslab"
NEEDED = ("torch", "numpy", "scipy", "matplotlib", "ipywidgets", "cloudpickle", "jupyterlab")  # of requirements.txt
LEFT_OUT = ("__pycache__", ".ipynb_checkpoints")
SECRET = re.compile(r"### (BEGIN|END) (SOLUTION|HIDDEN TESTS)")
TIME = (1980, 1, 1, 0, 0, 0)  # of every file, so that the same course makes the same archive

START = """# Machine-learning systems: the labs

You need Python 3.11 or newer, and no GPU. In this folder:

    python3 -m venv .venv
    .venv/bin/pip install --requirement requirements.txt --editable .
    .venv/bin/jupyter lab labs

On Windows, write `.venv\\Scripts\\` instead of `.venv/bin/`, and `py -3.11` instead of `python3`.

Each lab is a folder with one notebook:

{labs}

Write where it says `raise NotImplementedError`. The cell below each exercise checks what you wrote, as often as you like;
grading repeats the check on other inputs. Hand in the notebook of the lab, under the name that it has. Cells may be added;
tests and texts that you change are put back before grading.

`.venv/bin/python -m mlsyslab.doctor` says what is missing on your machine.
"""


def make(course: Course, path: Path) -> Path:
    """Write the archive. Raises CourseError, and writes nothing, where a lab would give something away."""
    files = dict(contents(course))
    for name, content in files.items():
        if name.startswith("labs/") and (secret := SECRET.search(content.decode())):
            raise CourseError(f"{name} would give away what stands between {secret[0]!r} and its end; nothing was written")
    path.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in sorted(files.items()):
            entry = zipfile.ZipInfo(f"{NAME}/{name}", TIME)
            entry.compress_type, entry.external_attr = zipfile.ZIP_DEFLATED, 0o644 << 16
            archive.writestr(entry, content)
    return path


def contents(course: Course) -> Iterator[tuple[str, bytes]]:
    """The files of the archive, as (name, bytes)."""
    labs = course.labs
    for lab in labs:
        yield f"labs/{lab}/{lab}.ipynb", released(course, lab).encode()
    for path in sorted((course.root / "lib" / "mlsyslab").rglob("*")):
        parts = path.relative_to(course.root).parts
        if path.is_file() and path.suffix != ".pyc" and not set(parts) & set(LEFT_OUT) and not path.is_symlink():
            yield "/".join(parts), path.read_bytes()
    yield "requirements.txt", requirements(course).encode()
    yield "README.md", START.format(labs="\n".join(f"- `labs/{lab}/{lab}.ipynb`" for lab in labs)).encode()
    for name in ("pyproject.toml", "LICENSE"):
        yield name, (course.root / name).read_bytes()


def requirements(course: Course) -> str:
    """Those lines of the course's requirements that students need. Raises CourseError where one is missing."""
    lines = (course.root / "requirements.txt").read_text(encoding="utf-8").splitlines()
    found = {name: line for line in lines for name in NEEDED if re.match(rf"{name}\s*[=<>~!]", line)}
    if missing := set(NEEDED) - set(found):
        raise CourseError(f"requirements.txt doesn't name {', '.join(sorted(missing))}")
    return "\n".join(found.values()) + "\n"
