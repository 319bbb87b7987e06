"""How the grading of one submission ended; each ends in exactly one of three ways."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path

from autograder.course import write

GRADED = "graded"
LIMITED = "limited"
PERSON = "needs a person"


@dataclass(frozen=True)
class Outcome:
    """kind: GRADED; LIMITED when something was cut short, and the points are for the rest; PERSON when no points were given.

    why: which limits, or why a person is needed.  points: by the grade_id of each graded cell.
    digest: of all that the outcome depends on; the same digest need not be graded again.
    """

    student: str
    kind: str
    digest: str
    why: list[str] = field(default_factory=list)
    points: dict[str, float | None] = field(default_factory=dict)

    @property
    def total(self) -> float:
        return sum(points or 0 for points in self.points.values())

    def save(self, path: Path) -> None:
        write(path, json.dumps(asdict(self), indent=1) + "\n")

    @classmethod
    def load(cls, path: Path) -> Outcome | None:
        """The outcome written there before; None when there is none that can be read."""
        try:
            return cls(**json.loads(path.read_text(encoding="utf-8")))
        except (OSError, ValueError, TypeError):
            return None
