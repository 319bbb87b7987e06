"""How `nbgrader autograde` and the formgrader's button grade: as `python -m autograder grade` does."""

from __future__ import annotations

from copy import deepcopy

from nbformat import NotebookNode
from nbgrader import preprocessors
from traitlets import Bool, Float

from autograder.course import Course
from autograder.limits import Limits
from autograder.rebuild import rebuild
from autograder.work import Grader, Job


class Step(preprocessors.NbGraderPreprocessor):
    """What both steps have in common."""

    unsafe = Bool(False, help="Run submissions without a sandbox, with all your files in reach.").tag(config=True)
    timeout = Float(Limits.cell, help="Seconds that one cell may take.").tag(config=True)

    def grader(self, resources: dict) -> Grader:
        course = Course.at(self.config.CourseDirectory.root)
        return Grader(Job(course, resources["nbgrader"]["notebook"], Limits(cell=self.timeout), course.seed(), self.unsafe))


class Rebuild(Step):
    """The lab's own cells, with the student's code in its places."""

    def preprocess(self, nb: NotebookNode, resources: dict) -> tuple[NotebookNode, dict]:
        grader = self.grader(resources)
        return rebuild(nb, grader.lab, grader.released).notebook, resources


class Judged(Step):
    """The notebook after its cells were run in the sandbox and the tests outside of it."""

    def preprocess(self, nb: NotebookNode, resources: dict) -> tuple[NotebookNode, dict]:
        with self.grader(resources) as grader:
            return grader.judge.judge(rebuild(nb, grader.lab, grader.released)).notebook, resources


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
