"""Pictures of timetables: what is in them, and that they can be told apart without colour."""

import re
import xml.etree.ElementTree as ElementTree

import pytest

from mlsyslab import Event, Link, Trace
from mlsyslab.draw.lanes import TINTS, read
from mlsyslab.draw.pipeline import CSS, KINDS, compare, overlay, timetable
from mlsyslab.draw.schedules import schedules
from mlsyslab.pipeline import names, schedule, simulate

SVG = "{http://www.w3.org/2000/svg}"


def elements(picture, tag):
    return ElementTree.fromstring(picture.svg()).iter(SVG + tag)


def boxes(picture):
    """How many cells each class has; the sample in the legend left out."""
    found = {}
    for path in elements(picture, "path"):
        if path.get("class", "").startswith("cell "):
            kind = path.get("class").split()[1][0]
            found[kind] = found.get(kind, 0) + path.get("d").count("z")
    tinted = any(text.text and text.text.startswith("lighter") for text in elements(picture, "text"))
    for kind in found:
        found[kind] -= 1 + (tinted and kind == "F")
    return found


@pytest.mark.parametrize("name", names())
def test_there_is_a_cell_for_each_action(name):
    made = schedule(name, 4, 6)
    kinds = [a.kind for a in made]
    assert boxes(timetable(made)) == {kind: kinds.count(kind) for kind in KINDS if kind in kinds}


@pytest.mark.parametrize("name", names())
def test_every_microbatch_has_its_number_on_every_rank(name):
    made = schedule(name, 4, 6)
    words = [span.text for span in elements(timetable(made, width=1400), "tspan")]
    numbered = [word.split(".")[0] for word in words if not word.startswith("v")]
    for i in range(6):
        assert numbered.count(str(i)) == sum(a.microbatch == i and a.kind != "U" for a in made)
    assert (len(words) > len(numbered)) == made.asynchronous  # versions


def test_a_picture_of_a_run_says_its_time_bubble_and_peaks():
    texts = [text.text for text in elements(timetable(schedule("1F1B", 4, 8), unit="forwards"), "text")]
    assert "1F1B" in texts and "time 33 forwards, bubble 27.3 %" in texts
    assert [text for text in texts if text in ("1", "2", "3", "4")] == ["4", "3", "2", "1"]
    bytes_held = timetable(simulate(schedule("1F1B", 2, 4), activation=3 * 2**20), memory="bytes")
    assert {"6 MiB", "3 MiB"} <= {text.text for text in elements(bytes_held, "text")}


def test_lanes_tell_what_the_timeline_tells():
    for name in names():
        timeline = simulate(schedule(name, 4, 7), F=2, link=Link(0.5, 0))
        again, lanes = read(timeline.trace, "activations")
        assert [tuple(a._replace(joined=False) for a in row) for row in timeline.schedule.actions] == list(again.actions)
        assert [lane.peak for lane in lanes] == timeline.peak_activations
        for lane, busy in zip(lanes, timeline.busy, strict=True):
            idle = sum(end - start for start, end in lane.gaps(timeline.time))
            assert idle == pytest.approx(timeline.time - busy)


def test_joined_actions_share_a_lane():
    _, lanes = read(simulate(schedule("DualPipeV", 2, 6)).trace)
    halves = [cell.half for cell in lanes[0].cells]
    assert halves.count(1) == halves.count(2) == sum(a.joined for a in schedule("DualPipeV", 2, 6).actions[0])


def test_tints_follow_chunks_and_directions():
    _, lanes = read(simulate(schedule("interleaved", 2, 4, 3)).trace)
    assert {(cell.action.stage // 2, cell.tint) for cell in lanes[1].cells} == {(0, 0), (1, 2), (2, TINTS - 1)}
    _, lanes = read(simulate(schedule("DualPipe", 4, 8)).trace)
    assert {(cell.action.microbatch % 2, cell.tint) for lane in lanes for cell in lane.cells} == {(0, 0), (1, TINTS - 1)}


def test_several_runs_share_one_clock():
    runs = {"GPipe": schedule("GPipe", 3, 5), "ZB-H1": simulate(schedule("ZB-H1", 3, 5))}
    assert boxes(compare(runs)) == {"F": 30, "B": 15, "I": 15, "W": 15}
    assert boxes(overlay({**runs, "again": runs["GPipe"]}))["F"] == 45
    assert "idle" in [text.text for text in elements(compare(runs), "text")]
    wide = timetable(runs["GPipe"], until=100, width=500)
    assert wide.width == 500 and wide.x(100) == pytest.approx(500 - wide.right)


def luminance(colour):
    """Relative luminance of #rrggbb (WCAG 2)."""
    parts = (int(colour[i:i + 2], 16) / 255 for i in (1, 3, 5))
    linear = [part / 12.92 if part <= 0.03928 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return sum(weight * part for weight, part in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


def contrast(one, other):
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


def test_kinds_differ_in_brightness_and_numbers_can_be_read_on_all_of_them():
    lights = sorted(luminance(fill) for fill, _ in KINDS.values())
    assert all(b - a > 0.08 for a, b in zip(lights, lights[1:], strict=False))
    for kind in KINDS:
        for tint in range(TINTS):
            fill = CSS.split(f"path.{kind}{tint}{{fill:")[1][:7]
            ink = "#ffffff" if kind == "W" and not tint else "#111a22"
            assert contrast(fill, ink) >= 4.5, (kind, tint)


def test_what_cannot_be_drawn_is_said():
    with pytest.raises(ValueError, match="no event of this trace is labelled with an action such as 2F0"):
        timetable(Trace([Event(0, "compute", 0.0, 1.0)]))
    with pytest.raises(ValueError, match="memory='all': draw"):
        timetable(schedule("GPipe", 1, 1), memory="all")
    with pytest.raises(ValueError, match="nothing in these runs takes time"):
        timetable(simulate(schedule("GPipe", 1, 1), F=0, B=0))
    with pytest.raises(ValueError, match="compare got no runs"):
        compare({})
    with pytest.raises(ValueError, match="overlay got 1 runs"):
        overlay({"one": schedule("GPipe", 1, 1)})


def widgets(widget):
    yield widget
    for child in getattr(widget, "children", ()):
        yield from widgets(child)


def test_readers_choose_schedule_ratio_ranks_and_microbatches():
    made = list(widgets(schedules(("GPipe", "interleaved"), ranks=(2, 3), microbatches=(1, 4), chunks=(2, 3))))
    menus = {widget.description: list(widget.options) for widget in made if hasattr(widget, "options")}
    assert menus == {"schedule": ["GPipe", "interleaved v=2", "interleaved v=3"], "ratio": ["1 : 1 : 1", "1 : ½ : ½"],
                     "p": ["2", "3"], "m": ["1", "4"]}
    frames = {widget.value for widget in made if str(getattr(widget, "value", "")).startswith("<div")}
    assert len(frames) == 3 * 2 * 2 * 2
    # each rank has the same work in all of them: 4 (1 + 1 + 1) forwards, and a third of the bubble with three chunks
    times = [re.search(r">time ([\d.]+) forwards", frame)[1] for frame in frames if "p=3, m=4" in frame]
    assert sorted(times) == sorted(["18", "15", "14", "12", "10", "9.333"])
