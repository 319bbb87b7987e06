"""Timetables for few microbatches, made from those for many."""

from collections.abc import Iterable

from mlsyslab.pipeline.schedule import Action


def leave_out(row: Iterable[Action], m: int) -> list[Action]:
    """The actions of microbatches 0 to m - 1. An action whose partner is left out runs alone."""
    row = list(row)
    kept = []
    for action, after in zip(row, [*row[1:], None], strict=True):
        if action.microbatch < m:
            kept.append(action if not action.joined or after.microbatch < m else action._replace(joined=False))
    return kept
