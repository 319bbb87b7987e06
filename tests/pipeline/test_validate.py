"""Broken schedules are rejected, each for the right reason; and what torch's checker lets through."""

import random

import pytest
from torch.distributed.pipelining.schedules import _Action, _validate_schedule

from mlsyslab.pipeline import Action, InvalidSchedule, Schedule, names, schedule, validate


def problems(*rows, placement=(), **fields):
    """What `validate` finds in a schedule written as text, one row a rank."""
    actions = Schedule.from_csv("\n".join(row.replace(" ", ",") for row in rows)).actions
    with pytest.raises(InvalidSchedule) as caught:
        validate(Schedule("broken", actions, placement, **fields))
    return caught.value


GOOD = "0F0 0F1 0B0 0B1", "1F0 1B0 1F1 1B1"

BROKEN = {
    "forward missing": (("0F0 0B0 0B1", "1F0 1B0 1F1 1B1"), -1, "0F1", "this forward is missing"),
    "backward missing": (("0F0 0F1 0B0 0B1", "1F0 1B0 1F1"), -1, "1B1", "this backward is missing"),
    "whole stage missing": (("0F0 0F1 0B0 0B1", "2F0 2B0 2F1 2B1"), -1, "1F0", "this forward is missing"),
    "W missing": (("0F0 0I0 0F1 0I1 0W1",), -1, "0W0", "this weight gradient is missing"),
    "W after B": (("0F0 0B0 0W0",), 0, "0W0", "B already computes this weight gradient"),
    "W alone": (("0F0 0W0 0F1 0B1",), -1, "0B0", "this backward is missing, and there is no I instead"),
    "B and I": (("0F0 0B0 0I0 0W0",), 0, "0I0", "has a full backward on this stage as well"),
    "twice on one rank": (("0F0 0F1 0F0 0B0 0B1", GOOD[1]), 0, "0F0", "occurs twice; the first time is on rank 0"),
    "twice on two ranks": (("0F0 0F1 0B0 0B1 1F0", GOOD[1]), 1, "1F0", "occurs twice; the first time is on rank 0"),
    "backward before forward": (("0B0 0F0",), 0, "0B0", "comes before 0F0, which it needs"),
    "W before I": (("0F0 0W0 0I0",), 0, "0W0", "comes before 0I0, which it needs"),
    "stage before its input": (("1F0 0F0 1B0 0B0",), 0, "1F0", "comes before 0F0, which it needs"),
    "backward before the next stage's": (("0F0 1F0 0B0 1B0",), 0, "0B0", "comes before 1B0, which it needs"),
    "slice before the one before": (("0F0.1 0F0 0B0.1 0B0",), 0, "0F0.1", "comes before 0F0, which it needs"),
    "gradient of a slice too soon": (("0F0 0F0.1 0B0 0B0.1",), 0, "0B0", "comes before 0B0.1, which it needs"),
    "two ranks wait for each other": (("0F0 0B0 0F1 0B1", "1F0 1F1 1B0 1B1"), 0, "0B0",
                                      "waits for 1B0 of rank 1, which is itself waiting at 1F1 "
                                      "(deadlock: rank 0 → rank 1 → rank 0)"),
    "three ranks in a circle": (("0F0 3F0 3B0 0B0", "1F0 1B0 4F0 4B0", "2F0 2B0 5F0 5B0"), 0, "3B0",
                                "waits for 4B0 of rank 1, which is itself waiting at 1B0 "
                                "(deadlock: rank 0 → rank 1 → rank 2 → rank 0)"),
    "order of two directions": (("0F0 1B1 1F1 0B0", "0F1 1B0 1F0 0B1"), 0, "1B1", "comes before 1F1, which it needs"),
    "backward on the other copy": (("0F0 0F1 1F0 1F1 1B0 1B1 0B1", "0B0"), 1, "0B0",
                                   "0F0, whose results it needs, is on rank 0"),
    "version that isn't made yet": (("0F0@1 0B0 0U0@1",), 0, "0F0@1", "computes with version 1; the newest of stage 0 is 0"),
    "version skipped": (("0F0 0B0 0U0@2",), 0, "0U0@2", "makes version 2; the next of stage 0 is 1"),
    "version neither stashed nor newest": (("0F0 0B0 0U0@1 0F1@1 0F2@1 0B1@1 0U1@2 0B2 0U2@3",), 0, "0B2",
                                           "neither that of its forward (1) nor the newest (2)"),
    "update without a gradient": (("0F0 0B0 0U0@1 0U0@2",), 0, "0U0@2", "occurs twice"),
    "update before the gradient": (("0F0 0U0@1 0B0 0F1 0B1 0U1@2",), 0, "0U0@1", "no gradient has come since"),
    "update of another microbatch": (("0F0 0F1 0B0 0B1 0U0@1",), 0, "0U0@1", "the last gradient before it is 0B1"),
    "gradient that no update takes": (("0F0 0B0 0U0@1 0F1@1 0B1@1",), 0, "0B1@1", "no update takes in this gradient"),
    "versions without updates": (("0F0 0B0@1",), 0, "0B0@1", "computes with version 1"),
    "forward joined with a forward": (("(0F0;0F1)OVERLAP_F_B 0B0 0B1",), 0, "0F0", "joined with a backward only"),
    "joined with what it needs": (("(0F0;0B0)OVERLAP_F_B",), 0, "0F0", "the action joined with it needs its result"),
}


