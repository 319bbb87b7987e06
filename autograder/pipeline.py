"""Run nbgrader's preprocessors over a notebook in memory, with no files, as its converters do with files."""

from __future__ import annotations

from collections.abc import Sequence

from nbconvert.exporters import Exporter, NotebookExporter
from nbformat import NotebookNode
from traitlets.config import Config

from autograder.course import Course


def preprocess(notebook: NotebookNode, preprocessors: Sequence, course: Course, lab: str, student: str = ".",
               config: Config | None = None, exporter: type[Exporter] = NotebookExporter) -> str:
    """The notebook after all `preprocessors`, as the text of its file, or of the page that `exporter` makes.

    config: added to the course's own.
    """
    settings = course.config()
    settings.Exporter.default_preprocessors = []
    settings.merge(config or Config())
    made = exporter(config=settings)
    for preprocessor in preprocessors:
        made.register_preprocessor(preprocessor)
    about = {"student": student, "assignment": lab, "notebook": lab, "db_url": course.db_url}
    text, _ = made.from_notebook_node(notebook, resources={"unique_key": lab, "nbgrader": about})
    return text
