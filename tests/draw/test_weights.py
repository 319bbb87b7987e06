"""Weight versions stepped through: what a rank is shown to keep is what the schedule makes it keep."""

import re

import pytest

from mlsyslab.draw.weights import Kept, kept, weight_versions
from mlsyslab.pipeline import schedule
from mlsyslab.pipeline import weight_versions as most_versions

NAMES = ("PipeDream", "PipeDream-2BW", "AMPNet", "PipeMare")


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("p", [1, 2, 4, 5])
def test_at_most_as_many_versions_are_kept_as_the_schedule_needs(name, p):
    made = schedule(name, p, 4 * p)
    for row, most in zip(made.actions, most_versions(made), strict=True):
        held = [len(kept(row, done)) for done in range(len(row) + 1)]
        assert held[0] == held[-1] == 1
        assert max(held) == most


@pytest.mark.parametrize("name", NAMES)
def test_an_action_computes_with_a_version_that_is_kept(name):
    for row in schedule(name, 4, 11).actions:
        for done, action in enumerate(row):
            held = {one.version: one for one in kept(row, done)}
            if action.kind != "U":
                assert action.version in held
            if action.kind == "B" and name.startswith("PipeDream"):
                assert action.microbatch in held[action.version].waiting


def test_pipedream_after_its_first_update():
    """Rank 0 of 4: version 1 is new, and version 0 stays for the microbatches that are under way."""
    row = schedule("PipeDream", 4, 9).actions[0]
    assert kept(row, 4) == [Kept(0, True, (0, 1, 2, 3))]
    assert kept(row, 6) == [Kept(0, False, (1, 2, 3)), Kept(1, True, ())]


def test_readers_step_through_the_time_of_each_schedule():
    def inside(widget):
        yield widget
        for child in getattr(widget, "children", ()):
            yield from inside(child)

    made = list(inside(weight_versions(("PipeDream", "AMPNet"), p=3, m=5)))
    options = {widget.description: list(widget.options) for widget in made if hasattr(widget, "options")}
    assert options["schedule"] == ["PipeDream", "AMPNet"]
    steps = len(options["time"])
    frames = {widget.value for widget in made if "weight versions at time" in str(getattr(widget, "value", ""))}
    assert {int(re.search(r"weight versions at time (\d+)", frame)[1]) for frame in frames} == set(range(steps))
    assert len(frames) > steps  # the two differ, but for the first steps
    places = sorted(float(re.search(r'class="now" d="M([\d.]+) ', frame)[1]) for frame in frames)
    assert places[-1] > places[0]
