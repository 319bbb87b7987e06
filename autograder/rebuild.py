"""A submission as it will be judged: the lab's own cells, with the student's code in its places.

What a student hands in is a list of cells that may have been renamed, moved, copied, deleted or stripped of their metadata.
Only code counts: the cell of each exercise is found by its grade_id or id, then by the function that it defines, then by its
place; whatever else the student added runs where it stood. Tests, texts and the lab's own code are always the lab's.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

import nbformat
from nbformat import NotebookNode
from nbformat.v4 import new_code_cell, new_notebook

from autograder.inside.places import CELL
from autograder.judge.lab import SOLUTION, TEXT, Lab, Part

PICTURES = ("image/png", "image/jpeg", "image/gif")
BASE64 = re.compile(r"[A-Za-z0-9+/=\s]+")
ADDED = "added-"  # what the ids of added cells begin with
MARKS = re.compile(r"^(<{7} |={7}$|>{7} )", re.MULTILINE)


@dataclass
class Place:
    """A cell to be run or shown.  part: the lab's cell that it is; None for one that was added, `after` the one named."""

    cell: NotebookNode
    part: Part | None
    file: str
    after: str = ""


@dataclass
class Rebuilt:
    """notes: what was odd, and what was made of it.  doubts: for an exercise, why a person has to look at it."""

    notebook: NotebookNode
    places: list[Place]
    notes: list[str] = field(default_factory=list)
    doubts: dict[str, str] = field(default_factory=dict)


def rebuild(submitted: NotebookNode, lab: Lab, released: NotebookNode) -> Rebuilt:
    """The notebook to be judged.

    submitted: what was handed in, a valid notebook.  released: what the students were given.
    """
    return _Rebuilding(submitted, lab, released).result()


