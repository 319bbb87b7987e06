"""Pictures of collectives: they are well-formed, and they show every message and everything that ranks hold."""

import json
import re
from xml.etree import ElementTree

import ipywidgets
import pytest
from ipywidgets import Dropdown, SelectionSlider, Stack

from mlsyslab import Link
from mlsyslab.collectives import ALGORITHMS, MeasuredLink
from mlsyslab.collectives.cost import cost
from mlsyslab.draw import widgets
from mlsyslab.draw.collectives import (
    NETWORKS,
    PICTURED,
    SIZES,
    closed_form,
    clusters,
    compared,
    cost_table,
    crossover,
    explorer,
    fitted,
    flat_algorithms,
    look_of,
    operations,
    reading,
    ring_on_a_line,
    short_name,
    steps,
    this_machine,
    walk,
)
from mlsyslab.draw.holdings import GAP, PITCH, Holdings, runs, span
from mlsyslab.draw.plot import Curve, loglog, size_of, ticks, time_of
from mlsyslab.draw.watch import watch

CASES = [(op, algorithm) for op in PICTURED for algorithm in ALGORITHMS[op]]
SVG = "{http://www.w3.org/2000/svg}"


def parse(picture):
    """The picture as XML; raises when it is not well-formed."""
    root = ElementTree.fromstring(picture.svg())
    assert root.tag == f"{SVG}svg"
    assert root.find(f"{SVG}title").text
    return root


def of_class(root, name):
    return [e for e in root.iter() if name in e.get("class", "").split()]


@pytest.mark.parametrize("p", [2, 5, 8])
@pytest.mark.parametrize(("op", "algorithm"), CASES)
def test_a_frame_for_each_step_and_an_arrow_for_each_message(op, algorithm, p):
    watched = watch(op, algorithm, p)
    pictures = steps(op, algorithm, p).pictures
    assert len(pictures) == watched.steps + 1
    for step, picture in enumerate(pictures):
        root = parse(picture)
        for kind, sign in (("msg", "c"), ("head", "l")):
            assert sum(e.get("d").count(sign) for e in of_class(root, kind)) == len(watched.of(step))
        assert len(of_class(root, "halo")) == len(watched.of(step))
        for message in watched.of(step):
            assert f"{message.source} to {message.to}:" in root.find(f"{SVG}desc").text


@pytest.mark.parametrize("p", [1, 3, 8])
@pytest.mark.parametrize(("op", "algorithm"), [("all_reduce", "ring"), ("reduce", "mst"), ("broadcast", "ring")])
def test_every_share_that_is_needed_is_drawn(op, algorithm, p):
    watched = watch(op, algorithm, p)
    for step in range(watched.steps + 1):
        root = parse(Holdings(watched, step, f"step {step}"))
        strokes = [path.get("d") for group in of_class(root, "has") for path in group.iter(f"{SVG}path")]
        drawn = sum((float(length) + GAP) / PITCH for d in strokes for length in re.findall(r"v([\d.]+)", d))
        wanted = 0
        for rank, holding in enumerate(watched.states[step]):
            for slot in watched.live[step][rank]:
                share = len(holding[slot].ranks)
                wanted += 1 if share == p else share
        assert drawn == wanted


def test_boxes_stand_still_in_steady_frames():
    watched = watch("broadcast", "mst", 8)
    assert len({(f.height, f.top, f.left) for f in (Holdings(watched, k, "", steady=True) for k in range(4))}) == 1


def test_every_operation_before_and_after():
    pictures = operations().pictures
    assert len(pictures) == len(PICTURED)
    for picture in pictures:
        parse(picture)
        assert picture.description.startswith("before: rank 0") and "after: rank 0" in picture.description


def test_runs_and_spans():
    assert runs([0, 1, 2, 5, 7, 8]) == [(0, 2), (5, 5), (7, 8)]
    assert (span([2]), span([0, 1, 2, 3]), span([0, 2])) == ("2", "0–3", "0,2")


