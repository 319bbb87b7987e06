"""Judging formulas for the cost of collectives, by what the library's collectives cost in the simulated world."""

from __future__ import annotations

import math
from functools import cache
from random import Random

import torch

from mlsyslab import collectives
from mlsyslab.check.contrast import power_of_two
from mlsyslab.check.exercise import Case, Formula
from mlsyslab.check.messages import article, is_number
from mlsyslab.comm import Link, simulate

TERMS = ("alpha", "n beta", "n gamma")

#: What can be asked for, and the library's collectives that it is made of, one after the other.
ASKED = {
    ("broadcast", "mst"): [("broadcast", "mst")],
    ("reduce", "mst"): [("reduce", "mst")],
    ("all_gather", "mst"): [("gather", "mst"), ("broadcast", "mst")],
    ("reduce_scatter", "mst"): [("reduce", "mst"), ("scatter", "mst")],
    ("all_reduce", "mst"): [("reduce", "mst"), ("broadcast", "mst")],
    ("broadcast", "ring"): [("scatter", "mst"), ("all_gather", "ring")],
    ("reduce", "ring"): [("reduce_scatter", "ring"), ("gather", "mst")],
    ("all_gather", "ring"): [("all_gather", "ring")],
    ("reduce_scatter", "ring"): [("reduce_scatter", "ring")],
    ("all_reduce", "ring"): [("reduce_scatter", "ring"), ("all_gather", "ring")],
}


def halves_parts(asked: tuple[str, str]) -> bool:
    """Whether a tree's scatter or gather is part of it, whose cost is (p-1)/p n beta for powers of two only.

    Elsewhere the halves are not equal, and a rank may wait for the larger one.
    """
    return any(op in ("scatter", "gather") for op, _ in ASKED[asked])


def measured(op: str, algorithm: str, p: int) -> tuple[float, float, float]:
    """The coefficients of alpha, n beta and n gamma: those of the phases, added."""
    phases = [measured_phase(*phase, p) for phase in ASKED[op, algorithm]]
    return tuple(map(sum, zip(*phases, strict=True)))


@cache
def measured_phase(op: str, algorithm: str, p: int) -> list[float]:
    """The time that a collective takes in the simulated world when one of the three costs is 1 and the others are 0."""
    n = 8 * p
    given = torch.zeros(1 if op in ("gather", "all_gather") else p, dtype=torch.int64)
    links = Link(alpha=1.0), Link(beta=1 / n), Link(gamma=1 / n)
    collective = getattr(collectives, op)
    return [simulate(lambda comm, own: collective(comm, own, algorithm=algorithm), [given] * p, link).time for link in links]


def crossing(p: int, link: Link) -> float:
    """The bytes from which on an all-reduce is faster as a ring than as trees: where two straight lines in n meet.

    0.0 where the ring is never slower.
    """
    def line(way: str) -> tuple[float, float]:
        alphas, betas, gammas = measured("all_reduce", way, p)
        return alphas * link.alpha, betas * link.beta + gammas * link.gamma

    (start, slope), (ring_start, ring_slope) = line("mst"), line("ring")
    return max(0.0, (ring_start - start) / (slope - ring_slope)) if slope > ring_slope else 0.0


class Cost(Formula):
    name = "cost"
    forbidden = ("cost",)

    def cases(self, rng: Random) -> list[Case]:
        sizes = [4, 3, 8, 2, 5, rng.randint(9, 24), 16, 1]
        return [Case((*asked, p), measured(*asked, p), {"world size": p, "op": asked[0], "algorithm": asked[1]})
                for p in sizes for asked in ASKED if power_of_two(p) or not halves_parts(asked)]

    def compare(self, came, case):
        asked = "cost({!r}, {!r}, {})".format(*case.arguments)
        if not isinstance(came, (tuple, list)) or len(came) != 3 or not all(map(is_number, came)):
            return (f"{asked} returned {came!r}; expected three numbers (a, b, g), "
                    "the coefficients of alpha, n beta and n gamma")
        phases = [measured_phase(*phase, case.p) for phase in ASKED[case.arguments[:2]]]
        for term, value, right, *parts in zip(TERMS, came, case.expected, *phases, strict=True):
            if not close(value, right):
                text = (f"{asked}: the coefficient of {term} came as {float(value):g}, expected {right:g} "
                        "(what the simulated run takes)")
                likely = mistake(value, right, case.p, parts)
                return f"{text}\n  {likely}" if likely else text
        return None


