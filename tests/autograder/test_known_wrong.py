"""Known-wrong solutions of every lab through the real grader: no points, and the message that names the mistake."""

from __future__ import annotations

import os
import sys
from importlib import import_module
from pathlib import Path
from random import Random

import pytest
from real_labs import LABS, judging

from autograder import sandbox

FOLDER = Path(__file__).parents[1] / "labs"
# What is handed in: the file of the wrong solutions, with names of its own, and one of them.
HANDED_IN = '''
import sys, types

class KnownWrong(dict):
    def __call__(self, exercise, phrase):
        return lambda fn: self.setdefault(exercise, []).append(fn) or fn

sys.modules["known_wrong"] = types.ModuleType("known_wrong")
sys.modules["known_wrong"].KnownWrong = KnownWrong
names = {{"__name__": "known_wrong_solutions"}}
exec({file!r}, names)
{exercise} = names["wrong"][{exercise!r}][{number}]
'''

pytestmark = pytest.mark.skipif(sandbox.missing() is not None, reason=str(sandbox.missing()))


def known(lab: str) -> list[tuple[str, int, str]]:
    """(exercise, number, phrase of the message): all where SWEEP is set, else a few by lot and those that don't end."""
    sys.path.append(str(FOLDER))
    wrong = import_module(f"{lab}_wrong").wrong
    sys.path.remove(str(FOLDER))
    found = [(exercise, number, phrase) for exercise, fns in wrong.items() for number, (_, phrase) in enumerate(fns)]
    if os.environ.get("SWEEP"):
        return found
    return list(dict.fromkeys([*Random(lab).sample(found, 5), *(one for one in found if "takes too long" in one[2])]))


@pytest.mark.parametrize("lab", LABS)
def test_a_known_wrong_solution_gets_no_points_and_its_message(lab, tmp_path, monkeypatch):
    file, missed = (FOLDER / f"{lab}_wrong.py").read_text(), []
    with judging(lab, tmp_path, monkeypatch) as (handed_out, judge):
        for exercise, number, phrase in known(lab):
            judged = judge({exercise: HANDED_IN.format(file=file, exercise=exercise, number=number)})
            (verdict,) = [verdict for verdict in judged.verdicts if verdict.exercise == exercise]
            said = " ".join(verdict.why)
            there = "Nothing" not in said  # what some of them take from the checks, of which the sandbox has none
            if sum(verdict.points.values()) or (there and phrase not in said):
                missed.append((exercise, number, phrase, said))
    assert not missed
