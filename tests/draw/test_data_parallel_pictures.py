"""The pictures of data parallelism show what the runs did: no time that wasn't spent, no byte that wasn't sent."""

from __future__ import annotations

import re
from collections import Counter

import pytest

from mlsyslab import Link
from mlsyslab.data_parallel import ASP, BSP, SSP, Job, Setup, Slow, idle, logistic, play, regret, staleness
from mlsyslab.draw.buckets import _backward, _hands
from mlsyslab.draw.clocks import Cell, Group, Lane, Lanes
from mlsyslab.draw.data_parallel import histograms, loads, losses, overlaps, regrets, server_or_ring, stragglers, workers
from mlsyslab.draw.lines import lines, short
from mlsyslab.draw.links import Loads, _loads
from mlsyslab.draw.stragglers import STRAGGLERS, _waits


@pytest.fixture(scope="module")
def records():
    """The same job under each model; one worker is twice as slow."""
    models = {"BSP": BSP(), "SSP": SSP(2), "ASP": ASP()}
    return {name: play(Job(logistic(3), 6, Setup(consistency=model), Slow(factors={1: 2.0})), Link(alpha=1e-6))
            for name, model in models.items()}


def states(widget) -> int:
    """How many characters of pictures a widget brings to its page."""
    return sum(len(part.value) for part in parts(widget) if type(part).__name__ == "HTML")


def parts(widget):
    yield widget
    for child in getattr(widget, "children", ()):
        yield from parts(child)


# -- lanes ------------------------------------------------------------------------------------------------------------


def test_what_is_no_cell_is_idle():
    lane = Lane("w", [Cell(1.0, 2.0, "0"), Cell(2.0, 4.0, "1"), Cell(5.0, 6.0, "2")])
    assert lane.gaps(8.0) == [(0.0, 1.0), (4.0, 5.0), (6.0, 8.0)]


def test_numbers_stand_in_cells_that_have_room_for_them():
    picture = Lanes([Group("g", "", [Lane("w", [Cell(0.0, 9.0, "wide"), Cell(9.0, 9.01, "narrow")])], 10.0)], "title")
    assert "wide" in picture.svg() and "narrow" not in picture.svg()


def test_every_iteration_of_every_worker_is_drawn(records):
    picture = workers(records).svg()
    numbers = Counter(re.findall(r'<text class="in"[^>]*>(\d)</text>', picture))
    assert numbers == {str(clock): 9 for clock in range(6)}  # three runs of three workers


def test_the_heading_says_how_long_workers_wait(records):
    for name, record in records.items():
        assert f"workers wait {100 * idle(record):.0f} % of their time" in workers({name: record}).svg()


@pytest.mark.parametrize("straggler", STRAGGLERS)
@pytest.mark.parametrize("worker", [0, 3])
def test_stragglers_are_where_the_slider_says(straggler, worker):
    trace = _waits(straggler, worker, 3, 10)["ASP"].trace
    long = [(e.rank - 1, e.label) for e in trace if e.kind == "compute" and e.end - e.start > 2]
    expected = {"one slow iteration": [(worker, "clock 2")],
                "one slow worker": [(worker, f"clock {clock}") for clock in range(10)],
                "each worker once, in turn": [((worker + k) % 4, f"clock {1 + 2 * k}") for k in range(4)]}[straggler]
    assert sorted(long) == sorted(expected)


def test_what_the_chapter_says_of_the_three_stragglers():
    """One slow iteration ends at one time; delays in turn add up under BSP alone; a slow worker sets the pace of all."""
    once, turns, slow = (_waits(name, 1, 3, 10) for name in STRAGGLERS)  # 2 iterations late, each
    ends = {name: [round(record.time) for record in runs.values()]
            for name, runs in zip(STRAGGLERS, (once, turns, slow), strict=True)}
    assert ends == {"one slow iteration": [12, 12, 12], "each worker once, in turn": [18, 12, 12],
                    "one slow worker": [30, 30, 30]}
    assert [idle(record) > 0.1 for record in once.values()] == [True, False, False]


# -- staleness --------------------------------------------------------------------------------------------------------


def test_histograms_say_mean_and_most(records):
    picture = histograms({name: staleness(record) for name, record in records.items()})
    found = staleness(records["ASP"])
    mean = sum(k * v for k, v in found.items()) / found.total()
    assert f"ASP: mean {mean:.1f}, most {max(found)}" in picture.svg()


