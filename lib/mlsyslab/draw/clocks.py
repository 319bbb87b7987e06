"""Lanes on one clock: who did what when, and when nothing was done."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from mlsyslab.draw.actions import CSS, IDLE, LANE, LEGEND, Entry, in_lines, write
from mlsyslab.draw.picture import Picture, number
from mlsyslab.draw.timeline import ticks, unit_of

GAP, HEAD, AXIS = 6, 26, 42  # px between lanes, above a group of them, below all
LEFT, RIGHT = 74, 16  # px beside the lanes


@dataclass(frozen=True)
class Cell:
    """Something on the clock.  name: what stands in it.  look: "F" (blue), "B" (green), "I" (yellow) or "W" (dark)."""

    start: float
    end: float
    name: str
    look: str = "F"


@dataclass(frozen=True)
class Lane:
    """What one worker did, or one of a rank's two hands.  cells: in order of time."""

    name: str
    cells: Sequence[Cell]

    def gaps(self, until: float) -> list[tuple[float, float]]:
        """When nothing was done, from 0 to `until`."""
        gaps, now = [], 0.0
        for cell in self.cells:
            if cell.start > now:
                gaps.append((now, cell.start))
            now = max(now, cell.end)
        return gaps + [(now, until)] * (now < until)


@dataclass(frozen=True)
class Group:
    """Lanes under a heading.  facts: what stands at its right.  end: when the run ended, in s."""

    name: str
    facts: str
    lanes: Sequence[Lane]
    end: float


class Lanes(Picture):
    """Groups of lanes below one another on one clock: a stroke a cell, fine lines where nothing is done.

    until: seconds that the axis spans, so that pictures can be compared.  unit: what it counts, where it isn't seconds.
    legend: what is to be explained.
    """

    css = CSS

    def __init__(self, groups: Sequence[Group], title: str, *, until: float | None = None, unit: str | None = None,
                 width: float = 680, legend: Sequence[Entry] = (IDLE,)):
        self.until = max(group.end for group in groups) if until is None else until
        self.unit = (1.0, unit) if unit else unit_of(self.until)
        self.legend = in_lines(legend, width - LEFT)
        self.bottom = sum(HEAD + len(group.lanes) * (LANE + GAP) for group in groups)
        words = " ".join(f"{group.name}: {group.facts}." for group in groups)
        super().__init__(width, self.bottom + AXIS + LEGEND * len(self.legend), title, words)
        self.scale = (width - LEFT - RIGHT) / self.until
        self._axis()
        top = 0.0
        for group in groups:
            self.text(LEFT, top + 16, group.name, "bold")
            self.text(width - RIGHT, top + 16, group.facts, "soft small end")
            for k, lane in enumerate(group.lanes):
                self._lane(lane, top + HEAD + k * (LANE + GAP), group.end)
            top += HEAD + len(group.lanes) * (LANE + GAP)
        write(self, self.legend, LEFT, self.height - 6 - LEGEND * (len(self.legend) - 1))

    def x(self, seconds: float) -> float:
        return LEFT + seconds * self.scale

    def _axis(self) -> None:
        unit, name = self.unit
        for tick in ticks(self.until / unit, 10):
            self.line(self.x(tick * unit), HEAD, self.x(tick * unit), self.bottom, "rule")
            self.text(self.x(tick * unit), self.bottom + 14, f"{tick:g}", "soft small mid")
        self.text(self.width - RIGHT, self.bottom + 28, f"time in {name}", "soft small end")

    def _lane(self, lane: Lane, top: float, end: float) -> None:
        middle = top + LANE / 2
        self.text(LEFT - 9, middle + 4.5, lane.name, "end")
        self._strokes("hatch", lane.gaps(end), middle, 0.0)
        self._strokes("under", [(cell.start, cell.end) for cell in lane.cells], middle, 0.0)
        for look in sorted({cell.look for cell in lane.cells}):
            self._strokes(f"cell {look}0", [(c.start, c.end) for c in lane.cells if c.look == look], middle, 0.5)
        for ink, looks in (("in", "FBI"), ("in white", "W")):
            named = [(cell.name, self.x((cell.start + cell.end) / 2)) for cell in lane.cells if cell.look in looks
                     and 6 * len(cell.name) + 2 <= (cell.end - cell.start) * self.scale]
            for name, x in named:
                self._add("text", ink, name, font_size=11, x=x, y=middle + 4)

    def _strokes(self, look: str, spans: Sequence[tuple[float, float]], y: float, edge: float) -> None:
        """Horizontal strokes as one path, each shorter by `edge` px at both ends."""
        d = ""
        for start, end in spans:
            left, right = self.x(start), self.x(end)
            trim = min(edge, (right - left) / 8)
            d += f"M{number(left + trim)} {number(y)}H{number(right - trim)}"
        if d:
            self._add("path", look, d=d)
