"""What is kept of a judged notebook: its file, as nbgrader's formgrader reads it, and the student's feedback.

The page is nbgrader's, with what was earned and why at its top. A browser runs nothing of it and loads nothing for it: what
a submission shows is sanitised, scripts are taken out, and a policy in the page forbids the rest. Hidden tests show what
they said, and not their code.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import cache, cached_property, partial
from html import escape
from typing import Any

import nbformat
from bleach import clean
from jinja2 import pass_context
from jinja2.runtime import Context
from nbconvert.exporters import HTMLExporter
from nbconvert.filters import Highlight2HTML
from nbconvert.preprocessors import CSSHTMLHeaderPreprocessor
from nbformat import NotebookNode
from nbgrader.converters import GenerateFeedback
from nbgrader.coursedir import CourseDirectory
from nbgrader.preprocessors import ClearHiddenTests, NbGraderPreprocessor
from nbgrader.utils import is_grade, is_solution
from traitlets import default

from autograder.course import Course
from autograder.outcome import GRADED, Outcome
from autograder.rebuild import ADDED

TAGS = {"h1", "h2", "h3", "h4", "h5", "h6", "p", "br", "hr", "ul", "ol", "li", "a", "em", "strong", "b", "i", "del", "sub",
        "sup", "code", "pre", "blockquote", "div", "span", "img", "table", "thead", "tbody", "tr", "th", "td"}  # of a text
SCRIPT = re.compile(r"<script\b.*?</script\s*>", re.DOTALL | re.IGNORECASE)
PICTURE = re.compile(r"""<img\b((?:[^>"']|"[^"]*"|'[^']*')*)>""", re.IGNORECASE)
POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; font-src data:; base-uri 'none'; form-action 'none'"
HEAD = (f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">')
UNSAFE = "graded without a sandbox: the submission ran with all files of the grader in reach"


class Scores(NbGraderPreprocessor):
    """Puts the points of an outcome where nbgrader's feedback page looks for them; `GetGrades` asks the gradebook."""

    def preprocess(self, nb: NotebookNode, resources: dict) -> tuple[NotebookNode, dict]:
        points = resources["points"]
        for cell in nb.cells:
            if is_solution(cell):
                cell.metadata.nbgrader.comment = None
            if is_grade(cell):
                cell.metadata.nbgrader.score = points.get(cell.metadata.nbgrader.grade_id) or 0.0
        most = sum(cell.metadata.nbgrader.points for cell in nb.cells if is_grade(cell))
        about = {"score": sum(filter(None, points.values())), "max_score": most, "late_penalty": 0}
        resources["nbgrader"].update(about)
        return nb, resources


class Hidden(ClearHiddenTests):
    """Takes the code of hidden tests out of test cells; what looks like it in a student's cell is the student's."""

    def preprocess_cell(self, cell: NotebookNode, resources: dict, cell_index: int) -> tuple[NotebookNode, dict]:
        if is_grade(cell) and not is_solution(cell):
            return super().preprocess_cell(cell, resources, cell_index)
        return cell, resources


class FeedbackExporter(HTMLExporter):
    """nbgrader's page with the reasons above it; nothing in it runs, and nothing is loaded for it."""

    def default_filters(self) -> Iterator[tuple[str, Any]]:
        yield from super().default_filters()
        yield "highlight_code", self.code2html

    @pass_context
    def code2html(self, context: Context, source: str, language: str | None = None, metadata: Any = None) -> str:
        colours = Highlight2HTML(pygments_lexer="python", parent=self)
        return self._once("code", context, source, lambda: colours(source, language, metadata))

    @pass_context
    def markdown2html(self, context: Context, source: str) -> str:
        made = partial(super().markdown2html, context, source)
        return self._once("text", context, source,
                          lambda: clean(made(), tags=TAGS, attributes=kept, protocols=("http", "https", "data")))

    @cached_property
    def known(self) -> dict[tuple[str, str], tuple[str, str]]:
        """What was made of the lab's own cells, and of which source, by kind and id."""
        return {}

    def _once(self, kind: str, context: Context, source: str, make: Callable[[], str]) -> str:
        """`make()`, or what came of it before: most cells of a page are the lab's own, and so in every submission."""
        cell = context.get("cell", {})
        if not cell or is_solution(cell) or cell.get("id", ADDED).startswith(ADDED):
            return make()
        before = self.known.get((kind, cell.id))
        if before is None or before[0] != source:
            before = self.known[kind, cell.id] = source, make()
        return before[1]

    @default("raw_mimetypes")
    def _no_raw_cells(self) -> list[str]:
        """Raw cells would be put into the page as they are."""
        return []

    def from_notebook_node(self, nb: NotebookNode, resources: dict | None = None, **more) -> tuple[str, dict]:
        # Not HTMLExporter's own way: it parses the whole page again to describe pictures, which takes longer than all else.
        page, resources = super(HTMLExporter, self).from_notebook_node(nb, self._init_resources(resources), **more)
        page = PICTURE.sub(described, SCRIPT.sub("", page))
        page = page.replace("<head>", f"<head>\n{HEAD}", 1)
        return page.replace("<body>", f"<body>\n{reasons(nb)}", 1), resources


def described(picture: re.Match[str]) -> str:
    """An `img` that says something to those who don't see it."""
    if re.search(r"\salt\s*=", picture[1]):
        return picture[0]
    return f'<img alt="No description has been provided for this image"{picture[1]}>'


def kept(tag: str, name: str, value: str) -> bool:
    """Whether an attribute stays in a text: links lead to pages, pictures are in the page itself."""
    if name == "src":
        return tag == "img" and value.startswith("data:image/")
    if name == "href":
        return tag == "a" and value.startswith(("https://", "http://", "#"))
    return name in ("class", "id", "alt", "title", "align")


def reasons(nb: NotebookNode) -> str:
    """What the tests said, for each graded cell, and what was odd about the submission."""
    rows = []
    for cell in nb.cells:
        if is_grade(cell):
            name = cell.metadata.nbgrader.grade_id
            errors = [output for output in cell.get("outputs", ()) if output.output_type == "error"]
            said = [f"{error.ename}: {error.evalue}" for error in errors]
            rows.append(f'<tr><td><a href="#{escape(name)}">{escape(name)}</a></td>'
                        f'<td><pre>{escape("; ".join(said)) or "passed"}</pre></td></tr>')
    about = nb.metadata.get("outcome", {})
    notes = "".join(f"<li>{escape(note)}</li>" for note in [*about.get("why", ()), *about.get("notes", ())])
    kind = f"<p>Outcome: <b>{escape(about['kind'])}</b></p>" if about.get("kind", GRADED) != GRADED else ""
    warning = f'<p role="alert"><b>{escape(UNSAFE)}</b></p>' if about.get("unsafe") else ""
    table = f'<table class="table"><tr><th>test</th><th>what it said</th></tr>{"".join(rows)}</table>'
    return f'<div class="container">{warning}{kind}{table}{f"<ul>{notes}</ul>" if notes else ""}</div>'


@cache
def exporter(course: Course) -> FeedbackExporter:
    """Made once, because that takes long."""
    config = course.config()
    settings = GenerateFeedback(coursedir=CourseDirectory(config=config), config=config).config.copy()
    settings.Exporter.default_preprocessors = []
    made = FeedbackExporter(config=settings)
    for step in (Scores, Hidden, CSSHTMLHeaderPreprocessor):
        made.register_preprocessor(step, enabled=True)
    return made


def graded_notebook(notebook: NotebookNode, outcome: Outcome, unsafe: bool = False) -> str:
    """The text of the notebook's file, in the folder `autograded`; how it ended stands in its metadata."""
    notebook.metadata["outcome"] = {"kind": outcome.kind, "why": outcome.why, "notes": outcome.notes, "unsafe": unsafe}
    return nbformat.writes(notebook) + "\n"


def feedback_page(text: str, outcome: Outcome, course: Course, lab: str) -> str:
    """The page that a student gets."""
    about = {"student": outcome.student, "assignment": lab, "notebook": lab, "db_url": course.db_url}
    page, _ = exporter(course).from_notebook_node(nbformat.reads(text, as_version=4), resources={
        "unique_key": lab, "nbgrader": about, "points": outcome.points})
    return page
