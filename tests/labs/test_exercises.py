"""Every exercise of every lab: right solutions pass, the stub and every known-wrong solution get their message."""

from __future__ import annotations

import importlib
import re
from copy import deepcopy
from random import Random

import pytest
import torch
from exercises import SOLUTIONS, cells, exercises, message, nbgrader, solved

from mlsyslab.check import Check, Wrong, inputs
from mlsyslab.check.exercise import Formula, Problem
from mlsyslab.check.messages import difference

LABS = sorted(path.stem for path in SOLUTIONS.glob("*.py"))
EXERCISES = [(lab, name) for lab in LABS for name in exercises(lab)]
WRONG = {lab: importlib.import_module(f"{lab}_wrong").wrong for lab in LABS}
MISTAKES = [pytest.param(lab, name, *pair, id=f"{lab}-{name}-{pair[0].__name__}")
            for lab in LABS for name in WRONG[lab] for pair in WRONG[lab][name]]


def check_of(lab: str, name: str) -> Check:
    return getattr(importlib.import_module(f"mlsyslab.check.{lab}"), name)


# -- the lab ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("lab", LABS)
def test_the_points_are_100_and_every_exercise_is_checked_in_sight_and_hidden(lab):
    graded = [cell for cell in cells(lab) if nbgrader(cell).get("grade")]
    assert sum(nbgrader(cell)["points"] for cell in graded) == 100
    assert [nbgrader(cell)["grade_id"] for cell in graded] == [f"{name}_check" for name in exercises(lab)]
    assert sorted(importlib.import_module(f"mlsyslab.check.{lab}").__all__) == sorted(exercises(lab))
    for cell, name in zip(graded, exercises(lab), strict=True):
        assert cell.source.splitlines() == [f"check.{name}({name})", "### BEGIN HIDDEN TESTS",
                                            f"check.{name}({name}, hidden=True)", "### END HIDDEN TESTS"]


@pytest.mark.parametrize("lab", LABS)
def test_exercises_do_not_depend_on_one_another(lab):
    for cell in cells(lab):
        own = nbgrader(cell)["grade_id"]
        if nbgrader(cell).get("solution"):
            called = [other for other in exercises(lab) if other != own and re.search(rf"(?<![.\w]){other}\(", cell.source)]
            assert not called, f"{own} calls {called}"


# -- right solutions --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", ["1", "another", "3.14"])
@pytest.mark.parametrize("lab, name", EXERCISES)
def test_the_reference_passes_whatever_the_seed(lab, name, seed, monkeypatch, capsys):
    monkeypatch.setenv(inputs.SEED, seed)
    check_of(lab, name)(solved(lab)[name], hidden=True)
    assert capsys.readouterr().out.splitlines()[-1].startswith(f"{name}: right in")


@pytest.mark.parametrize("lab, name", [(lab, name) for lab, name in EXERCISES if isinstance(check_of(lab, name), Formula)])
def test_the_right_answer_is_right_whatever_is_drawn(lab, name):
    """Also where some slip would come to the same."""
    check, fn = check_of(lab, name), solved(lab)[name]
    for seed in range(10):
        for case in check.cases(Random(seed)):
            assert check.problem(fn, case) is None, case.traits


# -- wrong solutions --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("lab, name", EXERCISES)
def test_the_empty_stub_is_told_so(lab, name):
    def stub(*_):
        raise NotImplementedError

    for hidden in (False, True):
        assert message(check_of(lab, name), stub, hidden).startswith(f"{name} is not written yet")


@pytest.mark.parametrize("lab", LABS)
def test_every_exercise_has_at_least_five_known_wrong_solutions(lab):
    assert set(WRONG[lab]) == set(exercises(lab))
    assert all(len(solutions) >= 5 for solutions in WRONG[lab].values())


@pytest.mark.parametrize("lab, name, fn, phrase", MISTAKES)
def test_a_wrong_solution_gets_the_message_that_names_its_mistake(lab, name, fn, phrase, monkeypatch):
    check = check_of(lab, name)
    monkeypatch.setattr(check, "timeout", 4.0)
    said = message(check, fn)
    assert phrase in said
    traits = check.cases(inputs.source(name, hidden=False))[0].traits
    assert said.startswith(f"{name}, {next(iter(traits))} ")  # which case it was


@pytest.mark.parametrize("lab, name, fn, phrase", [mistake for mistake in MISTAKES if "endless" not in mistake.id])
def test_a_wrong_solution_fails_on_hidden_inputs_too(lab, name, fn, phrase, monkeypatch):
    monkeypatch.setenv(inputs.SEED, "a secret")
    message(check_of(lab, name), fn, hidden=True)


def changed(argument) -> bool:
    """Change an argument, if it can be changed."""
    if isinstance(argument, list) and argument:
        argument.append(argument[-1])
    elif isinstance(argument, dict) and argument:
        argument.popitem()
    elif isinstance(argument, torch.Tensor) and argument.numel():
        argument.zero_().add_(17)
    else:
        return False
    return True


@pytest.mark.parametrize("lab, name", [(lab, name) for lab, name in EXERCISES if isinstance(check_of(lab, name), Formula)])
def test_a_right_answer_that_changes_what_it_is_given_is_told_so(lab, name):
    check, fn = check_of(lab, name), solved(lab)[name]

    def changes(*arguments):
        answer = deepcopy(fn(*arguments))  # it may hold what was given
        touched.append(sum(map(changed, arguments)) > 0)
        return answer

    for case in check.cases(Random(1)):
        touched = []
        problem = check.problem(changes, case)
        assert (problem is not None and "was changed" in problem.text) if any(touched) else problem is None


@pytest.mark.parametrize("lab, name", EXERCISES)
def test_after_a_wrong_case_one_that_does_not_end_is_not_waited_for_again_and_again(lab, name, monkeypatch):
    check, calls = check_of(lab, name), []

    def problem(fn, case):
        calls.append(case)
        return Problem("wrong", endless=len(calls) > 1)

    monkeypatch.setattr(check, "problem", problem)
    assert "wrong" in message(check, lambda *_: None) and len(calls) <= 3


@pytest.mark.parametrize("lab, name", EXERCISES)
def test_what_is_no_function_is_said_to_be_none(lab, name):
    assert "give the function itself" in message(check_of(lab, name), None)


def test_only_the_message_is_shown_in_a_notebook():
    wrong = Wrong("one\ntwo")
    assert wrong._render_traceback_() == ["Wrong: one", "two"]


@pytest.mark.parametrize("came, exact, element", [
    (torch.arange(160.0).index_fill(0, torch.tensor(57), -1), True, 57),
    (torch.arange(160.0).index_fill(0, torch.tensor(3), 3.00000048), True, 3),
    (torch.arange(160.0).index_fill(0, torch.tensor(99), float("nan")), False, 99)])
def test_where_what_is_shown_is_alike_the_element_is_named(came, exact, element):
    assert f"They differ in element {element}: it came as {came[element].item()!r}" in difference(
        0, came, torch.arange(160.0), exact)
    assert "They differ" not in difference(0, torch.zeros(160), torch.arange(160.0), exact)


# -- inputs -----------------------------------------------------------------------------------------------------------


def test_hidden_inputs_come_from_the_seed(monkeypatch):
    draw = {}
    for seed in ("1", "2"):
        monkeypatch.setenv(inputs.SEED, seed)
        draw[seed] = inputs.source("cost", hidden=True).random()
        assert draw[seed] == inputs.source("cost", hidden=True).random()
        assert inputs.source("cost", hidden=False).random() == Random("cost").random()
    assert draw["1"] != draw["2"]
