"""Judging how gradients are put into buckets, and what reducing them beside the backward pass gains."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from random import Random

from mlsyslab.check.data_parallel.unaided import UnaidedFormula
from mlsyslab.check.exercise import Case
from mlsyslab.check.messages import article, is_number, is_whole, listing


class MakeBuckets(UnaidedFormula):
    name = "make_buckets"

    def cases(self, rng: Random) -> list[Case]:
        sizes = [[4, 1, 3, 2, 2, 6, 1, 2], [2] * 9, [30, 1, 1, 1], [1, 1, 1, 30], [8], [3, 3, 3, 3, 3, 3],
                 [rng.randint(1, 9) for _ in range(14)], [rng.randint(1, 30) for _ in range(20)]]
        caps = [(2, 6), (2, 6), (3, 8), (3, 8), (1, 4), (6, 6), (rng.randint(2, 5), rng.randint(8, 16)), (10, 40)]
        return [Case((own, *both), filled(own, *both), {"parameters": len(own), "first": both[0], "limit": both[1]})
                for own, both in zip(sizes, caps, strict=True)]

    def compare(self, came, case):
        sizes, first, limit = case.arguments
        right = case.expected
        if not isinstance(came, (list, tuple)) or not all(
                isinstance(bucket, (list, tuple)) and all(map(is_whole, bucket)) for bucket in came):
            return (f"it returned {article(type(came).__name__)}, {str(came)[:80]}; expected a list of buckets, each a list "
                    "of parameters' numbers")
        came = [list(map(int, bucket)) for bucket in came]
        if came == right:
            return None
        asked = f"make_buckets({sizes}, first={first}, limit={limit}) came as {came}\n  expected {right}"
        inside = [k for bucket in came for k in bucket]
        if lacking := sorted(set(range(len(sizes))) - set(inside)):
            likely = f"No bucket holds parameter {listing(lacking)}: is the last bucket, which isn't full, kept?"
        elif [] in came:
            likely = "There is an empty bucket in it."
        else:
            likely = next((words for way, words in FILLS if came == way(sizes, first, limit)), None)
        return f"{asked}\n  {likely}" if likely else asked


def filled(sizes: Sequence[int], first: float, limit: float, order: Sequence[int] | None = None) -> list[list[int]]:
    """Buckets in reverse order of use, each closed as soon as it has come to its limit."""
    buckets: list[list[int]] = [[]]
    room = first
    for k in reversed(range(len(sizes))) if order is None else order:
        buckets[-1].append(k)
        if sum(sizes[i] for i in buckets[-1]) >= room:
            buckets.append([])
            room = limit
    return [bucket for bucket in buckets if bucket]


def never_over(sizes: Sequence[int], first: float, limit: float) -> list[list[int]]:
    """Closes a bucket before it would go over its limit."""
    buckets: list[list[int]] = [[]]
    for k in reversed(range(len(sizes))):
        room = first if len(buckets) == 1 else limit
        if buckets[-1] and sum(sizes[i] for i in buckets[-1]) + sizes[k] > room:
            buckets.append([])
        buckets[-1].append(k)
    return buckets


#: Other ways to fill buckets, and what they get wrong.
FILLS: list[tuple[Callable, str]] = [
    (lambda sizes, first, limit: filled(sizes, first, limit, range(len(sizes))),
     "Gradients come in reverse: the last parameter's first."),
    (lambda sizes, first, limit: filled(sizes, first, limit, range(len(sizes)))[::-1],
     "Fill from the last parameter: the small bucket is the first to be reduced, not the last."),
    (lambda sizes, first, limit: [bucket[::-1] for bucket in filled(sizes, first, limit)],
     "Within a bucket too the order is that in which gradients come."),
    (lambda sizes, first, limit: filled(sizes, limit, limit),
     "The first bucket has a limit of its own, so that it can leave early."),
    (lambda sizes, first, limit: filled(sizes, first, first), "The small limit is that of the first bucket only."),
    (never_over, "A bucket is closed when it has come to its limit or gone over it, not before: a parameter is put in, then "
                 "the bucket is looked at."),
    (lambda sizes, first, limit: filled(sizes, first + 1, limit + 1), "A bucket that has just come to its limit is closed: "
                                                                      ">=, not >."),
    (lambda sizes, first, limit: [[k] for k in reversed(range(len(sizes)))], "That is a bucket for each parameter."),
    (lambda sizes, first, limit: [list(reversed(range(len(sizes))))], "That is one bucket for all parameters: none could be "
                                                                      "reduced before the backward pass has ended."),
]


class StepSeconds(UnaidedFormula):
    name = "step_seconds"

    def cases(self, rng: Random) -> list[Case]:
        cases = [self.case([3.0, 1.0, 2.0, 5.0], [4, 2, 1, 6], [[3, 2], [1, 0]], 1.25, 1.0),
                 self.case([1.0] * 6, [4] * 6, [[5], [4, 3], [2, 1, 0]], 0.5, 0.5),
                 self.case([3.0, 1.0], [1, 1], [[1], [0]], 0.25, 0.25),
                 self.case([1.0] * 4, [9, 1, 1, 1], [[3], [2], [1], [0]], 0.5, 1.0),
                 self.case([2.0] * 3, [3] * 3, [[2, 1, 0]], 1.0, 0.5),
                 self.case([1.0, 2.0, 1.0, 3.0], [2, 1, 4, 3], [[3, 0], [2, 1]], 0.75, 1.0),
                 self.case([4.0, 2.0, 1.0, 3.0, 2.0], [2, 1, 4, 3, 2], [[0, 4, 3], [1, 2]], 0.75, 1.0)]
        for _ in range(4):
            n = rng.randint(4, 12)
            order, buckets = list(reversed(range(n))), []
            while order:
                take = rng.randint(1, 4)
                buckets.append(order[:take])
                del order[:take]
            seconds, sizes = [float(rng.randint(1, 6)) for _ in range(n)], [rng.randint(1, 9) for _ in range(n)]
            cases.append(self.case(seconds, sizes, buckets, rng.randint(1, 8) / 4, rng.randint(1, 4) / 4))
        return cases

    def case(self, seconds: list[float], sizes: list[int], buckets: list[list[int]], a: float, b: float) -> Case:
        arguments = seconds, sizes, buckets, a, b
        return Case(arguments, played(*arguments), {"parameters": len(sizes), "buckets": len(buckets)})

    def compare(self, came, case):
        if not is_number(came):
            return f"it returned {article(type(came).__name__)}, {came!r}; expected a number of seconds"
        if close(came, case.expected):
            return None
        seconds, sizes, buckets, a, b = case.arguments
        text = (f"step_seconds({seconds}, {sizes}, {buckets}, a={a}, b={b}) came as {float(came):g} s, "
                f"expected {case.expected:g}")
        likely = next((words for way, words in STEPS if close(came, way(*case.arguments))), None)
        return f"{text}\n  {likely}" if likely else text


def close(a: float, b: float) -> bool:
    return math.isclose(a, b, rel_tol=1e-9, abs_tol=1e-9)


def ready(seconds: Sequence[float], bucket: Sequence[int]) -> float:
    """When the last gradient of a bucket is there: gradients come from the last parameter to the first."""
    return sum(seconds[min(bucket):])


def played(seconds: Sequence[float], sizes: Sequence[int], buckets: Sequence[Sequence[int]], a: float, b: float,
           at: Callable[[Sequence[int]], float] | None = None, in_line: bool = True) -> float:
    """When the last bucket has been reduced.

    at: when a bucket is ready.  in_line: whether one all-reduce waits for the one before it.
    """
    at = at or (lambda bucket: ready(seconds, bucket))
    free = last = 0.0
    for bucket in buckets:
        end = max(at(bucket), free if in_line else 0.0) + a + b * sum(sizes[k] for k in bucket)
        free, last = end, max(last, end)
    return last


#: Other ways to count, and what they get wrong.
STEPS: list[tuple[Callable, str]] = [
    (lambda seconds, sizes, buckets, a, b: played(seconds, sizes, buckets, a, b, lambda _: sum(seconds)),
     "That is without overlap: a bucket leaves as soon as it is ready, while the backward pass goes on, which begins with "
     "the last parameter."),
    (lambda seconds, sizes, buckets, a, b: played(seconds, sizes, buckets, a, b, in_line=False),
     "The all-reduces share one link: each waits for the one before it."),
    (lambda seconds, sizes, buckets, a, b: sum(seconds), "That is the backward pass alone: the last bucket is ready when it "
                                                         "ends, and has still to be reduced."),
    (lambda seconds, sizes, buckets, a, b: max(sum(seconds), len(buckets) * a + b * sum(sizes)),
     "The last bucket can't be hidden: it is ready only when the backward pass has ended."),
    (lambda seconds, sizes, buckets, a, b: played(seconds, sizes, buckets, a, b, lambda bucket: sum(seconds[max(bucket):])),
     "A bucket is ready when its last gradient is there, not its first."),
    (lambda seconds, sizes, buckets, a, b: played(seconds, sizes, buckets, a, b, lambda bucket: sum(seconds[bucket[-1]:])),
     "The numbers in a bucket come in any order: which of its gradients is the last one to come?"),
    *((lambda seconds, sizes, buckets, a, b, more=more: played(seconds, sizes, buckets, a, b,
                                                               lambda bucket: sum(seconds[:min(bucket) + more])),
       "Those are the seconds of the parameters before the bucket; the backward pass begins with the last parameter.")
      for more in (0, 1)),
    (lambda seconds, sizes, buckets, a, b: played(seconds, sizes, buckets, 0, b), "Each bucket pays the latency a too."),
    (lambda seconds, sizes, buckets, a, b: played(seconds, sizes, buckets, 0, b) + a, "Each bucket pays the latency a, not "
                                                                                      "only one."),
    (lambda seconds, sizes, buckets, a, b: played(seconds, sizes, buckets, a, 0), "A bucket's bytes take time: b seconds "
                                                                                  "each."),
    (lambda seconds, sizes, buckets, a, b: played(seconds, sizes, sorted(buckets, key=lambda c: ready(seconds, c)), a, b),
     "Buckets are reduced in the order in which they are listed, on all ranks the same, also when a later one is ready "
     "first."),
]
