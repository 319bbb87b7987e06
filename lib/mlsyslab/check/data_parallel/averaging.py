"""Judging the mean of gradients over ranks: of batches of unequal length, and of many tensors in buckets."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterator, Sequence
from random import Random
from typing import Any

import torch

from mlsyslab.check import inputs
from mlsyslab.check.data_parallel.unaided import UnaidedExercise, apart, near
from mlsyslab.check.exercise import Case
from mlsyslab.check.messages import article, count, listing
from mlsyslab.check.runs import Outcome
from mlsyslab.comm import Deadlock, Link, RankFailed

#: Messages cost by their bytes alone, so that "auto" takes the ring, or what moves as little.
LONG = Link(beta=1e-9)
#: By how much a rank may send or receive more than on a ring: counts of rows, parts of unequal length.
SLACK = 1.25
#: What gradients of a bucket are greater by than those of the one before, where buckets are to be told apart: more than p^2.
MARK = 16
#: the two dtypes in what is said of a message that doesn't fit
DTYPES = re.compile(r"sends (\w+) of shape .* expects (\w+) of shape")


def busiest(case_size: int, outcome: Outcome, elements: int, extra: int) -> str | None:
    """The rank that sends or takes in more than it would on a ring, with `extra` elements to spare."""
    p = case_size
    most = SLACK * 2 * (p - 1) / p * (elements + p) + extra
    for rank in range(p):
        for sent, verb in ((outcome.by(rank), "sent"), (outcome.to(rank), "received")):
            moved = sum(message.tensor.numel() for message in sent)
            if moved > most:
                return (f"rank {rank} {verb} {count(moved, 'element')} for a vector of {elements}; on a ring it is 2(p-1)/p "
                        f"of them, {2 * (p - 1) * elements // p}. Is something gathered on one rank, or reduced there and "
                        "broadcast? collectives.all_reduce shares the work")
    return None


class Average(UnaidedExercise):
    name = "average"
    forbidden = ()

    def cases(self, rng: Random) -> list[Case]:
        cases = [self.case(rng, 70, [3, 5, 2, 1], "ragged", torch.float64)]
        for p in (4, 3, 2, 5, 8, 1):
            n = rng.randint(12 * p, 20 * p)
            batches = [("equal", [4] * p), ("ragged", [rng.choice((2, 3, 5)) for _ in range(p - 1)] + [1])]
            if p > 1:
                batches.append(("ragged, one empty", [3] * (p - 2) + [5, 0]))
            cases += [self.case(rng, n, rows, name, torch.float64) for name, rows in batches]
        return [*cases, self.case(rng, 60, [rng.randint(1, 6) for _ in range(4)], "ragged", torch.float32)]

    def example(self, p):
        return self.case(Random(0), 16 * p, [4] * (p - 1) + [2], "ragged", torch.float32)

    def case(self, rng: Random, n: int, rows: Sequence[int], name: str, dtype: torch.dtype) -> Case:
        """Gradients of each row, of which every rank has the mean of its own."""
        p, every = len(rows), [inputs.tensor(rng, (number, n), torch.float64) for number in rows]
        right = torch.cat(every).mean(0).to(dtype)
        arguments = [(own.mean(0).to(dtype), len(own)) for own in every]
        return Case(arguments, [right] * p, {"world size": p, "batches": name, "rows": listing(rows), "length": n}, LONG)

    def diagnose(self, case, outcome, fn):
        means, rows = zip(*case.arguments, strict=True)
        p, came = case.p, outcome.results[0]
        if any(c.isnan().any() for c in outcome.results if isinstance(c, torch.Tensor)):
            return ("There are NaN in it: the mean over no rows is 0/0. A rank without rows has nothing to add: put zeros "
                    "in its place (NaN times 0 is NaN).")
        known = [mean if number else torch.zeros_like(mean) for mean, number in zip(means, rows, strict=True)]
        weighted = sum(mean * number for mean, number in zip(known, rows, strict=True))
        slips = [
            (sum(known), "The ranks' means were added up: that is p times too much where batches are equal."),
            (sum(known) / p, "That is the mean of the ranks' means. They are means over different numbers of rows: weight "
                             "each by its rows, and divide by all rows at the end."),
            (sum(known) / sum(number > 0 for number in rows), "That is the mean of the means of the ranks that have rows: "
             "weight each by its rows."),
            (weighted, f"That is the sum over all rows; divide by how many there are on all ranks, {sum(rows)}."),
            (weighted / p, f"That is the sum over all rows, divided by p; divide by all rows, {sum(rows)}."),
            (sum(known) / sum(rows), "The means were not multiplied by their rows before they were added."),
            *((weighted / number, "Divided by this rank's own rows: it takes those of all ranks.") for number in (rows[0],)
              if number),
            (known[0], "That is rank 0's own gradient: nothing was exchanged."),
        ]
        return next((text for right, text in slips if near(came, right.to(came.dtype))), None)

    def judge(self, case, outcome):
        n = case.traits["length"]
        return busiest(case.p, outcome, n, extra=4 * case.p) if case.p > 2 else None

    def advise(self, error):
        if isinstance(error, Deadlock) and not error.why:
            return "Every rank has to call each collective, in the same order, also one without rows."
        return None


def thirds(sizes: Sequence[int]) -> Iterator[list[list[int]]]:
    """Every way to put the parameters, from the last to the first, into three buckets, none with half of the elements.

    So even between two ranks, of which each sends half, a bucket's message is shorter than one of all gradients at once.
    """
    order = list(reversed(range(len(sizes))))
    for first, second in itertools.combinations(range(2, len(order) - 1), 2):
        buckets = [order[:first], order[first:second], order[second:]]
        if 2 * max(sum(sizes[k] for k in bucket) for bucket in buckets) < sum(sizes):
            yield buckets


class ReduceBuckets(UnaidedExercise):
    name = "reduce_buckets"
    forbidden = ()

    def cases(self, rng: Random) -> list[Case]:
        cases = []
        for p in (4, 2, 3, 5, 1):
            cases += [self.case(rng, p, unused) for unused in ("some", "none")]
        return [*cases, self.case(rng, 8, "some"), self.marked(rng, 3), self.marked(rng, 2)]

    def example(self, p):
        return self.case(Random(0), p, "none")

    def case(self, rng: Random, p: int, unused: str) -> Case:
        """Twelve parameters in three buckets; of those that are not used everywhere, some ranks have no gradient.

        The last rank has none for a whole bucket.
        """
        shapes = [(rng.randint(2, 6), rng.randint(3, 5)) if k % 3 else (rng.randint(4, 9),) for k in range(12)]
        parameters = [inputs.tensor(rng, shape, torch.float64) for shape in shapes]
        gradients = [[inputs.tensor(rng, shape, torch.float64) for shape in shapes] for _ in range(p)]
        buckets = rng.choice(list(thirds([parameter.numel() for parameter in parameters])))
        if unused == "some":
            known = (2, {p - 1}), (7, set(range(0, p, 2))), (9, set(range(p)))
            for k, ranks in (*known, *((k, {p - 1}) for k in buckets[1])):
                for rank in ranks:
                    gradients[rank][k] = None
        right = [sum(torch.zeros_like(parameters[k]) if own[k] is None else own[k] for own in gradients) / p
                 for k in range(12)]
        traits = {"world size": p, "unused": unused}
        return Case([(parameters, own, buckets) for own in gradients], [right] * p, traits, LONG)

    def marked(self, rng: Random, p: int) -> Case:
        """The gradients of bucket i are 16^i everywhere, so what travels tells its bucket, added up or divided by p too."""
        case = self.case(rng, p, "none")
        parameters, _, buckets = case.arguments[0]
        mark = {k: MARK**i for i, bucket in enumerate(buckets) for k in bucket}
        own = [torch.full_like(parameter, mark[k]) for k, parameter in enumerate(parameters)]
        traits = case.traits | {"gradients": listing(MARK**i for i in range(len(buckets)))}
        return Case([(parameters, own, buckets)] * p, [own] * p, traits, LONG)

    def differ(self, rank, came, expected):
        if not isinstance(came, (list, tuple)):
            what = "None" if came is None else article(type(came).__name__)
            return f"rank {rank} returned {what}; expected a list of {len(expected)} tensors, one a parameter"
        if len(came) != len(expected):
            return f"rank {rank} returned {len(came)} tensors; expected {len(expected)}, one a parameter"
        for k, (one, right) in enumerate(zip(came, expected, strict=True)):
            if one is None:
                return (f"rank {rank} has no gradient of parameter {k}; expected a mean: a rank that didn't use it counts "
                        "as zeros")
            if wrong := apart(rank, one, right):
                return f"of parameter {k}, {wrong}"
        return None

    def _comparable(self, case, outcome):
        return all(isinstance(came, (list, tuple)) and len(came) == len(right)
                   and all(isinstance(one, torch.Tensor) for one in came)
                   for came, right in zip(outcome.results, case.expected, strict=True))

    def diagnose(self, case, outcome, fn):
        came, given = outcome.results, [own for _, own, _ in case.arguments]

        def total(k: int) -> torch.Tensor:
            return sum(torch.zeros_like(case.expected[0][k]) if own[k] is None else own[k] for own in given)

        def those(results: Sequence[Any], way) -> bool:
            return all(near(one, way(k)) for k, one in enumerate(results))

        users = [sum(own[k] is not None for own in given) for k in range(12)]
        if those(came[0], total):
            return "That is the sum over ranks: divide by p, or take op=\"mean\"."
        if those(came[0], lambda k: total(k) / max(1, users[k])):
            return ("Divided by the ranks that used the parameter: the loss is a mean over all ranks, so divide by p, and "
                    "count the others as zeros.")
        if those(came[0], lambda k: torch.zeros_like(total(k)) if given[0][k] is None else given[0][k]):
            return "That is rank 0's own gradient: nothing was exchanged."
        if any(all(near(one, case.expected[0][j]) for one, j in zip(came[0], order, strict=True))
               for order in self.orders(case)):
            return "The gradients came in the order of the buckets; put each where its parameter stands."
        return None

    def orders(self, case: Case) -> list[list[int]]:
        return [[k for bucket in case.arguments[0][2] for k in bucket]]

    def judge(self, case, outcome):
        p, buckets = case.p, case.arguments[0][2]
        elements = sum(tensor.numel() for tensor in case.arguments[0][0])
        sent = max(len(outcome.by(rank)) for rank in range(p))
        if sent > len(buckets) * 2 * (p - 1):
            return (f"a rank sent {sent} messages; {len(buckets)} buckets take at most {len(buckets) * 2 * (p - 1)}, 2(p-1) "
                    "each on a ring. One all-reduce a bucket: join its gradients (torch.cat of their flat forms) first")
        biggest = max(sum(case.arguments[0][0][k].numel() for k in bucket) for bucket in buckets)
        longest = max((message.tensor.numel() for message in outcome.sent), default=0)
        if p > 1 and longest > biggest:
            return (f"a message of {longest} elements was sent, and the largest bucket has {biggest}: one all-reduce a "
                    "bucket, so that the first can be on its way while backward goes on")
        if p > 2 and (wrong := busiest(p, outcome, elements, extra=len(buckets) * 2 * p)):
            return wrong
        return self.out_of_order(outcome) if "gradients" in case.traits else None

    def out_of_order(self, outcome: Outcome) -> str | None:
        """Whether a rank sends something of a bucket before it has begun with those ahead of it."""
        for rank in range(len(outcome.results)):
            elements = [value for message in outcome.by(rank) for value in message.tensor.flatten().tolist() if value]
            begun = list(dict.fromkeys(round(math.log(abs(value), MARK)) for value in elements))
            if begun != sorted(begun):
                return (f"rank {rank} sent buckets {listing(begun)}, in this order: reduce them in the order of `buckets`, "
                        "in which they fill, so that the first can be on its way while backward goes on")
        return None

    def advise(self, error):
        if isinstance(error, RankFailed) and (kinds := DTYPES.search(error.reason)) and kinds[1] != kinds[2]:
            return (f"The one is {kinds[1]}, the other {kinds[2]}: zeros in place of a gradient have its parameter's dtype "
                    "(torch.zeros_like); torch.zeros makes float32.")
        unlike = isinstance(error, RankFailed) and "sends" in error.reason and "expects" in error.reason
        if unlike or isinstance(error, Deadlock) and not error.why:
            return ("Every rank has to call each collective, in the same order, also where it has no gradient: otherwise "
                    "the others wait for it.")
        return None
