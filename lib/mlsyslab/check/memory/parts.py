"""Judging a gradient that is put together from the gradients of parts."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import torch

from mlsyslab.check.exercise import Case
from mlsyslab.check.memory.watched import Watched
from mlsyslab.check.messages import difference
from mlsyslab.check.watched import near, normal

WIDTH, WORDS = 2, 96
#: Tensors of a part's probabilities that may be there at once: scores, their softmax, what indexing copies, and one to
# spare.
SPARE = 5


class Accumulated(Watched):
    name = "accumulated"

    def cases(self, rng: Random) -> list[Case]:
        shapes = [(120, 6, "all"), (59, 7, "some"), (120, 12, "some"), (60, 7, "all"), (50, 8, "some"), (48, 8, "the first "
                                                                                                                "few"),
                  (9, 9, "some"), (7, 1, "some"), (1, 1, "all"), (rng.randint(60, 90), rng.randint(6, 11), "some")]
        return [self.case(rng, *shape) for shape in shapes]

    def case(self, rng: Random, n: int, parts: int, counted: str) -> Case:
        W, x = normal(rng, WIDTH, WORDS), normal(rng, n, WIDTH)
        targets = torch.tensor([rng.randrange(WORDS) for _ in range(n)])
        for row in range(1, n):
            if counted == "some" and rng.random() < (0.15 if row < n // 2 else 0.7):
                targets[row] = -1
            if counted == "the first few" and row >= n // 3:
                targets[row] = -1
        arguments = (W, x, targets, parts)
        return Case(arguments, gradient(W, x, targets), {"rows": n, "parts": parts, "rows that count": counted})

    def wrong_values(self, came, case):
        right = case.expected
        if near(came, right):
            return None
        text = difference(0, came, right, exact=False) or "it is not the whole batch's gradient"
        text = text.replace("rank 0 returned", "it returned").replace("\n  expected         ", "\n  expected    ")
        likely = mistake(came, case)
        return f"{text}\n  {likely}" if likely else text

    def wrong_way(self, case):
        W, x, targets, parts = case.arguments
        part = -(-len(x) // parts)
        of_parts = 2 * parts * W.nbytes  # a gradient of each part, and what stacks them
        allowed = SPARE * part * WORDS * 8 + 6 * W.nbytes + of_parts + 4 * x.nbytes + 4 * targets.nbytes + 2000
        if self.peak > allowed:
            return (f"it held {self.peak:,} bytes at once; a part's probabilities take {part * WORDS * 8:,}, those of the "
                    f"whole "
                    f"batch {len(x) * WORDS * 8:,}, and {allowed:,} are plenty: only one part may be there at a time")
        return None


def gradient(W: torch.Tensor, x: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """By autograd."""
    W = W.clone().requires_grad_()
    loss = torch.nn.functional.cross_entropy(x @ W, targets, ignore_index=-1)
    return torch.autograd.grad(loss, W)[0]


def mistake(came: object, case: Case) -> str | None:
    """Which other weights of the parts give this."""
    W, x, targets, parts = case.arguments
    if not isinstance(came, torch.Tensor) or came.shape != W.shape:
        return None
    if came.isnan().any():
        return "There is NaN in it: a part without a row that counts has no mean. It has nothing to add, so leave it out."
    split = [(xs, ts, int((ts >= 0).sum()))
             for xs, ts in zip(x.tensor_split(parts), targets.tensor_split(parts), strict=True)]
    some = [(gradient(W, xs, ts), len(ts), count) for xs, ts, count in split if count]
    n, counted = len(x), sum(count for *_, count in some)

    def weighted(weight: Callable[[int, int], float]) -> torch.Tensor:
        return sum(g * weight(rows, count) for g, rows, count in some)

    ways = [
        (weighted(lambda rows, count: 1.0), "That is the sum of the parts' means: each has to be scaled by its share."),
        (weighted(lambda rows, count: 1 / parts), "That is the mean of the parts' means. It is right only if all parts have "
                                                  "as "
                                                  "many rows that count: weight each by its share of them."),
        (weighted(lambda rows, count: 1 / len(some)), "That is the mean of the parts' means. It is right only if all parts "
                                                      "have "
                                                      "as many rows that count: weight each by its share of them."),
        (weighted(lambda rows, count: rows / n), "The parts are weighted by their rows; but a part's mean is one of the "
                                                 "rows "
                                                 "that count, so weight it by their number."),
        (weighted(lambda rows, count: count), "That is the sum over all rows: divide by the number of rows that count."),
        (weighted(lambda rows, count: count / n), "That is divided by all rows; the mean is one of the rows that count."),
        (weighted(lambda rows, count: count / counted / parts), "That is divided by the number of parts once too often."),
        (some[-1][0], "That is the last part's gradient: add up, don't overwrite."),
        (some[0][0], "That is the first part's gradient: does the loop end too early?"),
        (weighted(lambda rows, count: count / counted) - some[-1][0] * some[-1][2] / counted, "The last part is missing."),
    ]
    if case.traits["rows"] > 1:
        for value, words in ways:
            if near(came, value):
                return words
    size = n // parts
    whole = size * parts
    if whole < n and (targets[:whole] >= 0).any():
        cut = gradient(W, x[:whole], targets[:whole])
        share = float((targets[:whole] >= 0).sum()) / counted
        if near(came, cut) or near(came, cut * share):
            return f"The last {n - whole} rows are missing: {parts} parts of {size} are not all of {n}."
    return None
