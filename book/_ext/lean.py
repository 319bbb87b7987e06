"""Leaves out of a page's widgets what the browser assumes anyway: a fifth of what a page with many frames weighs."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import cache
from typing import Any

import ipywidgets
from sphinx.application import Sphinx

STATE = "application/vnd.jupyter.widget-state+json"


@cache
def defaults() -> dict[str, dict[str, Any]]:
    """What each model starts with, by its name; a browser's model starts with the same."""
    return {kind._model_name.default_value: {name: plain(trait.default_value)
                                             for name, trait in kind.class_traits(sync=True).items()}
            for kind in kinds(ipywidgets.Widget)}


def kinds(kind: type[ipywidgets.Widget]) -> Iterator[type[ipywidgets.Widget]]:
    """A class of widgets, and all that derive from it."""
    yield kind
    for derived in kind.__subclasses__():
        yield from kinds(derived)


def plain(value: Any) -> Any:
    """A value as JSON has it."""
    return list(value) if isinstance(value, tuple) else value


def lean(text: str) -> str:
    """The state of a page's widgets without the values that a model starts with."""
    whole = json.loads(text)
    for model in whole["state"].values():
        known = defaults().get(model["model_name"], {})
        model["state"] = {name: value for name, value in model["state"].items()
                          if name not in known or known[name] != value}
    return json.dumps(whole, separators=(",", ":"))


def lighten(app: Sphinx, pagename: str, templatename: str, context: dict[str, Any], doctree: Any) -> None:
    for file in context["script_files"]:
        if file.attributes.get("type") == STATE:
            file.attributes["body"] = lean(file.attributes["body"])


def setup(app: Sphinx) -> dict[str, bool]:
    app.connect("html-page-context", lighten, priority=950)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
