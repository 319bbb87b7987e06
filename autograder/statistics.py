"""What a class's points say about the class, and about the questions."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import fmean, pstdev, quantiles

from autograder.judge.lab import Exercise

NUMBER = re.compile(r"-?\d+(\.\d+)?")


@dataclass(frozen=True)
class Row:
    """One student's result.

    points: by exercise; None where a person has yet to give them.  why: by exercise, what its tests said.
    """

    student: str
    kind: str
    points: dict[str, float | None]
    total: float
    why: dict[str, list[str]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    name: str = ""
    email: str = ""
    lms: str = ""


@dataclass(frozen=True)
class Question:
    """An exercise in the eyes of a class.

    difficulty: the mean share of its points that was earned, 0 (nobody) … 1 (everybody).
    discrimination: the correlation of its points with those of all other exercises, -1 … 1; None where all earned the same.
    failures: what its tests said most often, and how often. Numbers in it are left out, so that like counts as like.
    """

    exercise: Exercise
    difficulty: float
    full: int
    none: int
    discrimination: float | None
    failures: list[tuple[str, int]]


@dataclass(frozen=True)
class Spread:
    """Totals of a class: lowest, quartiles, highest, mean, standard deviation, and ten bins of equal width."""

    lowest: float
    quartiles: tuple[float, float, float]
    highest: float
    mean: float
    deviation: float
    bins: list[int]


def spread(totals: Sequence[float], most: float) -> Spread:
    """Of at least one total; most: the points of the lab."""
    bins = [0] * 10
    for total in totals:
        bins[min(9, max(0, int(10 * total / most))) if most else 0] += 1
    cut = quantiles(totals, n=4, method="inclusive") if len(totals) > 1 else list(totals) * 3
    return Spread(min(totals), tuple(cut), max(totals), fmean(totals), pstdev(totals), bins)


def question(exercise: Exercise, rows: Sequence[Row]) -> Question:
    """Over those rows in which it has points."""
    graded = [row for row in rows if row.points.get(exercise.name) is not None]
    points = [row.points[exercise.name] for row in graded]
    rest = [row.total - row.points[exercise.name] for row in graded]
    said = Counter(alike(why) for row in rows for why in set(row.why.get(exercise.name, ())))
    share = fmean(points) / exercise.most if points and exercise.most else 0.0
    full, none = sum(earned >= exercise.most for earned in points), sum(earned == 0 for earned in points)
    return Question(exercise, share, full, none, correlation(points, rest), said.most_common(5))


def correlation(x: Sequence[float], y: Sequence[float]) -> float | None:
    """Pearson's r; None where one of them doesn't vary."""
    if len(x) < 2 or len(set(x)) < 2 or len(set(y)) < 2:
        return None
    mx, my = fmean(x), fmean(y)
    cov = sum((a - mx) * (b - my) for a, b in zip(x, y, strict=True))
    return cov / math.sqrt(sum((a - mx) ** 2 for a in x) * sum((b - my) ** 2 for b in y))


def alike(why: str) -> str:
    """The first line of a message, without the numbers that differ from input to input."""
    return NUMBER.sub("…", why.strip().split("\n")[0])[:200]
