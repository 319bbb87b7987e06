"""The look and the behaviour of every page: its style sheet, its script, and what the theme leaves undone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from sphinx.application import Sphinx

STATIC = Path(__file__).parent.parent / "_static"


def add_static(app: Sphinx) -> None:
    """Serve `book/_static`, without Jupyter Book's habit of putting every file of a static path on every page."""
    app.config.html_static_path.append(str(STATIC))


def drop_thebe(app: Sphinx, pagename: str, templatename: str, context: dict[str, Any], doctree: Any) -> None:
    """Take out sphinx-thebe, which the theme brings along: it is declared twice (an error in the browser) and unused."""
    def kept(file: Any) -> bool:
        words = f"{file.filename} {file.attributes.get('body', '')}".lower()
        return "thebe" not in words

    for files in ("script_files", "css_files"):
        context[files] = [file for file in context[files] if kept(file)]


def inline_basic(app: Sphinx, error: Exception | None) -> None:
    """Put Sphinx's basic.css into the theme's style sheet, which imports it by a path that tools such as axe misread."""
    theme, basic = (Path(app.outdir, "_static", name) for name in ("styles/theme.css", "basic.css"))
    if error is None and theme.exists():
        theme.write_text(theme.read_text().replace('@import "../basic.css";', basic.read_text()))


def setup(app: Sphinx) -> dict[str, bool]:
    app.connect("builder-inited", add_static)
    app.connect("html-page-context", drop_thebe, priority=900)
    app.connect("build-finished", inline_basic)
    app.add_css_file("book.css")
    app.add_js_file("book.js", loading_method="defer")
    return {"parallel_read_safe": True, "parallel_write_safe": True}
