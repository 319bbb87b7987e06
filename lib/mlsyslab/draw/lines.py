"""Curves over a linear or a logarithmic axis: they differ by colour and by dash, and have their names above the plot."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from mlsyslab.draw.picture import Picture, number
from mlsyslab.draw.plot import CSS, RIGHT, ROW, WIDTH, rows_of, write_names
from mlsyslab.draw.timeline import ticks

LEFT, BOTTOM, HEIGHT = 52, 42, 310  # px beside and below the plot; of the picture, without its rows of names

Points = Sequence[tuple[float, float]]


def lines(curves: Mapping[str, Points], title: str, x_name: str, y_name: str, *, x_log: bool = False, y_log: bool = False,
          x_span: tuple[float, float] | None = None, y_span: tuple[float, float] | None = None, marks: bool = False,
          description: str = "") -> Picture:
    """Plot curves of (x, y) by name.

    x_log, y_log: whether an axis is logarithmic.  x_span, y_span: what the axes span, by default what the curves do (from 0
    where linear); what is beyond lies on the edge.  marks: whether to mark the points.
    """
    if not curves or any(len(points) < 2 for points in curves.values()):
        raise ValueError("lines needs at least one curve, and at least two points in each")
    xs = [x for points in curves.values() for x, _ in points if math.isfinite(x)]
    ys = [y for points in curves.values() for _, y in points if math.isfinite(y)]
    if x_log and min(xs) <= 0 or y_log and min(ys) <= 0:
        raise ValueError("a logarithmic axis shows values above 0 only")
    spans = (x_span or ((min(xs), max(xs)) if x_log else (min(0.0, *xs), max(xs))),
             y_span or ((min(ys) / 1.2, max(ys) * 1.2) if y_log else (min(0.0, *ys), max(ys) * 1.05)))
    ends = "; ".join(f"{name} ends at {points[-1][1]:.3g}" for name, points in curves.items())
    return _Lines(curves, title, (x_name, y_name), spans, (x_log, y_log), marks,
                  description or f"{y_name} over {x_name}: {ends}.")


class _Lines(Picture):
    css = CSS

    def __init__(self, curves, title, names, spans, logs, marks, description):
        rows = ROW * rows_of([*curves])
        super().__init__(WIDTH, HEIGHT + rows, title, description)
        self.spans, self.logs, self.top = spans, logs, 46 + rows
        self.text(8, 14, title, "bold")
        write_names(self, {name: look for look, name in enumerate(curves)}, 34)
        self._axes(*names)
        for look, points in enumerate(curves.values()):
            d = "L".join(f"{number(self.x(x))} {number(self.y(y))}" for x, y in points)
            self._add("path", f"curve c{look}", d=f"M{d}")
            for x, y in points if marks else ():
                self.circle(self.x(x), self.y(y), 3, f"p{look}")

    def _place(self, value: float, axis: int) -> float:
        """Where a value lies on an axis, 0 … 1."""
        low, high = self.spans[axis]
        value = min(max(value, low), high) if math.isfinite(value) else high
        return math.log(value / low) / math.log(high / low) if self.logs[axis] else (value - low) / (high - low)

    def x(self, value: float) -> float:
        return LEFT + (self.width - LEFT - RIGHT) * self._place(value, 0)

    def y(self, value: float) -> float:
        return self.height - BOTTOM - (self.height - self.top - BOTTOM) * self._place(value, 1)

    def _axes(self, x_name: str, y_name: str) -> None:
        bottom, right = self.height - BOTTOM, self.width - RIGHT
        for tick in self._ticks(0):
            self.line(self.x(tick), self.top, self.x(tick), bottom, "grid")
            self.text(self.x(tick), bottom + 16, short(tick), "soft small mid")
        for tick in self._ticks(1):
            self.line(LEFT, self.y(tick), right, self.y(tick), "grid")
            self.text(LEFT - 7, self.y(tick) + 4, short(tick), "soft small end")
        self.text((LEFT + right) / 2, bottom + 36, x_name, "soft mid")
        self.text(8, self.top - 10, y_name, "soft")

    def _ticks(self, axis: int) -> list[float]:
        low, high = self.spans[axis]
        if not self.logs[axis]:
            step = ticks(high - low, 7)[1]
            return [step * k for k in range(math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9) + 1)]
        powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
        factors = (1,) if high / low > 1e3 else (1, 2, 5)
        return [f * 10.0**power for power in powers for f in factors if low <= f * 10.0**power <= high]


def short(value: float) -> str:
    """A tick in few characters: 20k, 0.5."""
    for power, unit in ((9, "G"), (6, "M"), (3, "k")):
        if abs(value) >= 10**power:
            return f"{value / 10**power:g}{unit}"
    return f"{value:g}"