class _Rebuilding:
    def __init__(self, submitted: NotebookNode, lab: Lab, released: NotebookNode):
        self.cells, self.lab = list(submitted.cells), lab
        for cell in self.cells:
            cell.source = cell.source.replace("\r\n", "\n").replace("\r", "\n")
        self.stubs = {cell.get("id"): cell.source for cell in released.cells}
        self.notes: list[str] = []
        self.doubts: dict[str, str] = {}
        self.found: dict[int, int] = {}  # which of the submitted cells is which of the lab's: index -> number

    def result(self) -> Rebuilt:
        self._name_all()
        chosen = {part.number: self._choose(part) for part in self.lab.parts if part.role == SOLUTION}
        self._order(chosen)
        added = self._added(chosen)
        places, count = [], len(self.lab.parts)
        for part in (None, *self.lab.parts):
            if part is not None:
                places.append(self._own(part, chosen))
            for index in added.get(-1 if part is None else part.number, ()):
                cell = self._new(self.cells[index], f"{ADDED}{count}")
                places.append(Place(cell, None, CELL.format(count), part.name if part else "the start"))
                count += 1
        notebook = new_notebook(cells=[place.cell for place in places], metadata=self.lab.notebook.metadata)
        return Rebuilt(notebook, places, self.notes, self.doubts)

    # -- which cell is which ------------------------------------------------------------------------------------------

    def _name_all(self) -> None:
        """Find the lab's own cells among the submitted ones: by grade_id, id, or the very same text."""
        by_name = {part.name: part.number for part in self.lab.parts}
        by_id = {part.cell.get("id"): part.number for part in self.lab.parts}
        by_text = {self.stubs.get(part.cell.get("id"), part.cell.source).strip(): part.number for part in self.lab.parts}
        for index, cell in enumerate(self.cells):
            number = by_name.get(grade_id(cell), by_id.get(cell.get("id"), by_text.get(cell.source.strip())))
            if number is not None:
                self.found[index] = number

    def _choose(self, part: Part) -> int | None:
        """The index of the cell that holds this exercise."""
        named = [index for index, number in self.found.items() if number == part.number]
        stub = self.stubs.get(part.cell.get("id"), "").strip()
        if len(named) > 1:
            written = [index for index in named if self.cells[index].source.strip() != stub] or named
            self.notes.append(f"{part.name}: its cell is there {len(named)} times; the last one that was written in counts")
            for index in named:
                if index != written[-1]:
                    del self.found[index]
            named = written[-1:]
        if not named or (self.cells[named[0]].source.strip() in ("", stub)):
            elsewhere = self._defining(part)
            if elsewhere is not None:
                self.notes.append(f"{part.name}: found by the function that it defines; its own cell is "
                                  + ("missing" if not named else "empty"))
                for index in named:
                    del self.found[index]
                self.found[elsewhere] = part.number
                return elsewhere
        if not named and (index := self._between(part)) is not None:
            self.notes.append(f"{part.name}: found by its place, between the cells around it")
            self.found[index] = part.number
            return index
        if not named:
            self.notes.append(f"{part.name}: its cell is missing, so it counts as not written")
            return None
        if self.cells[named[0]].cell_type != "code":
            self.notes.append(f"{part.name}: its cell was turned into {self.cells[named[0]].cell_type}; it is run as code")
        return named[0]

    def _defining(self, part: Part) -> int | None:
        """The last cell that nobody has claimed and that defines what this exercise asks for."""
        functions = re.findall(r"^def (\w+)", self.stubs.get(part.cell.get("id"), part.cell.source), re.MULTILINE)
        if not functions:
            return None
        return next((index for index in reversed(range(len(self.cells))) if index not in self.found
                     and self.cells[index].cell_type == "code"
                     and all(re.search(rf"^def {name}\b", self.cells[index].source, re.M) for name in functions)), None)

    def _between(self, part: Part) -> int | None:
        """The only cell of code between those that come before and after this one in the lab."""
        before = [index for index, number in self.found.items() if number < part.number]
        after = [index for index, number in self.found.items() if number > part.number]
        span = range(max(before, default=-1) + 1, min(after, default=len(self.cells)))
        free = [index for index in span if index not in self.found and self.cells[index].cell_type == "code"
                and self.cells[index].source.strip()]
        return free[0] if len(free) == 1 else None

    def _order(self, chosen: dict[int, int | None]) -> None:
        indices = [index for index in chosen.values() if index is not None]
        if indices != sorted(indices):
            self.notes.append("its cells are in another order than the lab's; they are run in the lab's")

    def _added(self, chosen: dict[int, int | None]) -> dict[int, list[int]]:
        """The cells that the student added, by the lab's cell after which they stood."""
        added: dict[int, list[int]] = {}
        last = -1
        for index, cell in enumerate(self.cells):
            if index in self.found:
                last = self.found[index]
                self._changed(self.lab.parts[last], cell)
            elif cell.source.strip():
                added.setdefault(last, []).append(index)
        if count := sum(self.cells[index].cell_type == "code" for indices in added.values() for index in indices):
            self.notes.append(f"{count} added cell{'s' if count > 1 else ''} of code: run where they stood")
        return added

    def _changed(self, part: Part, cell: NotebookNode) -> None:
        own = self.stubs.get(part.cell.get("id"), part.cell.source)
        if part.role not in (SOLUTION, TEXT) and cell.source.strip() != own.strip():
            self.notes.append(f"{part.name}: it was changed; the lab's own was run")

    # -- cells --------------------------------------------------------------------------------------------------------

    def _own(self, part: Part, chosen: dict[int, int | None]) -> Place:
        cell = nbformat.from_dict(part.cell)
        if cell.cell_type == "code":
            cell.outputs, cell.execution_count = [], None
        if part.role == SOLUTION:
            index = chosen[part.number]
            cell.source = self.cells[index].source if index is not None else self.stubs.get(part.cell.get("id"), "")
            if MARKS.search(cell.source):
                self.doubts[part.name] = "it holds the marks of a merge conflict"
        return Place(cell, part, part.file)

    def _new(self, cell: NotebookNode, name: str) -> NotebookNode:
        if cell.cell_type == "code":
            return new_code_cell(cell.source, id=name)
        text = {"cell_type": cell.cell_type, "id": name, "metadata": {}, "source": cell.source}
        return nbformat.from_dict(text | attached(cell) if cell.cell_type == "markdown" else text)


def attached(cell: NotebookNode) -> dict[str, Any]:
    """The pictures attached to a text, and the text, which names no other attachment: of one that misses no page is made."""
    given = cell.get("attachments")
    found = {name: {kind: data for kind, data in kinds.items() if kind in PICTURES and BASE64.fullmatch(str(data))}
             for name, kinds in (given.items() if isinstance(given, dict) else ()) if isinstance(kinds, dict)}
    found = {name: kinds for name, kinds in found.items() if kinds}

    def named(reference: re.Match[str]) -> str:
        return reference[0] if reference[1] in found else f"missing:{reference[1]}"

    return {"attachments": found, "source": re.sub(r"attachment:([^\s)\"'>]*)", named, cell.source)}


def grade_id(cell: Any) -> str | None:
    about = cell.metadata.get("nbgrader")
    name = about.get("grade_id") if isinstance(about, dict) else None
    return name if isinstance(name, str) else None