def mistake(value: float, right: float, p: int, phases: list[float]) -> str | None:
    """Which slip leads from the right coefficient, the sum of those of its phases, to this one."""
    share, depth = (p - 1) / p, math.log2(p)
    if len(phases) > 1 and any(close(value, phase) for phase in phases) and value:
        return "That is the cost of one of the two phases: they come one after the other, so their costs add up."
    if value == 0:
        return "That term is left out."
    if right == 0:
        return "That term should not be there: nothing is paid for it."
    whole = math.ceil(depth)  # rounds of a tree
    for times in (1, 2):
        if close(right, times * whole):
            if close(value, times * depth):
                return "A number of rounds is whole: round log2 p up."
            if close(value, times * math.floor(depth)):
                return "log2 p is rounded up, not down: three ranks need two rounds."
            if close(value, times * math.log(p)) or close(value, times * math.ceil(math.log(p))):
                return "That is the natural logarithm; a tree halves: math.log2."
            if close(value, times * (p - 1)):
                return "That is a message to each rank in turn; in a tree all that have it send on."
    if close(value, 2 * right):
        return "That is twice as much."
    if close(2 * value, right):
        return "That is half as much."
    for times in (1, 2):
        if close(value - right, times * (1 - share)):
            return "That is as if all n bytes travelled: a rank's own part stays where it is, so it is (p-1)/p of them."
        if close(abs(value - right), times):
            return "Is it p steps, or p-1?"
    return None


class Crossover(Formula):
    name = "crossover"

    def cases(self, rng: Random) -> list[Case]:
        cases = []
        for p in (8, 5, 4, 16, rng.randint(9, 24), 3, 2):
            for factor in (1, 0):
                alpha, beta, gamma = rng.uniform(1, 9) * 1e-6, rng.uniform(1, 9) * 1e-10, factor * rng.uniform(1, 9) * 1e-10
                about = {"world size": p, "alpha": f"{alpha:.3g}", "beta": f"{beta:.3g}", "gamma": f"{gamma:.3g}"}
                cases.append(Case((p, alpha, beta, gamma), crossing(p, Link(alpha, beta, gamma)), about))
        return cases

    def compare(self, came, case):
        if not is_number(came):
            return f"it returned {article(type(came).__name__)}, {came!r}; expected a number of bytes"
        right = case.expected
        if math.isclose(came, right, rel_tol=1e-3, abs_tol=1e-6):
            return None
        text = f"crossover came as {float(came):g} bytes, expected {right:g}: there both ways take the same time"
        p, alpha, beta, gamma = case.arguments
        if right and gamma and math.isclose(came, crossing(p, Link(alpha, beta)), rel_tol=1e-3):
            return f"{text}\n  That is right for gamma = 0: both ways also reduce, but not equally many bytes."
        if right and math.isclose(came * right, 1, rel_tol=1e-3):
            return f"{text}\n  That is the fraction upside down."
        if right and math.isclose(came, -right, rel_tol=1e-3):
            return f"{text}\n  The sign is wrong: more rounds for fewer bytes."
        for size in (2, 4, 8):
            if right and math.isclose(came * size, right, rel_tol=1e-3):
                return f"{text}\n  That is {size} times too small: bytes, or elements of {size} bytes?"
        return text


def close(a: float, b: float) -> bool:
    return math.isclose(a, b, rel_tol=1e-6, abs_tol=1e-9)