# The table of Chan et al. 2007, and of Thakur et al. 2005 for halving; L = log2 p, c = (p-1)/p.
TABLE = {
    ("broadcast", "mst"): r"L\,\alpha + L\,n\beta",
    ("reduce", "mst"): r"L\,\alpha + L\,n\beta + L\,n\gamma",
    ("scatter", "mst"): r"L\,\alpha + c\,n\beta",
    ("gather", "mst"): r"L\,\alpha + c\,n\beta",
    ("all_gather", "mst"): r"2L\,\alpha + (L + c)\,n\beta",
    ("reduce_scatter", "mst"): r"2L\,\alpha + (L + c)\,n\beta + L\,n\gamma",
    ("all_reduce", "mst"): r"2L\,\alpha + 2L\,n\beta + L\,n\gamma",
    ("broadcast", "ring"): r"(L + (p-1))\,\alpha + 2c\,n\beta",
    ("reduce", "ring"): r"(L + (p-1))\,\alpha + 2c\,n\beta + c\,n\gamma",
    ("all_gather", "ring"): r"(p-1)\,\alpha + c\,n\beta",
    ("reduce_scatter", "ring"): r"(p-1)\,\alpha + c\,n\beta + c\,n\gamma",
    ("all_reduce", "ring"): r"2(p-1)\,\alpha + 2c\,n\beta + c\,n\gamma",
    ("all_reduce", "halving"): r"2L\,\alpha + 2c\,n\beta + c\,n\gamma",
    ("broadcast", None): r"L\,\alpha + n\beta",
    ("all_reduce", None): r"L\,\alpha + 2c\,n\beta + c\,n\gamma",
}


@pytest.mark.parametrize(("op", "algorithm"), TABLE)
def test_closed_forms_recovered_from_numbers(op, algorithm):
    assert closed_form(op, algorithm) == TABLE[op, algorithm]


def test_the_table_has_a_row_for_each_algorithm_and_each_bound():
    rows = cost_table().splitlines()[2:]
    assert len(rows) == sum(len(flat_algorithms(op)) + 1 for op in PICTURED)


@pytest.mark.parametrize("p", [2, 7, 64, 1024])
@pytest.mark.parametrize("op", ["all_reduce", "broadcast", "all_gather"])
@pytest.mark.parametrize("network", NETWORKS)
def test_the_shaded_stretches_cover_the_axis_and_name_the_fastest(op, p, network):
    link = NETWORKS[network]
    root = parse(crossover(op, p, link))
    stretches = sorted((float(e.get("x")), float(e.get("width")), e.get("class").split()[-1]) for e in of_class(root, "won"))
    for (x, width, _), (following, _, _) in zip(stretches, stretches[1:], strict=False):
        assert x + width == pytest.approx(following, abs=0.2)
    left, right = stretches[0][0], stretches[-1][0] + stretches[-1][1]
    names = flat_algorithms(op)
    for x, width, look in stretches:
        n = SIZES[0] * (SIZES[-1] / SIZES[0]) ** ((x + width / 2 - left) / (right - left))
        times = {name: cost(op, name, p, n).time(link) for name in names}
        named = next(name for name in names if look_of(name) == int(look[1:]))
        assert times[named] == pytest.approx(min(times.values()), rel=0.02)


def test_a_reading_lists_the_fastest_first():
    link, words = NETWORKS["InfiniBand NDR"], reading("all_reduce", 8, NETWORKS["InfiniBand NDR"], 2**20).title
    times = {short_name(name): cost("all_reduce", name, 8, 2**20).time(link) for name in flat_algorithms("all_reduce")}
    said = re.findall(r"(\w+) [\d.]+ [µm]?s", words)
    assert said == sorted(times, key=times.get)


def test_points_and_curves_lie_inside_the_plot():
    curve = [(2.0**k, 1e-6 + 2.0**k * 1e-9) for k in range(4, 24)]
    root = parse(loglog([Curve("a curve", curve), Curve("", curve[::4], points=True)], "a plot"))
    width, height = float(root.get("width")), float(root.get("height"))
    for circle in root.iter(f"{SVG}circle"):
        assert 0 <= float(circle.get("cx")) <= width and 0 <= float(circle.get("cy")) <= height
    (path,) = of_class(root, "curve")
    points = [tuple(map(float, point.split())) for point in path.get("d")[1:].split("L")]
    assert points == sorted(points) and all(0 <= x <= width and 0 <= y <= height for x, y in points)
    assert [y for _, y in points] == sorted((y for _, y in points), reverse=True)


