"""How the grading of one submission ended: one outcome for it, and one verdict for each of its exercises."""

from __future__ import annotations

import json
from collections.abc import Collection
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from autograder.course import write

GRADED = "graded"
LIMITED = "limited"
PERSON = "needs a person"


@dataclass(frozen=True)
class Verdict:
    """kind: GRADED; LIMITED when its tests were cut short, and earned nothing; PERSON when somebody has to look.

    points: by the grade_id of each graded cell; None where a person gives them.
    why: what the tests said, which limit, or why a person is needed.
    """

    exercise: str
    kind: str
    points: dict[str, float | None]
    why: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Outcome:
    """kind: PERSON when no exercise could be graded; otherwise the most serious of its verdicts and limits.

    why: which limits, or why a person is needed.  notes: what was odd about it, and what was made of that.
    digest: of all that the outcome depends on; the same digest need not be graded again.
    """

    student: str
    kind: str
    digest: str
    why: list[str] = field(default_factory=list)
    verdicts: list[Verdict] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def points(self) -> dict[str, float | None]:
        """By the grade_id of each graded cell."""
        return {name: points for verdict in self.verdicts for name, points in verdict.points.items()}

    @property
    def total(self) -> float:
        return sum(points or 0 for points in self.points.values())

    def keeping(self, before: Outcome, exercises: Collection[str]) -> Outcome:
        """This outcome, but that of all other exercises is what it was before."""
        old = {verdict.exercise: verdict for verdict in before.verdicts}
        kept = [new if new.exercise in exercises else old.get(new.exercise, new) for new in self.verdicts]
        return replace(self, verdicts=kept)

    def save(self, path: Path) -> None:
        write(path, json.dumps(asdict(self), indent=1) + "\n")

    @classmethod
    def load(cls, path: Path) -> Outcome | None:
        """The outcome written there before; None when there is none that can be read."""
        try:
            told = json.loads(path.read_text(encoding="utf-8"))
            return cls(**{**told, "verdicts": [Verdict(**verdict) for verdict in told["verdicts"]]})
        except (OSError, ValueError, TypeError, KeyError):
            return None
