"""What a student gives as a schedule: for each rank a list of actions in text form."""

from __future__ import annotations

from typing import Any

from mlsyslab.check.messages import article
from mlsyslab.pipeline import Action, InvalidSchedule, Schedule, validate


class Unreadable(ValueError):
    """What came is no schedule at all. The message says why."""


def to_rows(schedule: Schedule) -> list[list[str]]:
    """A schedule as plain data."""
    return [[str(action) for action in row] for row in schedule.actions]


def read(name: str, came: Any, like: Schedule) -> Schedule:
    """The schedule that a student's rows make; `like` has the same ranks, placement and microbatches.

    Raises Unreadable where they make none.
    """
    p = like.ranks
    if not isinstance(came, (list, tuple)) or not all(isinstance(row, (list, tuple)) for row in came):
        what = f"{article(type(came).__name__)}: {came!r}" if not isinstance(came, (list, tuple)) else repr(came)
        raise Unreadable(f"it returned {shortened(what)}; expected a list of {p} lists, one a rank, of actions such as "
                         "\"0F0\"")
    if len(came) != p:
        raise Unreadable(f"it returned {len(came)} rows; expected one a rank, {p} in all")
    rows = [[parse(action, rank, place, like.kinds) for place, action in enumerate(row)] for rank, row in enumerate(came)]
    schedule = Schedule(name, rows, like.placement, like.microbatches)
    if not set("BI") & schedule.kinds:
        raise Unreadable("there is no backward in it: every forward needs one")
    return schedule


def broken(schedule: Schedule) -> str | None:
    """Why a schedule can't be run: the first thing that is wrong with it; None if it can."""
    try:
        validate(schedule)
    except InvalidSchedule as error:
        first, *others = error.problems
        more = f"\n  … and {len(others)} more like it" if others else ""
        return f"the schedule can't be run: {first}{more}"
    return None


def parse(action: Any, rank: int, place: int, kinds: frozenset[str]) -> Action:
    where = f"rank {rank}, action number {place}"
    if not isinstance(action, str):
        raise Unreadable(f"{where} is {article(type(action).__name__)}, {action!r}; expected text such as \"{rank}F0\"")
    try:
        found = Action.parse(action)
    except ValueError as error:
        raise Unreadable(f"{where}: {error}") from None
    if found.kind not in kinds:
        raise Unreadable(f"{where} is {action!r}; the kinds of action in this schedule are {', '.join(sorted(kinds))}")
    return found


def shortened(text: str, most: int = 80) -> str:
    return text if len(text) <= most else text[:most] + " …"