@pytest.mark.parametrize("rows, rank, action, reason", BROKEN.values(), ids=BROKEN)
def test_broken_schedule_is_rejected_with_rank_action_and_reason(rows, rank, action, reason):
    error = problems(*rows)
    found = error.problems[0]
    assert (found.rank, str(found.action)) == (rank, action), error
    assert reason in found.reason
    assert (f"rank {rank}" if rank >= 0 else "no rank") + f", {action}: " in str(error)


def test_numbers_that_the_schedule_does_not_have():
    two_stages = ((0,), (1,))
    assert "no such stage; there are 2" in str(problems(*GOOD, "2F0", placement=two_stages))
    assert "no such microbatch; there are 1, numbered from 0" in str(problems(*GOOD, microbatches=1))
    assert "no such slice; there are 2" in str(problems("0F0 0F0.1 0F0.2 0B0.2 0B0.1 0B0", slices=(5, 7)))
    with pytest.raises(InvalidSchedule, match="rank 0, 0X0: no such kind; there are F, B, I, W, U"):
        validate(Schedule("broken", [[Action(0, "F", 0), Action(0, "X", 0)]]))
    with pytest.raises(InvalidSchedule, match="no such microbatch"):
        validate(Schedule("broken", [[Action(0, "F", -1), Action(0, "F", 0)]]))


def test_actions_on_the_wrong_rank_or_copy():
    assert "rank 1, 0B0: stage 0 is on rank 0" in str(problems("0F0 1F0 1B0", "0B0", placement=((0,), (0,))))
    assert "rank 1, 0B0: 0F0, whose results it needs, is on rank 0" in str(
        problems("0F0 1F0 1B0", "0B0", placement=((0, 1), (0,))))
    assert "joins more than two" in str(problem_of_three_joined())
    with pytest.raises(InvalidSchedule, match="joined with the action after it, and there is none"):
        validate(Schedule("broken", [[Action(0, "F", 0), Action(0, "B", 0, joined=True)]]))


def problem_of_three_joined():
    row = [Action(0, "F", 0), Action(0, "F", 1, joined=True), Action(0, "B", 0, joined=True), Action(0, "F", 2),
           Action(0, "B", 1), Action(0, "B", 2)]
    with pytest.raises(InvalidSchedule) as caught:
        validate(Schedule("broken", [row]))
    return caught.value


def test_joined_actions_wait_for_the_inputs_of_both():
    """0F1 could go before 0B0, but joined with it, it waits for 1B0; rank 1 wants 1F1 before that."""
    error = problems("0F0 (0F1;0B0)OVERLAP_F_B 0B1", "1F0 1F1 1B0 1B1")
    assert "rank 0, 0F1: waits for 1B0 of rank 1, which is itself waiting at 1F1" in str(error)
    validate(Schedule.from_csv("0F0,0F1,0B0,0B1\n1F0,1F1,1B0,1B1\n"))


def test_torchs_checker_lets_deadlocks_and_duplicates_through():
    for rows in BROKEN["two ranks wait for each other"][0], BROKEN["twice on one rank"][0]:
        torchs = {rank: [_Action.from_str(word) for word in row.split()] for rank, row in enumerate(rows)}
        _validate_schedule(torchs, 2, 2, 2)  # finds nothing wrong
        problems(*rows)


def test_a_long_list_of_problems_is_cut():
    rows = schedule("GPipe", 2, 40).to_csv().splitlines()
    error = problems(rows[0].replace(",", " "), rows[1].replace("1B", "1I").replace(",", " "))
    assert len(error.problems) == 40 and str(error).endswith("… and 28 more")


@pytest.mark.parametrize("name", [name for name in names() if name not in ("inference",)])
def test_every_random_injury_is_found(name):
    """Drop an action, double it, renumber it, give it to another rank, or put a backward before its forward."""
    draw = random.Random(name)
    for _ in range(60):
        made = schedule(name, draw.choice([2, 4, 6]), draw.randint(2, 9))
        rows = [list(row) for row in made.actions]
        rank = draw.randrange(len(rows))
        place = draw.randrange(len(rows[rank]))
        action = rows[rank][place]
        injury = draw.choice(["drop", "double", "renumber", "move", "swap"])
        if injury == "drop":
            del rows[rank][place]
        elif injury == "double":
            rows[draw.randrange(len(rows))].append(action._replace(joined=False))
        elif injury == "renumber":
            other = draw.choice([made.microbatches, (action.microbatch + 1) % made.microbatches])
            rows[rank][place] = action._replace(microbatch=other)
        elif injury == "move":
            del rows[rank][place]
            rows[(rank + 1) % len(rows)].append(action._replace(joined=False))
        else:
            forward = next(a for a in rows[rank] if a.kind == "F")
            backward = next(a for a in rows[rank] if a.kind in "BI" and a[0] == forward[0] and a[2:4] == forward[2:4])
            rows[rank].remove(backward)
            rows[rank].insert(rows[rank].index(forward), backward._replace(joined=False))
        with pytest.raises(InvalidSchedule):
            validate(Schedule(name, rows, made.placement, made.microbatches, made.slices))
