"""Judging a partition of layers into stages, by the library's dynamic programme."""

from __future__ import annotations

import math
from itertools import accumulate
from random import Random

from mlsyslab.check.exercise import Case
from mlsyslab.check.messages import article, is_whole
from mlsyslab.check.pipeline.unaided import Unaided
from mlsyslab.comm import Deadlock
from mlsyslab.pipeline.partition.dynamic import dynamic
from mlsyslab.pipeline.partition.stages import even, from_sizes

TOO_MANY = ("Trying every partition takes too long: there are as many as ways to choose p-1 of n-1 cuts. The dynamic "
            "programme takes about p n^2 steps.")


class Partition(Unaided):
    name = "partition"
    timeout = 5.0

    def cases(self, rng: Random) -> list[Case]:
        given = [([7, 1, 2, 1, 1, 1, 9, 6], 3),  # every rule of thumb in `mistake` but the least squares fails here,
                 ([5, 3, 8, 9, 4, 6, 9], 4),  # and those here
                 ([3, 1, 2, 2, 4, 1, 1], 3), ([1, 1, 1, 7], 2), ([5, 5, 1, 1, 1, 1], 3), ([2, 9, 4, 1, 8], 5),
                 ([4, 3, 2], 1), ([9, 1, 1, 1, 1, 1], 4), ([0, 0, 3, 0], 3)]
        for n, p in ((8, 3), (10, 4), (12, 5), (9, 2), (60, 8)):
            given.append(([rng.randint(1, 9) for _ in range(n)], p))
        given.append((without_least_squares(rng, 9, 4), 4))
        return [self.case(list(map(float, times)), p) for times, p in given]

    def case(self, times: list[float], p: int) -> Case:
        return Case((times, p), dynamic(times, p), {"world size": p, "times": times if len(times) < 15 else len(times)})

    def _failed(self, error, advice=None):
        return super()._failed(error, TOO_MANY if isinstance(error, Deadlock) else advice)

    def compare(self, came, case):
        times, p = case.arguments
        if not isinstance(came, (list, tuple)) or not all(map(is_whole, came)):
            return (f"it returned {article(type(came).__name__)}, {came!r}; expected a list of {p} numbers of layers, one a "
                    "stage")
        sizes, n = list(map(int, came)), len(times)
        if len(sizes) != p:
            return f"it returned {sizes}, {len(sizes)} stages; expected {p}"
        if min(sizes) < 1:
            return (f"it returned {sizes}: stage {sizes.index(min(sizes))} has {min(sizes)} layers; every stage gets at "
                    "least one")
        if sum(sizes) != n:
            hint = ("\n  Those may be the places of the cuts; give how many layers each stage "
                    "has." if sizes == sorted(sizes) else "")
            return f"it returned {sizes}, {sum(sizes)} layers in all; there are {n}{hint}"
        found, best = from_sizes(times, sizes), case.expected
        if found.bottleneck <= best.bottleneck * (1 + 1e-9):
            return None
        text = (f"it returned {sizes}: the stages take {rounded(found.times)} s, the slowest {found.bottleneck:g} s; "
                f"with {list(best.sizes)} the slowest takes {best.bottleneck:g} s")
        likely = mistake(sizes, times, p)
        return f"{text}\n  {likely}" if likely else text


def rounded(times: tuple[float, ...]) -> str:
    return ", ".join(f"{t:g}" for t in times[:10]) + (" …" if len(times) > 10 else "")


def mistake(sizes: list[int], times: list[float], p: int) -> str | None:
    """Which other question these sizes answer, or which rule of thumb made them."""
    if p == 1 or len(times) == p:
        return None
    ways = [
        (least_squares(times, p), "There the squares of the stages' times have the least sum. It is the slowest stage alone "
                                  "that counts: take the maximum."),
        (list(even(times, p).sizes), "Those are equal numbers of layers; layers differ in what they cost."),
        (list(even(times, p).sizes)[::-1], "Those are equal numbers of layers; layers differ in what they cost."),
        (greedy(times, p, over=True), GREEDY),
        (greedy(times, p, over=False), GREEDY),
        (list(dynamic(times[:-1] + [0.0], p).sizes), "That would be best if the last layer cost nothing: is it in the "
                                                     "sums?"),
        (list(dynamic([0.0] + times[1:], p).sizes), "That would be best if the first layer cost nothing: is it in the "
                                                    "sums?"),
        (shifted(times, p), "That would be best for times moved by one layer: the sum of layers i to j-1 is upto[j] - "
                            "upto[i], "
                            "where upto[j] is the sum of the first j."),
    ]
    return next((text for way, text in ways if way == sizes), None)


GREEDY = ("A stage that is filled up to its fair share and closed can leave too much for the last ones: "
          "look at all places where the last stage can begin.")


def least_squares(times: list[float], p: int) -> list[int]:
    """The sizes for which the sum of the squares of the stages' times is least, by the same dynamic programme."""
    upto, none = list(accumulate(times, initial=0.0)), (math.inf, [])
    best = [(0.0, []), *([none] * len(times))]  # of the first j layers
    for _ in range(p):
        best = [min(((best[i][0] + (upto[j] - upto[i])**2, [*best[i][1], j - i]) for i in range(j)), default=none)
                for j in range(len(upto))]
    return best[-1][1]


def without_least_squares(rng: Random, n: int, p: int) -> list[float]:
    """Times for which the least sum of squares leaves a stage slower than need be, as one draw in twenty does."""
    while True:
        times = [float(rng.randint(1, 9)) for _ in range(n)]
        if from_sizes(times, least_squares(times, p)).bottleneck > dynamic(times, p).bottleneck:
            return times


def shifted(times: list[float], p: int) -> list[int]:
    return list(dynamic(times[1:] + [0.0], p).sizes)


def greedy(times: list[float], p: int, over: bool) -> list[int]:
    """Fill each stage up to the mean, closing it when it is reached (`over`), or before it is passed."""
    share, sizes, layer = math.fsum(times) / p, [], 0
    for stage in range(p - 1):
        size, filled = 1, times[layer]
        room = len(times) - layer - (p - 1 - stage)
        while size < room and (filled < share if over else filled + times[layer + size] <= share):
            filled += times[layer + size]
            size += 1
        sizes.append(size)
        layer += size
    return sizes + [len(times) - layer]
