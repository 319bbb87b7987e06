"""The timeline of a run: a lane a rank, time to the right, a block an event, an arrow a message."""

from __future__ import annotations

import math
from collections.abc import Sequence

from mlsyslab.comm.trace import Event, Trace
from mlsyslab.draw.picture import Picture

#: The strips of a lane from top to bottom: a rank sends, computes and receives at the same time.
STRIPS = (("send",), ("compute", "combine"), ("recv",))
STRIP, GAP = 18, 14  # px: height of a strip, space between lanes
LEFT, RIGHT, TOP, AXIS, LEGEND = 58, 14, 6, 34, 24  # px: around the lanes
UNITS = ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs"), (1e-9, "ns"))


def timeline(trace: Trace, title: str = "Timeline", width: float = 720, arrows: bool = True,
             until: float | None = None) -> Picture:
    """Draw a trace.

    Each rank has a lane of up to three strips: what it sends (top), computes or combines (middle) and receives (bottom,
    dashed); strips that no rank uses are left out. An arrow leads from where a message starts to where it ends.

    until: seconds that the axis spans (by default the whole run), so that two runs can be compared on one scale.
    """
    events = [event for event in trace if any(event.kind in strip for strip in STRIPS)]
    span = trace.time if until is None else until
    if not events or span <= 0:
        raise ValueError("nothing in this trace takes time, so there is no timeline to draw: "
                         "give simulate a link=Link(alpha, beta), or let ranks compute(seconds)")
    strips = [strip for strip in STRIPS if any(event.kind in strip for event in events)]
    lane = len(strips) * STRIP + GAP
    height = TOP + trace.size * lane + AXIS + LEGEND
    picture = Picture(width, height, title, describe(trace))
    scale = (width - LEFT - RIGHT) / span

    def x(seconds: float) -> float:
        return LEFT + seconds * scale

    def y(event_kind: str, rank: int) -> float:
        row = next(i for i, strip in enumerate(strips) if event_kind in strip)
        return TOP + rank * lane + row * STRIP

    bottom = TOP + trace.size * lane - GAP / 2
    unit, name = unit_of(span)
    draw_axis(picture, x, bottom, span, unit, name)
    for rank in range(trace.size):
        middle = TOP + rank * lane + len(strips) * STRIP / 2
        picture.text(LEFT - 10, middle + 4, f"rank {rank}", "end")
        picture.line(LEFT, middle, width - RIGHT, middle, "rule")
    for event in events:
        wide = max((event.end - event.start) * scale, 1)
        picture.rect(x(event.start), y(event.kind, event.rank) + 1, wide, STRIP - 2, event.kind, sentence(event, unit, name))
    if arrows and ("recv",) in strips:
        for event in (event for event in events if event.kind == "send"):
            down = event.peer > event.rank
            start = y("send", event.rank) + (STRIP - 1 if down else 1)
            end = y("recv", event.peer) + (1 if down else STRIP - 1)
            picture.arrow(x(event.start) + 1, start, x(event.end) - 1, end)
    for event in events:
        wide, label = (event.end - event.start) * scale, short(event)
        if len(label) * 6.5 + 4 <= wide:
            picture.text(x(event.start) + wide / 2, y(event.kind, event.rank) + STRIP / 2 + 4, label, "small mid")
    draw_legend(picture, sorted({event.kind for event in events}, key=lambda kind: y(kind, 0)), height - 8)
    return picture


def draw_axis(picture: Picture, x, bottom: float, span: float, unit: float, name: str) -> None:
    """Ticks at round times, and the unit."""
    for tick in ticks(span / unit):
        picture.line(x(tick * unit), TOP, x(tick * unit), bottom, "rule")
        picture.text(x(tick * unit), bottom + 15, f"{tick:g}", "soft small mid")
    picture.text(picture.width - RIGHT, bottom + 29, f"time in {name}", "soft small end")


def draw_legend(picture: Picture, kinds: Sequence[str], y: float) -> None:
    """A sample of each kind with its name."""
    names = {"send": "sends", "recv": "receives", "compute": "computes", "combine": "combines (reduces)"}
    x = LEFT
    for kind in kinds:
        picture.rect(x, y - 10, 16, 11, kind)
        picture.text(x + 21, y, names[kind], "soft small")
        x += 36 + 6.2 * len(names[kind])


def unit_of(seconds: float) -> tuple[float, str]:
    """The unit in which `seconds` is a number of 1 or more: (its length in seconds, its name)."""
    return next(((unit, name) for unit, name in UNITS if seconds >= unit), UNITS[-1])


def ticks(span: float, most: int = 8) -> list[float]:
    """At most `most` round numbers from 0 to `span`, evenly apart."""
    power = 10 ** math.floor(math.log10(span / most))
    step = next(power * factor for factor in (1, 2, 2.5, 5, 10, 20) if span / (power * factor) <= most)
    return [step * i for i in range(int(span / step + 1e-9) + 1)]


def short(event: Event) -> str:
    """What fits into a block."""
    return {"send": f"to {event.peer}", "recv": f"from {event.peer}"}.get(event.kind, event.label)


def sentence(event: Event, unit: float, name: str) -> str:
    """What happened, as shown under the pointer."""
    what = {"send": f"sends {event.bytes:,} bytes to rank {event.peer}",
            "recv": f"receives {event.bytes:,} bytes from rank {event.peer}",
            "combine": f"combines {event.bytes:,} bytes"}.get(event.kind, f"computes {event.label}".rstrip())
    return f"rank {event.rank} {what}, {event.start / unit:.4g} to {event.end / unit:.4g} {name}"


def describe(trace: Trace) -> str:
    """A trace in words, rank by rank as far as one would listen."""
    unit, name = unit_of(trace.time)
    whole = (f"{trace.size} ranks, messages: {trace.messages()}, bytes: {trace.bytes_sent():,}, "
             f"time: {trace.time / unit:.4g} {name}.")
    each = (f"Rank {rank} computes for {trace.busy(rank) / unit:.4g} {name}; messages it sends: {trace.messages(rank)}."
            for rank in range(min(trace.size, 16)))
    return " ".join([whole, *each])
