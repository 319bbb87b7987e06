"""Rooflines: what a device can reach at each intensity, and where products and a GPT's operators stand under it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

from ipywidgets import VBox

from mlsyslab.draw.picture import STYLE, Picture, number
from mlsyslab.draw.plot import time_of
from mlsyslab.draw.widgets import explore
from mlsyslab.measure import Device, device, peak
from mlsyslab.measure.hardware import PRECISIONS
from mlsyslab.mfu import Roofline, matmul_flops, ridge, roofline, rooflines
from mlsyslab.model import Operator, published

LEFT, RIGHT, TOP, BOTTOM = 48, 22, 78, 42  # px round the plot
WIDTH, HEIGHT = 520, 330  # px
INTENSITIES, RATES = (0.1, 1e4), (1e11, 1e16)  # FLOPs a byte and FLOP/s that the axes span

CSS = STYLE + (".mls .ticks text{fill:var(--soft)}.mls path.grid{stroke:var(--rule);stroke-width:.7}"
               ".mls path.roof{stroke:var(--send-edge);stroke-width:2.4}"
               ".mls path.older{stroke:var(--soft);stroke-width:1.6}.mls .drop{stroke-dasharray:3 3}"
               ".mls .point{fill:var(--mark-edge);stroke:none}"
               + "".join(f".mls .{kind}.dot{{fill:var(--{kind}-edge);stroke:none}}" for kind in ("send", "mark", "compute")))


class _Plot(Picture):
    """The axes: FLOPs a byte to the right, FLOP/s upwards, both logarithmic."""

    css = CSS

    def __init__(self, title: str, description: str, height: float = HEIGHT):
        super().__init__(WIDTH, height, title, description)
        self.text(0, 14, title, "bold")
        x, y, right, bottom = self.x, self.y, WIDTH - RIGHT, height - BOTTOM
        across, up = decades(*INTENSITIES), decades(*RATES)
        grid = "".join(f"M{number(x(i))} {TOP}V{number(bottom)}" for i in across)
        self._add("path", "grid", d=grid + "".join(f"M{LEFT} {number(y(rate))}H{right}" for rate in up))
        below = [(x(i), bottom + 15, f"{i:,g}") for i in across]
        self._ticks("mid", [*below, ((LEFT + right) / 2, bottom + 33, "intensity, FLOPs a byte")])
        self._ticks("end", [(LEFT - 6, y(rate) + 4, f"{rate / 1e12:,g}") for rate in up])
        self.text(0, TOP - 10, "TFLOP/s", "soft small")

    def _ticks(self, anchor: str, words: Sequence[tuple[float, float, str]]) -> None:
        """Many small texts, said in few characters."""
        inside = "".join(f'<text x="{number(x)}" y="{number(y)}">{text}</text>' for x, y, text in words)
        self._add("g", f"ticks small {anchor}", inside)

    def x(self, intensity: float) -> float:
        return LEFT + (WIDTH - LEFT - RIGHT) * _share(intensity, INTENSITIES)

    def y(self, rate: float) -> float:
        return self.height - BOTTOM - (self.height - TOP - BOTTOM) * _share(rate, RATES)

    def roof(self, of: Device, top: float, classes: str = "roof") -> None:
        """Bandwidth's slope up to `top` FLOP/s, from there flat."""
        low, high = INTENSITIES
        slope, turn = of.bandwidth * 1e12, top / (of.bandwidth * 1e12)
        points = ((low, low * slope), (turn, top), (high, top))
        self._add("path", classes, d="M" + "L".join(f"{number(self.x(i))} {number(self.y(rate))}" for i, rate in points))


def _share(value: float, span: tuple[float, float]) -> float:
    low, high = span
    return math.log(min(max(value, low), high) / low) / math.log(high / low)


def decades(low: float, high: float) -> list[float]:
    """Powers of ten from low to high."""
    return [10.0**power for power in range(round(math.log10(low)), round(math.log10(high)) + 1)]


def rate_of(rate: float) -> str:
    """FLOP/s with a unit: 989 TFLOP/s."""
    for power, unit in ((15, "PFLOP/s"), (12, "TFLOP/s"), (9, "GFLOP/s"), (6, "MFLOP/s")):
        if rate >= 0.9995 * 10**power or power == 6:
            return f"{rate / 10**power:.3g} {unit}"
    raise AssertionError("the last unit takes all")


# -- one product ------------------------------------------------------------------------------------------------------

DEVICES = {"V100": "V100 SXM2", "A100": "A100 SXM 80GB", "H100": "H100 SXM", "H200": "H200", "B200": "B200"}
#: What readers choose, and the precision that it means: 16 bits are whichever 16-bit type the device computes in.
KINDS = {"fp32": "fp32", "TF32": "tf32", "16 bits": "bf16", "fp8": "fp8"}


