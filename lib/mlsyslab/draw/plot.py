"""Curves on two logarithmic axes: bytes to the right, seconds upwards, the usual picture of what communication costs.

Curves differ by colour and by dash. Their names stand above the plot, where a phone shows them too.
"""

from __future__ import annotations

import math
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass

from mlsyslab.draw.picture import STYLE, Picture, number
from mlsyslab.draw.timeline import unit_of

#: Colour, shade (both named as in `picture`) and dash of the first, second, … curve.
LINES = (("send-edge", "send", "none"), ("mark-edge", "mark", "7 3"), ("compute-edge", "compute", "2 3"),
         ("combine-edge", "combine", "10 3 2 3"), ("soft", "quiet", "4 2"))
LEFT, RIGHT, BOTTOM = 54, 14, 42  # px round the plot
WIDTH = 428  # px, of which a phone has room for three quarters: the least that a picture shrinks to
ROW, SAMPLE = 18, 26  # px: a row of names, and the piece of a curve beside each

CSS = (STYLE + ".mls .curve,.mls .key{fill:none;stroke-width:2.2}.mls .grid{stroke:var(--rule);stroke-width:.7}"
       ".mls .won{stroke:none;fill-opacity:.5}"
       + "".join(f".mls .c{i}{{stroke:var(--{colour});stroke-dasharray:{dash}}}"
                 f".mls .p{i}{{fill:var(--{colour});stroke:none}}.mls text.p{i}{{fill:var(--{colour})}}"
                 f".mls .w{i}{{fill:var(--{shade})}}" for i, (colour, shade, dash) in enumerate(LINES)))


@dataclass(frozen=True)
class Curve:
    """A named row of (bytes, seconds); `points` are drawn as marks, lines are not."""

    name: str
    at: Sequence[tuple[float, float]]
    points: bool = False
    look: int | None = None  # which of LINES; by default its place among the curves


def named(names: Sequence[str]) -> list[tuple[int, float]]:
    """Row and x of each name, with a sample of its curve before it, in rows as wide as a plot."""
    found, row, x = [], 0, 8.0
    for name in names:
        wide = SAMPLE + 7.2 * len(name) + 12
        if found and x + wide > WIDTH + 12:
            row, x = row + 1, 8.0
        found.append((row, x))
        x += wide
    return found


def rows_of(names: Sequence[str]) -> int:
    """Rows that these names take."""
    return 1 + named(names)[-1][0] if names else 0


def write_names(picture: Picture, looks: Mapping[str, int], y: float, points: Container[str] = ()) -> None:
    """Write the names of curves, each behind a sample of its look, from `y` down.  points: names of those without a line."""
    for (name, look), (row, x) in zip(looks.items(), named([*looks]), strict=True):
        middle = y + ROW * row
        if name in points:
            picture.circle(x + (SAMPLE - 6) / 2, middle - 4, 3.6, f"p{look}")
        else:
            picture._add("path", f"key c{look}", d=f"M{number(x)} {number(middle - 4)}h{SAMPLE - 6}")
        picture.text(x + SAMPLE, middle, name, f"p{look}")


def loglog(curves: Sequence[Curve], title: str, description: str = "", *, height: float = 340,
           won: Sequence[tuple[float, float, int, str]] = (), x_name: str = "vector length n",
           limits: tuple[float, float] | None = None) -> Picture:
    """Plot curves of seconds over bytes.

    won: (from, to, look, name) of stretches of the x axis to shade, as "here the ring wins".
    height: px.  x_name: what the x axis counts.
    limits: seconds that the y axis spans (by default what the curves do).
    """
    return _LogLog(curves, title, description, height, x_name, limits).draw(won)


