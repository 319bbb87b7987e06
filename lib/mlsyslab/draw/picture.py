"""A picture in SVG that reads on light and dark pages, on paper, by screen readers and without telling colours apart.

Shapes get their colours from the classes of `STYLE` and never carry meaning by colour alone: place, label or outline
says the same. Colours follow the colour-blind safe palette of Okabe and Ito (2008).
"""

from __future__ import annotations

from html import escape
from os import PathLike
from typing import NamedTuple


class Colour(NamedTuple):
    """Fill and outline of one kind of thing, on a light and on a dark page."""

    fill: str
    edge: str
    dark_fill: str
    dark_edge: str


#: What pictures tell apart. Text of colour `ink` has a contrast of 7:1 or more on every fill.
COLOURS = {
    "compute": Colour("#cfeadf", "#00795a", "#0f4a3a", "#5fd0ac"),
    "combine": Colour("#fbe2ad", "#9a6200", "#5a3d00", "#f2b84b"),
    "send": Colour("#cfe3f6", "#0063a0", "#0d3d63", "#6db8ee"),
    "recv": Colour("#eef6fc", "#0063a0", "#12293b", "#6db8ee"),
    "mark": Colour("#f9d3c4", "#b34700", "#6a2a08", "#ff9a63"),
    "quiet": Colour("#f1f3f5", "#9aa5b1", "#2a323b", "#6b7885"),
}

_LIGHT = {"ink": "#1b2733", "soft": "#566270", "rule": "#d5dbe1"} | {
    name + part: value for name, c in COLOURS.items() for part, value in (("", c.fill), ("-edge", c.edge))}
_DARK = {"ink": "#eef2f6", "soft": "#aeb9c5", "rule": "#44505c"} | {
    name + part: value for name, c in COLOURS.items() for part, value in (("", c.dark_fill), ("-edge", c.dark_edge))}


def _variables(values: dict[str, str]) -> str:
    return "".join(f"--{name}:{value};" for name, value in values.items())


STYLE = (
    ".mls-figure{overflow-x:auto;text-align:center}"
    f".mls{{{_variables(_LIGHT)}font:13px 'Source Sans 3',system-ui,sans-serif}}"
    f"[data-theme=dark] .mls,[data-jp-theme-light=false] .mls{{{_variables(_DARK)}}}"
    ".mls text{fill:var(--ink)}.mls .soft{fill:var(--soft)}.mls .small{font-size:11px}.mls .bold{font-weight:600}"
    ".mls .mid{text-anchor:middle}.mls .end{text-anchor:end}"
    ".mls line,.mls path{stroke:var(--soft);fill:none}.mls .rule{stroke:var(--rule)}"
    ".mls path.tip{fill:var(--soft);stroke:none}"
    ".mls .recv{stroke-dasharray:3 2}"
    + "".join(f".mls .{name}{{fill:var(--{name});stroke:var(--{name}-edge)}}" for name in COLOURS)
)


def number(x: float) -> str:
    """A coordinate in as few characters as a tenth of a pixel needs."""
    return f"{x:.1f}".rstrip("0").rstrip(".") if x else "0"


class Picture:
    """An SVG picture of `width` x `height` px to which shapes are added, from back to front.

    title: what the picture is, in a few words; description: what it shows. Both are read out by screen readers.
    A page shows the picture by itself when it is the last value of a cell.

    classes: names of `STYLE`, apart by spaces: a kind ("send", "compute", …) for shapes; "soft", "small", "bold", "mid"
    and "end" (of the anchor) for text.
    """

    #: The style sheet of this kind of picture.
    css = STYLE

    def __init__(self, width: float, height: float, title: str, description: str = ""):
        self.width, self.height, self.title, self.description = width, height, title, description
        self.parts: list[str] = []

    def _add(self, tag: str, classes: str, inside: str = "", **attributes: float | str) -> None:
        values = "".join(f' {name.replace("_", "-")}="{number(v) if isinstance(v, (int, float)) else v}"'
                         for name, v in attributes.items())
        named = f' class="{classes}"' if classes else ""
        self.parts.append(f"<{tag}{named}{values}>{inside}</{tag}>" if inside else f"<{tag}{named}{values}/>")

    def rect(self, x: float, y: float, width: float, height: float, classes: str, tip: str = "", round: float = 2) -> None:
        """A box with its left upper corner at (x, y); `tip` is shown under the pointer."""
        inside = f"<title>{escape(tip)}</title>" if tip else ""
        self._add("rect", classes, inside, x=x, y=y, width=width, height=height, rx=round)

    def circle(self, x: float, y: float, radius: float, classes: str) -> None:
        """A circle around (x, y)."""
        self._add("circle", classes, cx=x, cy=y, r=radius)

    def line(self, x1: float, y1: float, x2: float, y2: float, classes: str = "") -> None:
        """A straight line."""
        self._add("line", classes, x1=x1, y1=y1, x2=x2, y2=y2)

    def arrow(self, x1: float, y1: float, x2: float, y2: float, bend: float = 0) -> None:
        """An arrow from (x1, y1) to (x2, y2), bent to its left by `bend` px in the middle."""
        length = max(((x2 - x1) ** 2 + (y2 - y1) ** 2) ** 0.5, 1e-9)
        across_x, across_y = (y2 - y1) / length, -(x2 - x1) / length
        control_x, control_y = (x1 + x2) / 2 + 2 * bend * across_x, (y1 + y2) / 2 + 2 * bend * across_y
        bent = "M{} {}Q{} {} {} {}".format(*map(number, (x1, y1, control_x, control_y, x2, y2)))
        self._add("path", "", d=bent)
        along = max(((x2 - control_x) ** 2 + (y2 - control_y) ** 2) ** 0.5, 1e-9)
        ux, uy = (x2 - control_x) / along, (y2 - control_y) / along
        left, right = ((x2 - 6 * ux - 3 * uy, y2 - 6 * uy + 3 * ux), (x2 - 6 * ux + 3 * uy, y2 - 6 * uy - 3 * ux))
        self._add("path", "tip", d="M{} {}L{} {}L{} {}Z".format(*map(number, (x2, y2, *left, *right))))

    def text(self, x: float, y: float, words: str, classes: str = "") -> None:
        """A line of text whose baseline starts at (x, y), or is centred there ("mid"), or ends there ("end")."""
        self._add("text", classes, escape(words), x=x, y=y)

    def svg(self, style: bool = True) -> str:
        """The picture as text; without `style` it needs `STYLE` on its page, as frames of a widget have it."""
        described = f"<desc>{escape(self.description)}</desc>" if self.description else ""
        css = f"<style>{self.css}</style>" if style else ""
        w, h = number(self.width), number(self.height)
        least = number(0.75 * self.width)  # px; where there is less room, the picture scrolls instead of becoming too small
        return (f'<svg xmlns="http://www.w3.org/2000/svg" class="mls" role="img" viewBox="0 0 {w} {h}" width="{w}" '
                f'height="{h}" style="max-width:100%;min-width:{least}px;height:auto"><title>{escape(self.title)}</title>'
                f'{described}{css}{"".join(self.parts)}</svg>')

    def save(self, path: str | PathLike) -> None:
        """Write the picture into an .svg file."""
        with open(path, "w", encoding="utf-8") as file:
            file.write(self.svg())

    def _repr_html_(self) -> str:
        return f'<div class="mls-figure">{self.svg()}</div>'

    def _repr_svg_(self) -> str:
        return self.svg()
