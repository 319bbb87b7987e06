"""The timetable of a pipeline, as its papers draw it: a lane a rank, a cell an action, the microbatch's number in it.

Kinds differ by colour and by brightness (blue F, green B, yellow I, dark W), chunks and directions by tint, waiting is
hatched. Below each lane stands how many activations the rank holds. All of it is read off a trace, so that a simulated
and a real run make the same picture.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

from mlsyslab.comm.trace import Trace
from mlsyslab.draw.actions import CSS, HELD, IDLE, KINDS, LANE, LEGEND, TINTED, UPDATE, Entry, in_lines, samples, write
from mlsyslab.draw.lanes import Cell, Lane, read
from mlsyslab.draw.picture import Picture, number
from mlsyslab.draw.plot import size_of
from mlsyslab.draw.timeline import ticks, unit_of
from mlsyslab.pipeline import Schedule, Timeline, simulate

#: What can be drawn: a schedule (simulated with I = W = F), a simulated run, the trace of any run.
Source = Schedule | Timeline | Trace

STRIP, GAP = 18, 9  # px: height of the memory below a lane, space to the next lane
LEFT, RIGHT, HEAD, AXIS = 58, 16, 26, 42  # px round the lanes
PEAK = 46  # px: what the column of peaks adds on the right
CELL = 15  # px that the shortest forward should have
LEAST, MOST = 680, 1500  # px: how wide a picture is made by itself


class _Pen:
    """Horizontal strokes as one path, with relative moves, which take few characters."""

    def __init__(self):
        self.d, self.at = "", (0.0, 0.0)

    def stroke(self, x1: float, x2: float, y: float) -> None:
        """A stroke from (x1, y) to (x2, y)."""
        x1, x2, y = round(x1, 1), round(x2, 1), round(y, 1)
        self.d += f"m{number(x1 - self.at[0])} {number(y - self.at[1])}h{number(x2 - x1)}"
        self.at = x2, y


def timetable(source: Source, title: str = "", *, memory: str | None = "activations", messages: bool = False,
              until: float | None = None, width: float | None = None, unit: str | None = None,
              plain: bool = False) -> Picture:
    """Draw a schedule on the clock.

    source: a schedule (then F = I = W = 1), a `Timeline` from `pipeline.simulate`, or the trace of a real run.
    memory: what to draw below the lanes: "activations" (how many), "bytes" or None.  messages: whether to draw a line each.
    until: seconds that the axis spans, so that pictures can be compared; by default the whole run.  width: px.
    unit: what the axis counts, "forwards" say, where a time of 1 isn't a second.
    plain: without legend (see `actions.legend`), weight versions and the order of actions in words, for pictures of which
           a page has many.
    """
    run = _run(source)
    return _Timetable([(title or _name(source), run)], memory, messages, until, width, unit, plain)


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

    def __init__(self, runs, memory, messages, until, width, unit, plain=False):
        if memory not in (None, "activations", "bytes"):
            raise ValueError(f'memory={memory!r}: draw "activations", "bytes" or None')
        self.runs, self.memory, self.messages, self.plain = runs, memory, messages, plain
        self.schedules, self.lanes = zip(*(read(trace, memory) for _, trace in runs), strict=True)
        self.until = max(trace.time for _, trace in runs) if until is None else until
        if self.until <= 0:
            raise ValueError("nothing in these runs takes time, so there is nothing to draw: give simulate times above 0")
        self.right = RIGHT + (PEAK if memory else 0)
        self.cells = [cell for lanes in self.lanes for lane in lanes for cell in lane.cells]
        self.kinds = [kind for kind in KINDS if any(cell.action.kind == kind for cell in self.cells)]
        wide = self._fitting_width() if width is None else width
        self.legend = [] if plain else in_lines(self._entries(), wide - LEFT)
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
        after = LEFT + 8.2 * len(name) + 12  # beside the name, where a phone shows it, if there is room
        if after + 6.4 * len(facts) < self.width - self.right:
            self.text(after, top + 16, facts, "soft small")
        else:
            self.text(self.width - self.right, top + 16, facts, "soft small end")
        if self.memory:
            self.text(self.width - 6, top + 16, "peak", "soft small end")

    def _axis(self, top: float, bottom: float) -> None:
        unit, name = self.unit
        at = ticks(self.until / unit, 10)
        self._add("path", "rule", d="".join(f"M{number(self.x(tick * unit))} {top}V{number(bottom)}" for tick in at))
        words = {self.x(tick * unit): f"{tick:g}" for tick in at}
        places = [number(place) for middle, word in words.items() for place in _places(word, middle, 11)]
        self._add("text", "soft small mid", "".join(words.values()), y=bottom + 14, x=" ".join(places))
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
        """Fine lines across the lane in the stretches where a rank waits."""
        pen = _Pen()
        for start, end in gaps:
            pen.stroke(self.x(start), self.x(end), top + LANE / 2)
        if gaps:
            self._add("path", "hatch", d=pen.d)

    def _boxes(self, cells: Sequence[Cell], top: float) -> None:
        """The cells; those of one colour are one path, which keeps large pictures light."""
        pens, under = defaultdict(_Pen), _Pen()
        for start, end in _busy(cells):
            under.stroke(self.x(start), self.x(end), top + LANE / 2)
        for cell in cells:
            if cell.action.kind in KINDS:
                left, right = self.x(cell.start), self.x(cell.end)
                edge = min(0.5, (right - left) / 8)
                shape = "cell half" if cell.half else "cell"
                pens[f"{shape} {cell.action.kind}{cell.tint}"].stroke(left + edge, right - edge, self._middle(cell, top))
        self._add("path", "under", d=under.d)
        for name, pen in pens.items():
            self._add("path", name, d=pen.d)

    def _middle(self, cell: Cell, top: float) -> float:
        """The height at which a cell's middle lies."""
        return top + LANE * {0: 2, 1: 1, 2: 3}[cell.half] / 4

    def _numbers(self, cells: Sequence[Cell], top: float) -> None:
        """Microbatch numbers where they fit, dark on light and white on dark; below them versions, where there are any.

        What has one size and one height is one text, each letter of it put in its place.
        """
        texts: dict[tuple[str, float, float], tuple[list[str], list[str]]] = {}
        for cell in cells:
            if cell.action.kind not in KINDS:
                continue
            middle, wide = self.x((cell.start + cell.end) / 2), (cell.end - cell.start) * self.scale
            ink = "in white" if cell.action.kind == "W" and not cell.tint else "in"
            for words, size, baseline in self._said(cell, wide, self._middle(cell, top)):
                letters, places = texts.setdefault((ink, size, baseline), ([], []))
                letters += words
                places += map(number, _places(words, middle, size))
        for (ink, size, baseline), (letters, places) in texts.items():
            self._add("text", ink, "".join(letters), font_size=size, y=baseline, x=" ".join(places))

    def _said(self, cell: Cell, wide: float, middle: float) -> Iterator[tuple[str, float, float]]:
        """What stands in a cell: words, their size, their baseline."""
        action, versioned = cell.action, not self.plain and any(schedule.asynchronous for schedule in self.schedules)
        words = str(action.microbatch)
        if any(schedule.slices for schedule in self.schedules):
            words += f".{action.slice}"
        for size in (9, 8) if cell.half else (11, 9.5, 8):
            if (0.58 * len(words) - 0.25 * ("." in words)) * size + 1 <= wide:
                yield words, size, middle + 0.36 * size - 4 * versioned
                if versioned:
                    yield f"v{action.version}", 7.5, middle + LANE / 2 - 4
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
        x, y = round(self.x(0), 1), 0.0
        corners = [f"M{number(x)} {number(bottom)}"]
        for time, held in [*lane.live, (end, 0)]:
            right, up = round(self.x(time), 1), round(held * high, 1)
            if up != y:
                corners.append(f"h{number(right - x)}v{number(y - up)}")
                x, y = right, up
        corners.append("z")
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

    def _entries(self) -> list[Entry]:
        """What occurs in this picture and is to be explained."""
        entries = samples(self.kinds)
        if any(cell.tint for cell in self.cells):
            two_ways = any(len(ranks) > 1 for schedule in self.schedules for ranks in schedule.placement)
            entries.append(TINTED["direction" if two_ways else "chunk"])
        if any(cell.action.kind == "U" for cell in self.cells):
            entries.append(UPDATE)
        return [*entries, IDLE] + ([HELD[self.memory]] if self.memory else [])

    def _legend(self) -> None:
        write(self, self.legend, LEFT, self.height - 6 - LEGEND * (len(self.legend) - 1))

    def _words(self) -> str:
        """The picture in words, for those who hear it."""
        said = []
        for (name, trace), lanes in zip(self.runs, self.lanes, strict=True):
            said.append(f"{name}: {len(lanes)} ranks, time {trace.time:.4g}, bubble {100 * trace.bubble:.1f} percent.")
            for lane in () if self.plain else lanes[:16]:
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


def _busy(cells: Sequence[Cell]) -> Iterator[tuple[float, float]]:
    """The stretches of time without a gap in which a rank computes."""
    start = end = None
    for cell in cells:
        if cell.action.kind not in KINDS:
            continue
        if start is None or cell.start > end:
            if start is not None:
                yield start, end
            start, end = cell.start, cell.end
        end = max(end, cell.end)
    if start is not None:
        yield start, end


def _places(words: str, middle: float, size: float) -> Iterator[float]:
    """The middle of each letter of short words centred on `middle`."""
    widths = [size * (0.25 if letter == "." else 0.5) for letter in words]
    left = middle - sum(widths) / 2
    for width in widths:
        yield left + width / 2
        left += width
