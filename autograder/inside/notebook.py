"""Cells of a notebook, run one after the other as a kernel would: magics, displays and all, but with nobody to ask."""

from __future__ import annotations

import os
from typing import Any

from IPython.core.displayhook import DisplayHook
from IPython.core.displaypub import DisplayPublisher
from IPython.core.interactiveshell import InteractiveShell
from traitlets.config import Config

from .line import Line

MOST = 4 << 20  # bytes of one display


def passed(data: dict[str, Any]) -> dict[str, str]:
    """What of a display goes out: text of every kind."""
    return {kind: text for kind, text in data.items() if isinstance(text, str) and len(text) < MOST}


class Publisher(DisplayPublisher):
    line: Line

    def publish(self, data, metadata=None, **_: Any) -> None:
        self.line.send("display", "display_data", passed(data))

    def clear_output(self, wait=False) -> None:
        self.line.send("clear")


class Hook(DisplayHook):
    line: Line

    def write_output_prompt(self) -> None:
        pass

    def write_format_data(self, data, metadata=None) -> None:
        self.line.send("display", "execute_result", passed(data))


class Shell(InteractiveShell):
    """IPython with no terminal, no history and no kernel."""

    line: Line

    def enable_gui(self, gui=None) -> None:
        """`%matplotlib inline` and its kind want none."""

    def ask_exit(self) -> None:
        """`exit` ends no kernel here."""

    def _showtraceback(self, kind, value, lines) -> None:
        self.line.send("error", str(getattr(kind, "__name__", kind)), str(value)[:20_000], "\n".join(lines)[:60_000])


class Notebook:
    """A shell and what its cells have defined."""

    def __init__(self, line: Line):
        for part in (Shell, Publisher, Hook):
            part.line = line
        os.environ.setdefault("IPYTHONDIR", "/tmp/ipython")
        config = Config()
        config.HistoryManager.enabled = False
        config.InteractiveShell.colors = "nocolor"
        self.shell = Shell.instance(config=config, displayhook_class=Hook, display_pub_class=Publisher)
        self.shell.compile.get_code_name = lambda *_: self.file
        self.file = ""

    def run(self, source: str, file: str) -> str | None:
        """Run one cell, whose code goes by the name `file`; returns what it raised, in one line, or None."""
        self.file = file
        result = self.shell.run_cell(source, store_history=False)
        error = result.error_before_exec or result.error_in_exec
        return None if error is None else f"{type(error).__name__}: {error}"[:1000]

    @property
    def names(self) -> dict[str, Any]:
        return self.shell.user_ns

    def kind(self, name: str) -> str:
        """What a name stands for: "missing", "function" or "value"."""
        if name not in self.names:
            return "missing"
        return "function" if callable(self.names[name]) else "value"