class _LogLog(Picture):
    css = CSS

    def __init__(self, curves, title, description, height, x_name, limits):
        if not curves or any(not curve.at for curve in curves):
            raise ValueError("loglog needs at least one curve, and at least one point in each")
        names = ROW * rows_of([curve.name for curve in curves if curve.name])
        self.top = names + 22
        super().__init__(WIDTH, height + names, title, description or title)
        self.curves = [(curve, i if curve.look is None else curve.look) for i, curve in enumerate(curves)]
        self.x_name = x_name
        ns = [n for curve in curves for n, _ in curve.at]
        ts = [t for curve in curves for _, t in curve.at if t > 0]
        self.ns, self.ts = (min(ns), max(ns)), limits or (min(ts) / 1.25, max(ts) * 1.25)

    def x(self, n: float) -> float:
        share = math.log(n / self.ns[0]) / math.log(self.ns[1] / self.ns[0])
        return LEFT + share * (self.width - LEFT - RIGHT)

    def y(self, t: float) -> float:
        share = math.log(max(t, self.ts[0]) / self.ts[0]) / math.log(self.ts[1] / self.ts[0])
        return self.height - BOTTOM - share * (self.height - self.top - BOTTOM)

    def draw(self, won) -> Picture:
        bottom, right = self.height - BOTTOM, self.width - RIGHT
        for first, last, look, name in won:
            x1, x2 = self.x(max(first, self.ns[0])), self.x(min(last, self.ns[1]))
            if x2 > x1:
                self.rect(x1, self.top, x2 - x1, bottom - self.top, f"won w{look}", round=0)
                if x2 - x1 > 6.5 * len(name):
                    self.text((x1 + x2) / 2, self.top - 6, name, f"small mid bold p{look}")
        self._axes(bottom, right)
        for curve, look in self.curves:
            if curve.points:
                for n, t in curve.at:
                    self.circle(self.x(n), self.y(t), 3.6, f"p{look}")
            else:
                d = "L".join(f"{number(self.x(n))} {number(self.y(t))}" for n, t in curve.at if t > 0)
                self._add("path", f"curve c{look}", d=f"M{d}")
        write_names(self, {curve.name: look for curve, look in self.curves if curve.name}, 14,
                    [curve.name for curve, _ in self.curves if curve.points])
        return self

    def _axes(self, bottom: float, right: float) -> None:
        every = 10 if self.ns[1] / self.ns[0] > 2**12 else 5 if self.ns[1] / self.ns[0] > 2**8 else 2
        first = math.ceil(math.log2(self.ns[0]) / every - 1e-9) * every
        for power in range(first, int(math.log2(self.ns[1]) + 1e-9) + 1, every):
            self.line(self.x(2**power), self.top, self.x(2**power), bottom, "grid")
            self.text(self.x(2**power), bottom + 16, size_of(2**power), "soft small mid")
        for t in ticks(*self.ts):
            self.line(LEFT, self.y(t), right, self.y(t), "grid")
            self.text(LEFT - 7, self.y(t) + 4, time_of(t), "soft small end")
        self.text((LEFT + right) / 2, bottom + 36, self.x_name, "soft mid")
        self.text(LEFT - 7, self.top - 6, "time", "soft small end")


def ticks(least: float, most: float) -> list[float]:
    """Powers of ten from `least` to `most`, and 2 and 5 times these where there would be few."""
    factors = (1, 2, 5) if most / least < 100 else (1,)
    powers = range(math.floor(math.log10(least)), math.ceil(math.log10(most)) + 1)
    return [f * 10.0**power for power in powers for f in factors if least <= f * 10.0**power <= most]


def size_of(n: float) -> str:
    """Bytes with their unit: 64 KiB."""
    for power, unit in ((30, "GiB"), (20, "MiB"), (10, "KiB")):
        if n >= 2**power:
            return f"{n / 2**power:.3g} {unit}"
    return f"{n:.3g} B"


def time_of(seconds: float) -> str:
    """Seconds with their unit: 12.5 µs."""
    unit, name = unit_of(seconds)
    return f"{seconds / unit:.3g} {name}"
