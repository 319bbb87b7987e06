"""The steps of nbgrader that this course does otherwise; `nbgrader autograde` and the formgrader use them too."""

from __future__ import annotations

from copy import deepcopy

from nbformat import NotebookNode
from nbgrader import preprocessors
from traitlets import Bool

from autograder.course import Course
from autograder.limits import Limits


class DeduplicateIds(preprocessors.DeduplicateIds):
    """Of cells with one name the last counts. nbgrader leaves the others with metadata that its next step refuses."""

    def preprocess(self, nb: NotebookNode, resources: dict) -> tuple[NotebookNode, dict]:
        nb, resources = super().preprocess(nb, resources)
        for cell in nb.cells:
            if cell.metadata.get("nbgrader") == {}:
                del cell.metadata["nbgrader"]
        return nb, resources


class OverwriteCells(preprocessors.OverwriteCells):
    """Test cells of an older version of the lab count no more. nbgrader leaves them with metadata that fails its checks."""

    def preprocess_cell(self, cell: NotebookNode, resources: dict, cell_index: int) -> tuple[NotebookNode, dict]:
        cell, resources = super().preprocess_cell(cell, resources, cell_index)
        if "nbgrader" in cell.metadata and "grade_id" not in cell.metadata.nbgrader:
            del cell.metadata["nbgrader"]
        return cell, resources


class SandboxedExecute(preprocessors.Execute):
    """Runs the notebook in the sandbox. `Execute.timeout` is the limit of one cell, in seconds."""

    unsafe = Bool(False, help="Run submissions without a sandbox, with all your files in reach.").tag(config=True)

    def preprocess(self, nb: NotebookNode, resources: dict) -> tuple[NotebookNode, dict]:
        from autograder.run import execute

        course = Course.at(self.config.CourseDirectory.root)
        execute(nb, Limits(cell=self.timeout), course.seed(), self.unsafe)
        return nb, resources


class SaveScores(preprocessors.SaveAutoGrades):
    """Saves the scores that nbgrader reads from a cell's output, but a warning on stderr costs no points."""

    def _add_score(self, cell: NotebookNode, resources: dict) -> None:
        super()._add_score(without_stderr(cell), resources)


def without_stderr(cell: NotebookNode) -> NotebookNode:
    """A copy of a cell that shows nothing of what was written to stderr."""
    cell = deepcopy(cell)
    if cell.cell_type == "code":
        cell.outputs = [output for output in cell.outputs if output.get("name") != "stderr"]
    return cell
