"""Judging a backward that keeps checkpoints only: its gradients, how often it computes a layer, what it holds."""

from __future__ import annotations

import math
from collections.abc import Sequence
from random import Random

import torch

from mlsyslab.check.exercise import Case
from mlsyslab.check.memory.watched import Watched
from mlsyslab.check.messages import article, count, difference
from mlsyslab.check.watched import near, normal

ROWS, WIDTH = 160, 6
#: Tensors as large as an activation that may be there besides checkpoints and one inside: those on their way.
SPARE = 7


class Checkpointed(Watched):
    name = "checkpointed"

    def cases(self, rng: Random) -> list[Case]:
        shapes = [(36, 6), (36, 3), (36, 12), (32, 5), (3, 2), (4, 1), (5, 5), (1, 1),
                  (rng.randint(55, 65), rng.randint(6, 9)),
                  (60, 2), (60, 30)]  # so far from the best k that another one holds much more or much less
        return [self.case(rng, L, k) for L, k in shapes]

    def case(self, rng: Random, L: int, k: int) -> Case:
        weights = [normal(rng, WIDTH, WIDTH) / WIDTH**0.5 for _ in range(L)]
        x, gradient = normal(rng, ROWS, WIDTH), normal(rng, ROWS, WIDTH)
        return Case((weights, x, gradient, k), gradients(weights, x, gradient), {"layers": L, "k": k})

    def wrong_values(self, came, case):
        weights, x, gradient, k = case.arguments
        right = case.expected
        if not isinstance(came, (list, tuple)) or not all(isinstance(one, torch.Tensor) for one in came):
            return f"it returned {article(type(came).__name__)}; expected a list of tensors, one gradient a layer"
        if len(came) != len(right):
            return (f"it returned {count(len(came), 'gradient')}; expected {len(right)}, one a layer (the last segment may "
                    f"be "
                    "shorter)")
        if all(map(near, came, right)):
            return None
        if all(map(near, came, reversed(right))):
            return "the gradients come in reverse: expected that of W_0 first"
        layer = next(layer for layer in reversed(range(len(right))) if not near(came[layer], right[layer]))
        text = difference(0, came[layer], right[layer], exact=False)
        text = f"layer {layer}: {text.replace('rank 0 returned', 'it gave')}" if text else f"layer {layer} is wrong"
        likely = mistake(came, case)
        return f"{text}\n  {likely}" if likely else text

    def wrong_way(self, case):
        weights, x, _, k = case.arguments
        L, one = len(weights), x.nbytes
        segments = math.ceil(L / k)
        if self.products > 4 * L:
            return (f"it computed {self.products} matrix products; {4 * L} are enough for {count(L, 'layer')}: one forward, "
                    "one more when its segment is computed again, two backward. Start again at the segment's checkpoint, "
                    "not "
                    "at x_0, and go through a segment once")
        allowed = (segments + k + 1 + SPARE) * one + 2 * sum(W.nbytes for W in weights)
        if self.peak > allowed:
            found = (f"it held {self.peak / one:.1f} times an activation at once; {segments} checkpoints and the inside of "
                     f"one "
                     f"segment of {k} with a few tensors on their way make {allowed / one:.1f}")
            if self.products < 4 * L - k:
                return (f"{found}. And hardly anything was computed a second time ({self.products} matrix products): "
                        f"forward "
                        "keeps only the input of each segment")
            return (f"{found}. Let a segment's inside go before the next one is computed, and keep no x but the "
                    f"checkpoints, one every {count(k, 'layer')}")
        least = max(i + min(k, L - i * k) for i in range(segments))  # when the inside of segment i is there; x_0 was given
        if self.peak < least * one:
            found = (f"it held {self.peak / one:.1f} times an activation at most; {count(segments, 'checkpoint')} and the "
                     f"inside of one segment of {k} make {least}, even if x_0 is not counted")
            if self.products < L:
                return f"{found}. Compute with tensors, by `forward` and `backward`: what else holds is not seen"
            return f"{found}. Is the distance of the checkpoints the `k` that is given?"
        return None


def gradients(weights: Sequence[torch.Tensor], x: torch.Tensor, gradient: torch.Tensor) -> list[torch.Tensor]:
    """By autograd."""
    found = [W.clone().requires_grad_() for W in weights]
    for W in found:
        x = torch.tanh(x @ W)
    return list(torch.autograd.grad(x, found, gradient))


def mistake(came: Sequence[torch.Tensor], case: Case) -> str | None:
    """The likely mistake behind gradients that are right from some layer on, and wrong before."""
    weights, _, _, k = case.arguments
    right = case.expected
    first_right = len(right)
    while first_right and near(came[first_right - 1], right[first_right - 1]):
        first_right -= 1
    if 0 < first_right < len(right) and first_right % k == 0:
        return (f"From layer {first_right} on the gradients are right, and before they are wrong: what goes from a segment "
                f"to "
                "the one before it is the gradient of the segment's input; and each segment starts from its own checkpoint.")
    if any(near(one, -other) for one, other in zip(came, right, strict=True)):
        return "The sign is wrong."
    if near(came[-1], right[-1]) and not near(came[0], right[0]):
        return "The last layer's gradient is right: is the gradient handed on from layer to layer?"
    return None