def shapes(devices: Sequence[str] = ("A100", "H100", "B200"), precisions: Sequence[str] = ("fp32", "16 bits", "fp8"),
           m: Sequence[int] = (1, 16, 128, 1024, 8192), n: Sequence[int] = (64, 512, 4096, 16_384),
           p: Sequence[int] = (64, 512, 4096, 16_384)) -> VBox:
    """A widget: the product of an m x n by an n x p matrix under the roofline of a device, in a precision."""
    return explore(lambda device, precision, m, n, p: product(device, precision, m, n, p), menus=["device", "precision"],
                   start={"device": "H100", "precision": "16 bits", "m": 1024, "n": 4096, "p": 4096},
                   device=list(devices), precision=list(precisions), m=named(m), n=named(n), p=named(p))


def named(values: Sequence[int]) -> dict[str, int]:
    """Values by what a reader sees: 16,384."""
    return {f"{value:,}": value for value in values}


def product(on: str, precision: str, m: int, n: int, p: int) -> Picture:
    """The frame of `shapes`; of a device without that precision, what it has instead."""
    of, wanted = device(DEVICES[on]), KINDS[precision]
    if wanted == "bf16" and "bf16" not in of.tensor:
        wanted = "fp16"
    if wanted not in of.precisions():
        picture = _Plot(f"{of.name} has no {precision} units", f"It computes in {', '.join(of.precisions())}.")
        picture.text(0, 32, f"It computes in {', '.join(of.precisions())}: there is no peak, and so no utilization.")
        return picture
    flops = matmul_flops(m, n, p)
    moved = PRECISIONS[wanted].itemsize * (m * n + n * p + m * p)
    line = roofline(Operator("product", "", "matmul", 1, flops, moved), of, wanted)
    title = f"{m:,} × {n:,} by {n:,} × {p:,}, {wanted}, {of.name}"
    most = peak(of, wanted).flops
    words = (f"{intensity_of(line.operator)} FLOPs a byte, ridge {ridge(of, wanted):,.0f}: {line.bound}-bound",
             f"at most {rate_of(line.attainable)}, {percent(line.share)} of the peak; {time_of(line.seconds)}")
    picture = _Plot(title, f"{'; '.join(words)}.")
    for i, line_of_words in enumerate(words):
        picture.text(0, 32 + 17 * i, line_of_words)
    picture.roof(of, most)
    picture.text(WIDTH - RIGHT, picture.y(most) - 7, f"peak {rate_of(most)}", "small end")
    x, y = picture.x(line.operator.intensity), picture.y(line.attainable)
    picture.line(x, y, x, HEIGHT - BOTTOM, "drop")
    picture.circle(x, y, 6, "point")
    return picture


def intensity_of(operator: Operator) -> str:
    """FLOPs a byte, with two digits and without tens of decimals: 0.17, 7.2, 1,638."""
    return f"{operator.intensity:.2g}" if operator.intensity < 9.95 else f"{operator.intensity:,.0f}"


def percent(share: float) -> str:
    """Of a share, with two digits where it is small: 0.31%, 7.2%, 46%."""
    return f"{100 * share:.2g}%" if share < 0.0995 else f"{100 * share:.0f}%"


# -- generations ------------------------------------------------------------------------------------------------------


def roofs(names: Sequence[str] = ("V100", "A100", "H100", "B200")) -> Picture:
    """The rooflines of several devices in 16 bits on one plot, the last one emphasized."""
    found = [device(DEVICES[name]) for name in names]
    tops = [peak(of, "bf16" if "bf16" in of.tensor else "fp16").flops for of in found]
    ridges = [top / (of.bandwidth * 1e12) for of, top in zip(found, tops, strict=True)]
    words = "; ".join(f"{name}: peak {rate_of(top)}, {of.bandwidth:g} TB/s, ridge {at:.0f}"
                      for name, of, top, at in zip(names, found, tops, ridges, strict=True))
    picture = _Plot("Rooflines in 16 bits, dense", f"{words}.", height=400)
    picture.text(0, 32, "The dots are the ridges.")
    for of, top in zip(found, tops, strict=True):
        picture.roof(of, top, "roof" if of is found[-1] else "older")
    for name, top, at in zip(names, tops, ridges, strict=True):
        picture.circle(picture.x(at), picture.y(top), 4, "point")
        picture.text(picture.x(at) + 8, picture.y(top) - 6, f"{name}, ridge {at:.0f}", "small")
    return picture


# -- a GPT's operators ------------------------------------------------------------------------------------------------

