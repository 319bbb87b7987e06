"""A lab's source as a notebook: `solutions/LAB.py`, in jupytext's percent format, is where a lab is written."""

from __future__ import annotations

import os
from pathlib import Path

from nbformat import NotebookNode

from autograder.course import Course, write
from autograder.errors import CourseError

KERNEL = {"display_name": "Python 3", "language": "python", "name": "python3"}
# What nbgrader wants to find with every cell of its own; a source need only name what differs.
CELL = {"grade": False, "locked": False, "solution": False, "task": False, "schema_version": 3}


def to_notebook(source: Path) -> NotebookNode:
    """Read a lab's source. The same source gives the same notebook, byte for byte, whoever makes it and when."""
    import jupytext
    from nbformat.v4 import new_notebook

    try:
        written = jupytext.reads(source.read_text(encoding="utf-8"), fmt="py:percent")
    except Exception as error:
        raise CourseError(f"{source} can't be read as cells in jupytext's percent format: {error}") from error
    _complete(written.cells, source)
    _name(written.cells)
    about = {"kernelspec": KERNEL, "language_info": {"name": "python"}}
    if "mlsyslab" in written.metadata:  # what the lab asks for, see `judge.lab.Lab`
        about["mlsyslab"] = written.metadata["mlsyslab"]
    return new_notebook(cells=written.cells, metadata=about)


def _complete(cells: list[NotebookNode], source: Path) -> None:
    """Fill in each nbgrader cell's metadata; what is no solution is locked where it doesn't say otherwise."""
    seen = set()
    for cell in cells:
        for layout in ("lines_to_next_cell", "lines_to_end_of_cell_marker", "cell_marker"):  # jupytext's, of the text file
            cell.metadata.pop(layout, None)
        if "nbgrader" not in cell.metadata:
            continue
        given = cell.metadata["nbgrader"]
        name = given.get("grade_id")
        if not name or name in seen:
            wrong = f"the grade_id {name!r} is given to two cells" if name else "an nbgrader cell has no grade_id"
            raise CourseError(f"{source}: {wrong}; the cell begins {cell.source[:60]!r}")
        seen.add(name)
        locked = not given.get("solution", False)
        cell.metadata["nbgrader"] = NotebookNode({**CELL, "locked": locked, **given})


def _name(cells: list[NotebookNode]) -> None:
    """Give every cell an id: its grade_id, or a count from the last cell that had one. Jupytext keeps no ids."""
    last, count = "start", 0
    for cell in cells:
        if "nbgrader" in cell.metadata:
            last, count = cell.metadata["nbgrader"]["grade_id"], 0
            cell["id"] = last
        else:
            count += 1
            cell["id"] = f"{last}-{count}"


def make_notebook(course: Course, lab: str) -> Path:
    """Put the source's notebook where nbgrader looks for it, unless it is there already.

    Its time of change is set to its source's, so that it is made again whenever the two differ.
    """
    from nbformat import writes

    source, notebook = course.source(lab), course.notebook(lab)
    stamp = max(source.stat().st_mtime_ns, Path(__file__).stat().st_mtime_ns)
    if not notebook.exists() or notebook.stat().st_mtime_ns != stamp:
        write(notebook, writes(to_notebook(source)) + "\n")
        os.utime(notebook, ns=(stamp, stamp))
    return notebook


def make_notebooks(course: Course) -> None:
    for lab in course.labs:
        make_notebook(course, lab)
