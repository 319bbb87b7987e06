"""What a notebook that was run has earned."""

from __future__ import annotations

from dataclasses import dataclass

from nbformat import NotebookNode
from nbgrader.utils import determine_grade, is_grade, is_solution

from autograder.errors import NeedsPerson
from autograder.preprocessors import without_stderr


@dataclass(frozen=True)
class Exercise:
    """A solution cell and the cells that grade it: points of each by its grade_id."""

    name: str
    points: dict[str, float]

    @property
    def most(self) -> float:
        return sum(self.points.values())


def exercises_of(source: NotebookNode) -> list[Exercise]:
    """The exercises of a lab, in order: a test cell belongs to the last solution cell before it."""
    found: list[Exercise] = []
    for cell in source.cells:
        about = cell.metadata.get("nbgrader", {})
        if is_solution(cell):
            found.append(Exercise(about["grade_id"], {}))
        if is_grade(cell):
            if not found:
                found.append(Exercise(about["grade_id"], {}))
            found[-1].points[about["grade_id"]] = float(about["points"])
    return [exercise for exercise in found if exercise.points]


def scores(notebook: NotebookNode, lab: list[Exercise]) -> dict[str, float | None]:
    """The points of every graded cell, by nbgrader's rule, but for stderr; None where a person has to give them."""
    try:
        given = {cell.metadata["nbgrader"]["grade_id"]: determine_grade(without_stderr(cell))[0]
                 for cell in notebook.cells if is_grade(cell)}
    except (ValueError, KeyError) as error:
        raise NeedsPerson(f"a test cell's result can't be taken as points: {error}") from error
    if absent := [name for exercise in lab for name in exercise.points if name not in given]:
        raise NeedsPerson(f"it lacks the test cells {', '.join(absent)}")
    return given
