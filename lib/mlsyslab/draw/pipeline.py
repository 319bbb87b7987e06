"""The timetable of a pipeline, as its papers draw it: a lane a rank, a cell an action, the microbatch's number in it.

Kinds differ by colour and by brightness (blue F, green B, yellow I, dark W), chunks and directions by tint, waiting is
hatched. Below each lane stands how many activations the rank holds. All of it is read off a trace, so that a simulated
and a real run make the same picture.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from mlsyslab.comm.trace import Trace
from mlsyslab.draw.lanes import TINTS, Cell, Lane, read
from mlsyslab.draw.picture import STYLE, Picture, number
from mlsyslab.draw.plot import size_of
from mlsyslab.draw.timeline import ticks, unit_of
from mlsyslab.pipeline import Schedule, Timeline, simulate

#: What can be drawn: a schedule (simulated with I = W = F), a simulated run, the trace of any run.
Source = Schedule | Timeline | Trace

#: Fill of each kind, and what it is called. They differ in lightness as well.
KINDS = {"F": ("#a3cdf0", "forward"), "B": ("#58b890", "backward"), "I": ("#f9e08b", "input gradient"),
         "W": ("#8a4a7f", "weight gradient")}
LANE, STRIP, GAP = 24, 15, 9  # px: height of the cells, of the memory below them, space to the next lane
LEFT, RIGHT, HEAD, AXIS, LEGEND = 58, 16, 26, 42, 19  # px round the lanes; LEGEND a line of it
PEAK = 46  # px: what the column of peaks adds on the right
CELL = 15  # px that the shortest forward should have
LEAST, MOST = 680, 1500  # px: how wide a picture is made by itself


def _mix(colour: str, white: float) -> str:
    """The colour with so much white in it."""
    parts = (int(colour[i:i + 2], 16) for i in (1, 3, 5))
    return "#" + "".join(f"{round(part + (255 - part) * white):02x}" for part in parts)


CSS = (STYLE + "".join(f".mls path.{kind}{tint}{{fill:{_mix(colour, 0.66 * tint / (TINTS - 1))}}}"
                       for kind, (colour, _) in KINDS.items() for tint in range(TINTS))
       + ".mls path.cell{stroke:#26323e;stroke-width:.7}.mls text.in{fill:#111a22;text-anchor:middle}"
       ".mls text.white{fill:#fff}.mls path.hatch{stroke:var(--quiet-edge);stroke-width:.7}"
       ".mls path.update{stroke:var(--ink);stroke-width:2.4}"
       ".mls path.kept{fill:var(--quiet-edge);fill-opacity:.42;stroke:var(--quiet-edge)}"
       ".mls path.way{stroke:var(--ink);stroke-width:.8;opacity:.6}")


def timetable(source: Source, title: str = "", *, memory: str | None = "activations", messages: bool = False,
              until: float | None = None, width: float | None = None, unit: str | None = None) -> Picture:
    """Draw a schedule on the clock.

    source: a schedule (then F = I = W = 1), a `Timeline` from `pipeline.simulate`, or the trace of a real run.
    memory: what to draw below the lanes: "activations" (how many), "bytes" or None.  messages: whether to draw a line each.
    until: seconds that the axis spans, so that pictures can be compared; by default the whole run.  width: px.
    unit: what the axis counts, "forwards" say, where a time of 1 isn't a second.
    """
    run = _run(source)
    return _Timetable([(title or _name(source), run)], memory, messages, until, width, unit)


def compare(runs: Mapping[str, Source], *, memory: str | None = "activations", until: float | None = None,
            width: float | None = None, unit: str | None = None) -> Picture:
    """Draw several schedules below one another on one clock; the arguments are those of `timetable`."""
    if not runs:
        raise ValueError("compare got no runs: give it at least one schedule, timeline or trace by name")
    return _Timetable([(name, _run(source)) for name, source in runs.items()], memory, False, until, width, unit)


def overlay(runs: Mapping[str, Source], *, until: float | None = None, width: float | None = None,
            unit: str | None = None) -> Picture:
    """Draw runs of one schedule rank by rank, as a real one under the simulated one: where the clocks part is seen."""
    if len(runs) < 2:
        raise ValueError(f"overlay got {len(runs)} runs: give it two or more by name, as the simulated and the measured one")
    return _Overlay([(name, _run(source)) for name, source in runs.items()], None, False, until, width, unit)


def _name(source: Source) -> str:
    schedule = source.schedule if isinstance(source, Timeline) else source
    return schedule.name if isinstance(schedule, Schedule) else "Pipeline"


def _run(source: Source) -> Trace:
    if isinstance(source, Schedule):
        source = simulate(source)
    return source.trace if isinstance(source, Timeline) else source


class _Timetable(Picture):
    """Groups of lanes below one another, each with a heading, on one clock."""

    css = CSS

    def __init__(self, runs, memory, messages, until, width, unit):
        if memory not in (None, "activations", "bytes"):
            raise ValueError(f'memory={memory!r}: draw "activations", "bytes" or None')
        self.runs, self.memory, self.messages = runs, memory, messages
        self.schedules, self.lanes = zip(*(read(trace, memory) for _, trace in runs), strict=True)
        self.until = max(trace.time for _, trace in runs) if until is None else until
        if self.until <= 0:
            raise ValueError("nothing in these runs takes time, so there is nothing to draw: give simulate times above 0")
        self.right = RIGHT + (PEAK if memory else 0)
        self.cells = [cell for lanes in self.lanes for lane in lanes for cell in lane.cells]
        self.kinds = [kind for kind in KINDS if any(cell.action.kind == kind for cell in self.cells)]
        wide = self._fitting_width() if width is None else width
        self.legend = self._legend_lines(wide)
        super().__init__(wide, self._height(), " and ".join(name for name, _ in runs), self._words())
        self.scale = (wide - LEFT - self.right) / self.until
        self.unit = (1.0, unit) if unit else unit_of(self.until)
        self._draw()

    # -- sizes --------------------------------------------------------------------------------------------------------

    def _fitting_width(self) -> float:
        """Wide enough for a number in the usual forward, within bounds."""
        lengths = sorted(cell.end - cell.start for cell in self.cells if cell.action.kind == "F" and not cell.half)
        usual = lengths[len(lengths) // 2] if lengths else self.until
        return min(MOST, max(LEAST, LEFT + self.right + CELL * self.until / max(usual, 1e-12)))

    @property
    def pitch(self) -> float:
        """px from one lane to the next."""
        return LANE + (STRIP if self.memory else 0) + GAP

    def _height(self) -> float:
        return sum(HEAD + len(lanes) * self.pitch for lanes in self.lanes) + self._below()

    def _below(self) -> float:
        return AXIS + LEGEND * len(self.legend)

    def x(self, seconds: float) -> float:
        return LEFT + seconds * self.scale

    # -- what is drawn ------------------------------------------------------------------------------------------------

    def _draw(self) -> None:
        bottom = self.height - self._below()
        self._axis(HEAD, bottom)
        top = 0.0
        most = max((lane.peak for lanes in self.lanes for lane in lanes), default=0)
        for (name, trace), lanes in zip(self.runs, self.lanes, strict=True):
            self._heading(name, trace, top)
            for lane in lanes:
                self._lane(lane, top + HEAD + lane.rank * self.pitch, trace.time, most)
            if self.messages:
                self._ways(trace, top + HEAD)
            top += HEAD + len(lanes) * self.pitch
        self._legend()

    def _heading(self, name: str, trace: Trace, top: float) -> None:
        self.text(LEFT, top + 16, name, "bold")
        unit, unit_name = self.unit
        facts = f"time {trace.time / unit:.4g} {unit_name}, bubble {100 * trace.bubble:.1f} %"
        self.text(self.width - self.right, top + 16, facts, "soft small end")
        if self.memory:
            self.text(self.width - 6, top + 16, "peak", "soft small end")

    def _axis(self, top: float, bottom: float) -> None:
        unit, name = self.unit
        for tick in ticks(self.until / unit, 10):
            self.line(self.x(tick * unit), top, self.x(tick * unit), bottom, "rule")
            self.text(self.x(tick * unit), bottom + 14, f"{tick:g}", "soft small mid")
        self.text(self.width - self.right, bottom + 28, f"time in {name}", "soft small end")

    def _lane(self, lane: Lane, top: float, end: float, most: float, name: str = "") -> None:
        """One rank's bubbles, cells, numbers and memory."""
        self.text(LEFT - 9, top + LANE / 2 + 4.5, name or f"rank {lane.rank}", "end small" if name else "end")
        self._hatch(lane.gaps(end), top)
        self._boxes(lane.cells, top)
        self._numbers(lane.cells, top)
        self._updates(lane.cells, top)
        if self.memory:
            self._kept(lane, top + LANE + STRIP, end, most)

    def _hatch(self, gaps: Sequence[tuple[float, float]], top: float) -> None:
        """Slanted lines, 6 px apart, in the stretches where a rank waits."""
        lines = []
        for start, end in gaps:
            left, right = self.x(start), self.x(end)
            k = int((left + top) // 6) + 1
            while 6 * k < right + top + LANE:  # the line x + y = 6 k
                x1, x2 = max(left, 6 * k - top - LANE), min(right, 6 * k - top)
                if x2 > x1:
                    lines.append(f"M{number(x1)} {number(6 * k - x1)}L{number(x2)} {number(6 * k - x2)}")
                k += 1
        if lines:
            self._add("path", "hatch", d="".join(lines))

    def _span(self, cell: Cell, top: float) -> tuple[float, float]:
        """Top and height of a cell."""
        return (top, LANE) if not cell.half else (top + (cell.half - 1) * LANE / 2, LANE / 2)

    def _boxes(self, cells: Sequence[Cell], top: float) -> None:
        """The cells; those of one colour are one path, which keeps large pictures light."""
        paths: dict[str, list[str]] = {}
        for cell in cells:
            if cell.action.kind in KINDS:
                y, high = self._span(cell, top)
                wide = number((cell.end - cell.start) * self.scale)
                paths.setdefault(f"{cell.action.kind}{cell.tint}", []).append(
                    f"M{number(self.x(cell.start))} {number(y)}h{wide}v{number(high)}h-{wide}z")
        for name, boxes in paths.items():
            self._add("path", f"cell {name}", d="".join(boxes))

    def _numbers(self, cells: Sequence[Cell], top: float) -> None:
        """Microbatch numbers where they fit, dark on light and white on dark; below them versions, where there are any."""
        texts: dict[tuple[bool, float], list[str]] = {}
        for cell in cells:
            if cell.action.kind not in KINDS:
                continue
            y, high = self._span(cell, top)
            white = cell.action.kind == "W" and not cell.tint
            middle, wide = self.x((cell.start + cell.end) / 2), (cell.end - cell.start) * self.scale
            for words, size, baseline in self._said(cell, wide, y, high):
                texts.setdefault((white, size), []).append(
                    f'<tspan x="{number(middle)}" y="{number(baseline)}">{words}</tspan>')
        for (white, size), spans in texts.items():
            self._add("text", "in white" if white else "in", "".join(spans), font_size=size)

    def _said(self, cell: Cell, wide: float, y: float, high: float) -> Iterator[tuple[str, float, float]]:
        """What stands in a cell: words, their size, their baseline."""
        action, versioned = cell.action, any(schedule.asynchronous for schedule in self.schedules)
        words = str(action.microbatch)
        if any(schedule.slices for schedule in self.schedules):
            words += f".{action.slice}"
        for size in (9, 8) if cell.half else (11, 9.5, 8):
            if (0.58 * len(words) - 0.25 * ("." in words)) * size + 1 <= wide:
                yield words, size, y + high / 2 + 0.36 * size - 4 * versioned
                if versioned:
                    yield f"v{action.version}", 7.5, y + high - 4
                return

    def _updates(self, cells: Sequence[Cell], top: float) -> None:
        """A thick stroke across the lane where weights change."""
        strokes = "".join(f"M{number(self.x(cell.end))} {number(top - 3)}v{LANE + 6}" for cell in cells
                          if cell.action.kind == "U")
        if strokes:
            self._add("path", "update", d=strokes)

    def _kept(self, lane: Lane, bottom: float, end: float, most: float) -> None:
        """How much the rank holds, as an area over time, and its most."""
        high = (STRIP - 3) / most if most else 0
        corners = [f"M{number(self.x(0))} {number(bottom)}"]
        for time, held in lane.live:
            corners.append(f"H{number(self.x(time))}V{number(bottom - held * high)}")
        corners.append(f"H{number(self.x(end))}V{number(bottom)}z")
        self._add("path", "kept", d="".join(corners))
        peak = size_of(lane.peak) if self.memory == "bytes" else f"{lane.peak:g}"
        self.text(self.width - 6, bottom - 2, peak, "small end")

    def _ways(self, trace: Trace, top: float) -> None:
        """A line from where each message leaves to where it arrives."""
        lines = []
        for event in trace:
            if event.kind == "send":
                down = event.peer > event.rank
                y1 = top + event.rank * self.pitch + (LANE if down else 0)
                y2 = top + event.peer * self.pitch + (0 if down else LANE)
                lines.append(f"M{number(self.x(event.start))} {number(y1)}L{number(self.x(event.end))} {number(y2)}")
        if lines:
            self._add("path", "way", d="".join(lines))

    def _legend_lines(self, wide: float) -> list[list[tuple[str, str, str]]]:
        """The entries of the legend, (classes, path, words) each, in lines that fit."""
        box = "h15v11h-15z"
        entries = [(f"cell {kind}0", "m0 -10" + box, KINDS[kind][1]) for kind in self.kinds]
        if any(cell.tint for cell in self.cells):
            two_ways = any(len(ranks) > 1 for schedule in self.schedules for ranks in schedule.placement)
            words = "lighter: the other direction" if two_ways else "lighter: later chunk of the model"
            entries.append((f"cell {self.kinds[0]}{TINTS - 1}", "m0 -10" + box, words))
        if any(cell.action.kind == "U" for cell in self.cells):
            entries.append(("update", "m8 -11v13", "weight update"))
        entries.append(("hatch", "m0 1l10 -10m-5 10l10 -10", "idle"))
        if self.memory:
            words = "activations held" if self.memory == "activations" else "bytes held"
            entries.append(("kept", "v-5h5v-4h5v3h5v6z", words))
        lines, x = [[]], float(LEFT)
        for entry in entries:
            if x + self._entry_width(entry[2]) > wide:
                lines.append([])
                x = LEFT
            lines[-1].append(entry)
            x += self._entry_width(entry[2])
        return lines

    @staticmethod
    def _entry_width(words: str) -> float:
        return 40 + 5.7 * len(words)

    def _legend(self) -> None:
        """A sample of everything that occurs, with its name."""
        for k, line in enumerate(self.legend):
            x, y = float(LEFT), self.height - 6 - LEGEND * (len(self.legend) - 1 - k)
            for classes, path, words in line:
                self._add("path", classes, d=f"M{number(x)} {number(y)}{path}")
                self.text(x + 21, y, words, "soft small")
                x += self._entry_width(words)

    def _words(self) -> str:
        """The picture in words, for those who hear it."""
        said = []
        for (name, trace), lanes in zip(self.runs, self.lanes, strict=True):
            said.append(f"{name}: {len(lanes)} ranks, time {trace.time:.4g}, bubble {100 * trace.bubble:.1f} percent.")
            for lane in lanes[:16]:
                order = " ".join(str(cell.action) for cell in lane.cells[:12])
                peak = f" At most {lane.peak:g} {self.memory} held." if self.memory else ""
                said.append(f"Rank {lane.rank}: {order}{' …' if len(lane.cells) > 12 else ''}.{peak}")
        return " ".join(said)


class _Overlay(_Timetable):
    """The lanes of all runs of a rank next to one another."""

    def _height(self) -> float:
        return HEAD + max(map(len, self.lanes)) * self.pitch + self._below()

    @property
    def pitch(self) -> float:
        return len(self.runs) * (LANE + 2) + GAP

    def _draw(self) -> None:
        self._axis(HEAD, self.height - self._below())
        names = ", ".join(f"{name} ({100 * trace.bubble:.1f} % bubble)" for name, trace in self.runs)
        self.text(LEFT, 16, f"from top to bottom: {names}", "bold")
        for k, ((_, trace), lanes) in enumerate(zip(self.runs, self.lanes, strict=True)):
            for lane in lanes:
                top = HEAD + lane.rank * self.pitch + k * (LANE + 2)
                self._lane(lane, top, trace.time, 0, "" if k == 0 else " ")
        self._legend()
