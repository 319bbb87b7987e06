"""Ways to hold less, side by side."""

import pytest

from mlsyslab.memory import training, ways
from mlsyslab.model import published, training_flops

CONFIG = published("gpt3-6.7b").config


def test_each_way_holds_less_and_costs_what_it_computes_again():
    found = {way.name: way for way in ways(CONFIG, 8, "H200", hfu=0.5)}
    nothing = found.pop("nothing")
    assert nothing.flops == 1 and nothing.mfu == pytest.approx(0.5)
    assert nothing.peak_bytes == training(CONFIG, 8, precision="mixed", device="cuda").peak
    assert all(way.peak_bytes < nothing.peak_bytes and way.seconds >= nothing.seconds for way in found.values())
    full, selective = found["every block again"], found["attention's core again"]
    assert full.mfu / 0.5 == pytest.approx(1 / full.flops) == pytest.approx(3 / 4, abs=0.02)
    assert full.peak_bytes < selective.peak_bytes and 0.95 < selective.mfu / 0.5 < 1
    assert found["every 6 blocks again"].seconds == full.seconds
    assert found["in 4 parts"].seconds == nothing.seconds  # parts compute the same


def test_swapping_is_free_while_the_link_keeps_up():
    def swapping(link):
        return next(way for way in ways(CONFIG, 8, "H200", link=link) if way.name == "swapping")

    needed = training_flops(CONFIG, 8) / (989e12 * 0.5)
    assert swapping(1e15).seconds == pytest.approx(needed)
    assert swapping(10e9).seconds == pytest.approx(2 * swapping(20e9).seconds, rel=0.05) and swapping(10e9).mfu < 0.1


@pytest.mark.parametrize(("wrong", "says"), [
    ({"hfu": 50}, "as 0.5 for 50 percent"), ({"link": 0}, "link is a finite number"),
    ({"parts": 0}, "parts is a whole number")])
def test_wrong_input_is_refused(wrong, says):
    with pytest.raises(ValueError, match=says):
        ways(CONFIG, 8, "H200", **wrong)