#: kinds of operators: those with a weight, attention's own, and those that aren't products, with the colour of each
SORTS = {"products with weights": "send", "attention's core": "mark", "no products": "compute"}


def sort_of(operator: Operator) -> str:
    """The kind of an operator."""
    if operator.core != "matmul":
        return "no products"
    core = operator.name in ("scores", "weighted values", "fused attention")
    return "attention's core" if core else "products with weights"


@cache
def _lines(model: str, batch: int, on: str, attention: str) -> list[Roofline]:
    return [line for line in rooflines(published(model).config, batch, DEVICES[on], attention=attention)
            if line.operator.flops]


def under_roof(model: str, batch: int, on: str = "H100", attention: str = "written") -> Picture:
    """Each operator of a published GPT under the roofline of a device in bf16."""
    of, lines = device(DEVICES[on]), _lines(model, batch, on, attention)
    words = "; ".join(f"{line.operator.name}: {line.operator.intensity:.3g} FLOPs a byte, {percent(line.share)} of the peak"
                      for line in lines)
    picture = _Under(f"{model}, batch {batch}, under the roofline of {of.name}, bf16", f"{words}.")
    picture.text(0, 32, "Each dot is an operator of the forward pass.")
    picture.roof(of, peak(of, "bf16").flops)
    for sort in SORTS:
        picture.dots(sort, [line for line in lines if sort_of(line.operator) == sort])
    return picture


class _Under(_Plot):
    def dots(self, sort: str, lines: Sequence[Roofline]) -> None:
        """The operators of a sort, with its name beside the rightmost of them."""
        if not lines:
            return
        for line in lines:
            tip = f"<title>{line.operator.name}: {percent(line.share)} of the peak</title>"
            x, y = self.x(line.operator.intensity), self.y(line.attainable)
            self._add("circle", f"dot {SORTS[sort]}", tip, cx=x, cy=y, r=5)
        right = max(lines, key=lambda line: line.operator.intensity)
        x, y = self.x(right.operator.intensity), self.y(right.attainable)
        if x + 9 + 6 * len(sort) > WIDTH:
            self.text(x + 5, y - 12, sort, "small end")
        else:
            self.text(x + 9, y + 18, sort, "small")


@dataclass(frozen=True)
class Part:
    """An operator's share of a forward pass's FLOPs, and of the time that it takes at least."""

    name: str
    sort: str
    flops: float
    seconds: float


def parts(model: str, batch: int, on: str = "H100", attention: str = "written") -> list[Part]:
    """Each operator of a forward pass, by what it takes at least under the roofline, one after the other."""
    lines = _lines(model, batch, on, attention)
    flops = sum(line.operator.times * line.operator.flops for line in lines)
    seconds = sum(line.operator.times * line.seconds for line in lines)
    return [Part(line.operator.name, sort_of(line.operator), line.operator.times * line.operator.flops / flops,
                 line.operator.times * line.seconds / seconds) for line in lines]


def shares(model: str, batch: int, on: str = "H100", attention: str = "written") -> Picture:
    """Beside one another: an operator's share of the FLOPs, and of the time."""
    return _Shares(f"{model}, batch {batch}, {DEVICES[on]}, attention {attention}", parts(model, batch, on, attention))


class _Shares(Picture):
    css = CSS
    ROW, NAMES, BARS, GAP = 21, 134, 146, 48  # px: a row; widths of the names, of a column of bars, between these

    def __init__(self, title: str, found: Sequence[Part]):
        words = "; ".join(f"{part.name}: {percent(part.flops)} of the FLOPs, {percent(part.seconds)} of the time"
                          for part in found)
        super().__init__(self.NAMES + 2 * (self.BARS + self.GAP), 64 + self.ROW * len(found) + 4, title, f"{words}.")
        self.text(0, 14, title, "bold")
        x = 0.0
        for sort, colour in SORTS.items():
            self.rect(x, 24, 14, 11, colour, round=0)
            self.text(x + 19, 34, sort, "soft small")
            x += 42 + 6 * len(sort)
        columns = [("share of the FLOPs", self.NAMES, [part.flops for part in found]),
                   ("share of the time", self.NAMES + self.BARS + self.GAP, [part.seconds for part in found])]
        most = max(max(values) for _, _, values in columns)
        for name, x, values in columns:
            self.text(x, 56, name, "soft small")
            for i, (part, value) in enumerate(zip(found, values, strict=True)):
                y, wide = 64 + self.ROW * i, max(self.BARS * value / most, 0.6)
                self.rect(x, y, wide, self.ROW - 5, SORTS[part.sort], round=0)
                self.text(x + wide + 5, y + 12, percent(value), "small")
        for i, part in enumerate(found):
            self.text(self.NAMES - 8, 64 + self.ROW * i + 12, part.name, "end small")
