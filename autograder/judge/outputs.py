"""What a cell shows, as a notebook keeps it, up to so many bytes."""

from __future__ import annotations

from nbformat import NotebookNode, from_dict

FLOOD = 64  # times what a cell may show: then it is ended
CUT = "[the rest of this cell's output was cut off]\n"
SHOWN = ("text/plain", "text/html", "text/markdown", "text/latex", "image/png", "image/jpeg", "image/svg+xml")


def made(kind: str, **content: object) -> NotebookNode:
    """An output of this kind. nbformat's own maker looks each up in the schema of notebooks, which takes a millisecond."""
    return from_dict({"output_type": kind, **content})


class Outputs(list):
    """most: bytes; what goes beyond is cut off.  cut: whether something was.  flooded: whether it is hopeless."""

    def __init__(self, most: int):
        super().__init__()
        self.most, self.used, self.cut = most, 0, False

    @property
    def flooded(self) -> bool:
        return self.used > FLOOD * self.most > 0

    def room(self, size: int) -> bool:
        """Whether that many bytes more may be kept."""
        self.used += size
        if self.used > self.most and not self.cut:
            self.cut = True
            self._add(made("stream", name="stderr", text=CUT))
        return not self.cut

    def stream(self, name: str, text: str) -> None:
        if text and self.room(len(text)):
            self._add(made("stream", name=name, text=text))

    def _add(self, output: NotebookNode) -> None:
        if self and self[-1].output_type == "stream" and self[-1].name == output.name:
            self[-1].text += output.text
        else:
            self.append(output)

    def display(self, kind: str, data: object) -> None:
        known = data.items() if isinstance(data, dict) else ()
        kept = {name: text for name, text in known if name in SHOWN and isinstance(text, str)}
        if kept and self.room(sum(map(len, kept.values()))):
            more = {"execution_count": None} if kind == "execute_result" else {}
            self.append(made("execute_result" if more else "display_data", data=kept, metadata={}, **more))

    def error(self, name: str, text: str, traceback: str = "") -> None:
        """Always kept: it tells why."""
        self.append(made("error", ename=name, evalue=text, traceback=(traceback or f"{name}: {text}").split("\n")))
