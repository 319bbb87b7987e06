"""The timeline shows every event of a trace, where and as long as it was, and says so in words."""

from __future__ import annotations

from xml.etree import ElementTree

import pytest
import torch

from mlsyslab import Event, Link, Trace, simulate
from mlsyslab.draw.timeline import LEFT, RIGHT, ticks, timeline, unit_of


def work_and_pass(comm, seconds):
    """Compute for `seconds`, then pass a value round the ring and combine."""
    comm.compute(seconds, "F")
    value, out = torch.zeros(4), torch.empty(4)
    comm.sendrecv(value, (comm.rank + 1) % comm.size, out, (comm.rank - 1) % comm.size)
    comm.combine(out, value)


def run(p: int) -> Trace:
    return simulate(work_and_pass, [1.0 + rank for rank in range(p)], link=Link(alpha=0.5, beta=0.01, gamma=0.02)).trace


def boxes(picture) -> list[tuple[str, float, float]]:
    """(kind, start, width) of each block, without the samples of the legend."""
    found = [(box.get("class"), float(box.get("x")), float(box.get("width"))) for box in parsed(picture).iter() if
             box.tag.endswith("rect") and box.find("{*}title") is not None]
    return sorted(found)


def parsed(picture):
    return ElementTree.fromstring(picture.svg())


@pytest.mark.parametrize("p", [2, 3, 5])
def test_every_event_is_a_block_at_its_time(p):
    trace = run(p)
    scale = (720 - LEFT - RIGHT) / trace.time
    expected = sorted((e.kind, LEFT + e.start * scale, (e.end - e.start) * scale) for e in trace)
    drawn = boxes(timeline(trace))
    assert [kind for kind, *_ in drawn] == [kind for kind, *_ in expected]
    for (_, x, width), (_, want_x, want_width) in zip(drawn, expected, strict=True):
        assert x == pytest.approx(want_x, abs=0.06)
        assert width == pytest.approx(want_width, abs=0.06)


def test_every_message_is_an_arrow():
    trace = run(4)
    tips = [path for path in parsed(timeline(trace)).iter() if path.get("class") == "tip"]
    assert len(tips) == trace.messages()
    assert not [path for path in parsed(timeline(trace, arrows=False)).iter() if path.get("class") == "tip"]


def test_one_scale_for_two_runs():
    trace = run(2)
    whole, half = boxes(timeline(trace)), boxes(timeline(trace, until=2 * trace.time))
    assert [width for *_, width in half] == pytest.approx([width / 2 for *_, width in whole], abs=0.06)


def test_strips_that_nobody_uses_are_left_out():
    computing = Trace([Event(0, "compute", 0.0, 1.0, label="F")])
    assert timeline(computing).height < timeline(run(2)).height / 2


def test_it_says_what_it_shows():
    svg = parsed(timeline(run(2), "Two ranks"))
    assert svg.get("role") == "img"
    assert svg.find("{*}title").text == "Two ranks"
    assert "2 ranks, messages: 2, bytes: 32" in svg.find("{*}desc").text


def test_names_are_escaped():
    svg = timeline(Trace([Event(0, "compute", 0.0, 1.0, label="a < b & c")]), "<title>").svg()
    assert ElementTree.fromstring(svg).find("{*}title").text == "<title>"


@pytest.mark.parametrize("trace", [Trace(), Trace([Event(0, "send", 0.0, 0.0, 4, 1)], size=2)])
def test_a_trace_without_time_is_refused_with_a_remedy(trace):
    with pytest.raises(ValueError, match="link=Link"):
        timeline(trace)


@pytest.mark.parametrize("span", [0.3, 1, 1.7, 4, 9.99, 10, 37, 512, 999])
def test_ticks_are_round_even_and_not_too_many(span):
    marks = ticks(span)
    assert 3 <= len(marks) <= 9 and marks[0] == 0 and marks[-1] <= span * (1 + 1e-9)
    step = marks[1]
    assert float(f"{step:e}".split("e")[0]) in (1, 2, 2.5, 5)
    assert marks == pytest.approx([step * i for i in range(len(marks))])


@pytest.mark.parametrize(("seconds", "name"), [(2, "s"), (0.2, "ms"), (2e-5, "µs"), (2e-8, "ns"), (2e-12, "ns")])
def test_the_unit_fits_the_run(seconds, name):
    assert unit_of(seconds)[1] == name