def test_what_is_beyond_the_last_bar_is_in_it():
    picture = histograms({"a": Counter({0: 1, 50: 3})}).svg()
    assert "24+" in picture and "most 50" in picture
    assert len(re.findall(r"v-48", picture)) == 1  # the highest bar is that of what is beyond


def test_losses_by_work_end_at_one_place_and_by_time_at_several(records):
    assert "gradients computed" in losses(records, "by work", "", window=4).svg()
    assert "seconds" in losses(records, "by time", "", window=4).svg()
    with pytest.raises(ValueError, match='"by time" or "by work"'):
        losses(records, "by steps", "")


def test_the_measured_regret_is_drawn_below_its_bound():
    run = regret(1, workers=2, clocks=20)
    picture = regrets({1: run})
    paths = re.findall(r'<path class="curve c\d" d="M([^"]*)"', picture.svg())
    bound, measured = ([tuple(map(float, point.split())) for point in path.split("L")] for path in paths)
    assert [x for x, _ in bound] == [x for x, _ in measured]
    assert all(above < below for (_, above), (_, below) in zip(bound, measured, strict=True))  # y grows downwards


# -- links ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("W, S", [(2, 1), (8, 1), (6, 3), (3, 4)])
def test_loads_of_links_are_those_of_the_formulas(W, S):
    trace, only, n = _loads("servers", W, S)
    assert only == S
    assert [trace.bytes_sent(rank) for rank in range(S)] == [W * n / S] * S
    assert [trace.bytes_sent(rank) for rank in range(S, S + W)] == [n] * W
    for way in ("beside", "ring"):
        trace, only, n = _loads(way, W, S)
        assert only == 0 and trace.size == W
        assert [trace.bytes_sent(rank) for rank in range(W)] == [2 * (W - 1) * n / W] * W


def test_a_server_of_eight_workers_takes_sixteen_times_the_gradient():
    picture = Loads(8, 1).svg()
    assert "takes 16 nβ" in picture and picture.count("takes 1.75 nβ") == 2


def test_ring_and_servers_are_drawn_over_workers():
    picture = server_or_ring(1e8, Link(1e-6, 1e-9)).svg()
    assert all(name in picture for name in ("one server", "4 servers", "W servers", "ring"))


# -- buckets ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("layers_a_bucket", [1, 2, 8])
def test_a_backward_shows_each_layer_and_each_bucket(layers_a_bucket):
    trace = _backward(layers_a_bucket * 4 * 16**2, 8, 16, Link(1e-4, 1e-7), 1e-2)
    backward, reduced = _hands("rank 0", trace).lanes
    assert [cell.name for cell in backward.cells] == [str(k) for k in range(7, -1, -1)]
    assert [cell.name for cell in reduced.cells] == [str(k) for k in range(8 // layers_a_bucket)]
    assert backward.cells[0].start == pytest.approx(0.0, abs=1e-9)
    for k, cell in enumerate(reduced.cells):  # each begins when its last gradient is there, or the one before it has ended
        ready = backward.cells[(k + 1) * layers_a_bucket - 1].end
        assert cell.start == pytest.approx(max(ready, reduced.cells[k - 1].end if k else 0.0), abs=1e-6)


# -- widgets and lines ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("widget", [lambda: stragglers(factors=(1, 2), clocks=4), lambda: loads((2, 4), (1, 2)),
                                    lambda: overlaps(layers=4, width=8)])
def test_widgets_are_made_and_stay_light(widget):
    assert 1000 < states(widget()) < 500_000


@pytest.mark.parametrize("value, words", [(0.5, "0.5"), (20, "20"), (20_000, "20k"), (3e6, "3M")])
def test_ticks_are_short(value, words):
    assert short(value) == words


def test_lines_refuse_what_they_cannot_draw():
    with pytest.raises(ValueError, match="two points"):
        lines({"a": [(1, 1)]}, "", "x", "y")
    with pytest.raises(ValueError, match="above 0"):
        lines({"a": [(0, 1), (1, 2)]}, "", "x", "y", x_log=True)
    with pytest.raises(ValueError, match="no runs"):
        workers({})
    with pytest.raises(ValueError, match="one count"):
        histograms({})


def test_a_line_beyond_the_axis_lies_on_its_edge():
    picture = lines({"a": [(0, 1), (1, 5)]}, "", "x", "y", y_span=(0, 2))
    assert picture.y(5) == picture.y(2) == picture.y(float("inf"))
