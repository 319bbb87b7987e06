"""Pictures of timetables: what is in them, and that they can be told apart without colour."""

import re
import xml.etree.ElementTree as ElementTree
from collections import Counter

import pytest

from mlsyslab import Event, Link, Trace
from mlsyslab.draw.lanes import TINTS, read
from mlsyslab.draw.pipeline import CSS, KINDS, compare, overlay, timetable
from mlsyslab.draw.schedules import TRIED, cost_table, schedules
from mlsyslab.draw.widgets import explore
from mlsyslab.pipeline import names, schedule, simulate

SVG = "{http://www.w3.org/2000/svg}"


def elements(picture, tag):
    return ElementTree.fromstring(picture.svg()).iter(SVG + tag)


def boxes(picture):
    """How many cells each kind has; samples of the legend left out."""
    found = Counter()
    for path in elements(picture, "path"):
        name, *looks = path.get("class", "").split()
        if name == "cell" and "sample" not in looks:
            found[looks[-1][0]] += path.get("d").count("h")
    return found


def numbers(picture):
    """The words in the cells: letters of one text that stand together."""
    found = []
    for text in elements(picture, "text"):
        if text.get("class", "").startswith("in"):
            size, end = float(text.get("font-size")), float("-inf")
            for letter, x in zip(text.text, map(float, text.get("x").split()), strict=True):
                if x - end > 0.6 * size:
                    found.append("")
                found[-1] += letter
                end = x
    return found


@pytest.mark.parametrize("name", names())
def test_there_is_a_cell_for_each_action(name):
    made = schedule(name, 4, 6)
    kinds = [a.kind for a in made]
    assert boxes(timetable(made)) == {kind: kinds.count(kind) for kind in KINDS if kind in kinds}


@pytest.mark.parametrize("name", names())
def test_every_microbatch_has_its_number_on_every_rank(name):
    made = schedule(name, 4, 6)
    words = numbers(timetable(made, width=1400))
    numbered = [word.split(".")[0] for word in words if not word.startswith("v")]
    for i in range(6):
        assert numbered.count(str(i)) == sum(a.microbatch == i and a.kind != "U" for a in made)
    assert (len(words) > len(numbered)) == made.asynchronous  # versions


def test_cells_stand_at_their_times():
    """Strokes of relative moves, added up: rank after rank, where each forward begins and ends."""
    run = simulate(schedule("GPipe", 3, 12), F=0.7, B=1.1)
    picture = timetable(run)
    paths = [path.get("d") for path in elements(picture, "path") if path.get("class") == "cell F0"]
    for rank, d in enumerate(paths):
        x = 0.0
        for (move, along), action, start in zip(re.findall(r"m([-.\d]+) [-.\d]+h([.\d]+)", d), run.schedule.actions[rank],
                                                run.start[run.columns.first[rank]:], strict=False):
            x += float(move)
            assert x == pytest.approx(picture.x(start) + 0.5, abs=0.06), action
            x += float(along)
            assert x == pytest.approx(picture.x(start + 0.7) - 0.5, abs=0.11), action


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
            fill = CSS.split(f"path.{kind}{tint}{{stroke:")[1][:7]
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


def test_readers_choose_schedules_ratio_ranks_and_microbatches():
    tried = ("GPipe", "interleaved v=2", "interleaved v=3")
    made = list(widgets(schedules(tried, ranks=(2, 3), microbatches=(1, 4), start={"p": 3, "and below it": "GPipe"})))
    menus = {widget.description: (list(widget.options), widget.value) for widget in made if hasattr(widget, "options")}
    assert menus == {"schedule": (list(tried), "GPipe"), "and below it": (["nothing", *tried], "GPipe"),
                     "ratio": (["1 : 1 : 1", "1 : 1 : ½", "1 : ½ : ½"], "1 : 1 : 1"), "p": (["2", "3"], "3"),
                     "m": (["1", "4"], "1")}
    frames = {widget.value for widget in made if "m=" in str(getattr(widget, "value", ""))}
    assert len(frames) == 3 * 3 * 2 * 2
    # each rank has the same work in all of them: 4 (1 + 1 + 1) forwards, and a third of the bubble with three chunks
    times = [re.search(r">time ([\d.]+) forwards", frame)[1] for frame in frames if "p=3, m=4" in frame]
    assert sorted(times) == sorted(["18", "15", "14", "15", "12.5", "11.67", "12", "10", "9.333"])


def test_a_second_choice_needs_values_that_do_not_depend_on_others():
    with pytest.raises(ValueError, match="beside='and': the values of the last axis must be given"):
        explore(lambda **_: "", beside="and", a=[1], b=lambda a: [a])


def test_every_schedule_that_trains_can_be_tried_and_has_a_row():
    tried = {name.rpartition(" ")[0] if "=" in name else name for name in TRIED}
    assert tried == set(names()) - {"inference"}
    table = cost_table(4, 8)
    rows = {row.split("|")[1].strip(): [cell.strip() for cell in row.split("|")[2:-1]] for row in table.splitlines()[2:]}
    assert set(rows) == tried
    assert rows["1F1B"] == ["27.3%", "15.8%", "4", "1", "0"]
    assert rows["GPipe"][2] == "8" and rows["Chimera"][3] == "2" and rows["PipeDream"][3] == "4"
    assert {row[1] for row in (rows["ZB-H2"], rows["ZB-V"])} == {"0.0%"}