def test_measurements_are_points_and_predictions_lines():
    link = MeasuredLink(1e-6, 1e-9, 0, messages=((64, 1.1e-6), (4096, 5e-6), (2**20, 1.1e-3)))
    root = parse(fitted(link))
    assert len(list(root.iter(f"{SVG}circle"))) == 3 and len(of_class(root, "curve")) == 1
    points = dict.fromkeys(("mst", "ring"), ((2 ** 10, 1e-05), (2 ** 20, 0.002)))
    root = parse(compared(points, points, "both"))
    assert len(list(root.iter(f"{SVG}circle"))) == 4 and len(of_class(root, "curve")) == 2


def test_a_measurement_says_where_it_was_made():
    assert re.search(r".+, \d+ cores, Python 3\.\d+\.\d+, PyTorch \d+\.\d+\.\d+, \d\d \w+ \d{4}$", this_machine())


def test_algorithms_of_one_operation_look_different():
    for op in PICTURED:
        looks = [look_of(name) for name in flat_algorithms(op)]
        assert len(set(looks)) == len(looks)


def test_no_plot_of_nothing():
    with pytest.raises(ValueError, match="at least one curve"):
        loglog([], "empty")


def test_ticks_are_round_and_enough():
    assert ticks(3e-6, 2e-3) == pytest.approx([1e-5, 1e-4, 1e-3])
    assert ticks(3e-3, 3e-2) == pytest.approx([5e-3, 1e-2, 2e-2])


def test_units():
    assert (size_of(100), size_of(2**10), size_of(3 * 2**20), size_of(2**30)) == ("100 B", "1 KiB", "3 MiB", "1 GiB")
    assert (time_of(14e-6), time_of(0.25), time_of(2)) == ("14 µs", "250 ms", "2 s")


@pytest.mark.parametrize("p", [2, 5, 8])
def test_on_a_line_no_two_messages_of_a_ring_share_a_wire(p):
    picture = ring_on_a_line(p)
    parse(picture)
    assert picture.description == f"{2 * (p - 1)} wires, each carries 1 message in a step"


def test_the_ways_to_wire_ranks():
    for picture in clusters().pictures:
        parse(picture)


class Made:
    """A widget with all that it is made of: its parts, and the links between them."""

    def __init__(self, make):
        self.links = []
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(widgets, "jslink", lambda source, target: self.links.append(ipywidgets.jslink(source, target)))
            self.top = make()
        self.parts = {}
        self.collect(self.top)

    def collect(self, part):
        self.parts[part.model_id] = part
        for child in getattr(part, "children", ()):
            self.collect(child)

    def weight(self):
        """Bytes of its state on a page."""
        return sum(len(json.dumps(part.get_state(), default=str)) for part in (*self.parts.values(), *self.links))


@pytest.fixture(scope="module")
def walked():
    return Made(walk)


def test_each_control_has_a_frame_for_each_choice(walked):
    assert walked.links
    for link in walked.links:
        (control, _), (stack, _) = link.source, link.target
        assert isinstance(control, (Dropdown, SelectionSlider)) and isinstance(stack, Stack)
        assert len(control.options) == len(stack.children)
        assert control.index == stack.selected_index


def test_it_shows_every_run_step_by_step(walked):
    sliders = [part for part in walked.parts.values() if isinstance(part, SelectionSlider) and part.description == "step"]
    wanted = sorted(watch(op, name, p, node=2 if name == "hierarchical" else None).steps + 1
                    for op, name in CASES for p in range(2, 9))
    assert sorted(len(slider.options) for slider in sliders) == wanted


def test_the_page_stays_light(walked):
    assert walked.weight() + Made(explorer).weight() < 3_000_000


def test_the_explorer_opens_where_there_is_something_to_see():
    box = explorer(ps=(2, 8), lengths=(2**10, 2**20))
    p = next(w for w in box.children if isinstance(w, SelectionSlider) and w.description == "p")
    assert p.value == "8"


def test_a_crossover_lies_where_the_costs_are_equal():
    link = Link(1e-5, 1e-9)
    root = parse(crossover("broadcast", 16, link))
    boundary = max(float(e.get("x")) for e in of_class(root, "won"))
    left = min(float(e.get("x")) for e in of_class(root, "won"))
    right = max(float(e.get("x")) + float(e.get("width")) for e in of_class(root, "won"))
    n = SIZES[0] * (SIZES[-1] / SIZES[0]) ** ((boundary - left) / (right - left))
    # tree: 4 a + 4 n b; scatter and doubling: 8 a + 15/8 n b; equal at n = 4 a / (17/8 b)
    assert n == pytest.approx(4 * link.alpha / (17 / 8 * link.beta), rel=0.45)
