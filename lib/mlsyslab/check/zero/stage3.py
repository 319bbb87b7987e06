"""Judging stage 3: a layer is gathered, used, and gone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random

import torch

from mlsyslab.check.exercise import Case
from mlsyslab.check.messages import count
from mlsyslab.check.zero.layers import backward, forward, rows, shards, stack
from mlsyslab.check.zero.sharded import BY_BYTE, Sharded, close, held_too_much, normal, sent_too_much, slip, wrong_list
from mlsyslab.comm import RankFailed

LAYERS = 8
#: Whole layers that may be there at once: a weight, its gradient, the copy of it that is reduced, and another weight or
#: gradient that has a name still.
WHOLE = 4
#: Tensors of the size of an activation that may be there besides the activations: gradients on their way, mostly.
SPARE = 4


class Zero3Step(Sharded):
    name = "zero3_step"

    def cases(self, rng: Random) -> list[Case]:
        return [self.case(rng, p, L) for p, L in ((4, LAYERS), (3, 4), (2, 3), (5, 3), (8, 2), (3, 1), (1, 3),
                                                 (rng.randint(3, 6), LAYERS))]

    def case(self, rng: Random, p: int, L: int) -> Case:
        weights, samples = stack(rng, L), rows(rng, p)
        widths = [len(weights[0]), *(W.shape[1] for W in weights)]
        xs, targets = ([normal(rng, n, width) for n in samples] for width in (widths[0], widths[-1]))
        N, lr = sum(samples), rng.choice((0.5, 0.25))
        arguments = [(shards(weights, p, r), widths, xs[r], targets[r], N, lr) for r in range(p)]
        new = stepped(weights, xs, targets, lr)
        return Case(arguments, [shards(new, p, r) for r in range(p)], {"world size": p, "layers": L}, BY_BYTE)

    def example(self, p):
        return self.case(Random(0), p, 2)

    def differ(self, rank, came, expected):
        if wrong := wrong_list(rank, came, len(expected), "one shard a layer"):
            return wrong
        for layer, (one, right) in enumerate(zip(came, expected, strict=True)):
            if one.numel() > 1.5 * right.numel():
                return (f"rank {rank} keeps {one.numel()} elements of layer {layer}; its shard has {right.numel()}. In "
                        "stage 3 a rank keeps its part of every layer, and nothing else from step to step")
            if wrong := close(rank, one, right):
                return f"layer {layer}: {wrong}"
        return None

    def diagnose(self, case, outcome, fn):
        p = case.p
        weights, xs, targets = world(case)
        N, lr = case.arguments[0][4:]
        alone = [stepped(weights, xs[r:r + 1], targets[r:r + 1], lr, lambda rows: N) for r in range(p)]

        def scaled(rows: Callable[[int], float]) -> list[list[torch.Tensor]]:
            new = stepped(weights, xs, targets, lr, rows)
            return [shards(new, p, r) for r in range(p)]

        slips = [
            ([own[0] for own in case.arguments], "These are the shards from before the step."),
            (scaled(lambda rows: N * p), f"That is a step with 1/{p} of the gradient: each rank divides by the number of "
                                         'all samples, so the ranks\' gradients are to be added up (op="sum").'),
            (scaled(lambda rows: rows), "That is a step with the sum of the ranks' means: divide by N, the number of "
                                        "samples on all ranks, and not by the number of rows here."),
            (scaled(lambda rows: rows * p), "That is a step with the mean of the ranks' means: they have unequal numbers of "
                                            "samples, so divide by N, and add up."),
            (scaled(lambda rows: 1), f"That is a step with {N} times the gradient: the loss is a mean over N samples."),
            (scaled(lambda rows: -N), "That is a step uphill: W_l - lr · gradient, with a gradient that begins with "
                                      "(x_L - target) / N."),
            (scaled(lambda rows: N / 2), "That is twice the gradient: the derivative of |y - target|²/2 is y - target."),
            (scaled(lambda rows: N * lr), "Is `lr` used?"),
            ([shards(own, p, r) for r, own in enumerate(alone)],
             "That is a step with the gradient of this rank's samples alone: reduce over all ranks."),
            ([own[::-1] for own in case.expected], "The list is upside down: it goes from the first layer to the last."),
        ]
        return slip(outcome.results, slips) if p > 1 else None

    def judge(self, case, outcome):
        weights, xs, _ = world(case)
        if wrong := sent_too_much(outcome, 3, weights, "an all-gather of each layer forward, one backward, and a "
                                                       "reduce-scatter of its gradient"):
            return wrong
        largest = max(W.nbytes for W in weights)
        activations = [[x.nbytes for x in forward(weights, own)] for own in xs]
        allowed = [WHOLE * largest + sum(part.nbytes for part in own) + sum(kept) + SPARE * max(kept)
                   for own, kept in zip(case.expected, activations, strict=True)]
        return held_too_much(outcome, allowed, min(W.nbytes for W in weights), "a whole layer",
                             f"the model has {count(len(weights), 'layer')}, and in stage 3 a rank keeps its part of each. "
                             "Gather a layer, use it, free it; backward gathers it again (a view, such as a slice, keeps "
                             "all that it is a part of)")

    def advise(self, error):
        if isinstance(error, RankFailed) and "expects" in error.reason and "sends" in error.reason:
            return "all_gather takes the lengths of all ranks' parts: lengths=even_lengths(d_in * d_out, comm.size)."
        if isinstance(error, RankFailed) and any(why in error.reason for why in ("mismatch", "multiplied", "invalid for")):
            return "What is gathered is flat: .view(widths[l], widths[l + 1]) makes it a matrix."
        return None


def world(case: Case) -> tuple[list[torch.Tensor], list[torch.Tensor], list[torch.Tensor]]:
    """The whole weights, and every rank's samples and targets."""
    widths = case.arguments[0][1]
    parts = zip(*(own[0] for own in case.arguments), strict=True)
    weights = [torch.cat(part).view(widths[layer:layer + 2]) for layer, part in enumerate(parts)]
    return weights, [own[2] for own in case.arguments], [own[3] for own in case.arguments]


def stepped(weights: Sequence[torch.Tensor], xs: Sequence[torch.Tensor], targets: Sequence[torch.Tensor], lr: float,
            rows: Callable[[int], float] | None = None) -> list[torch.Tensor]:
    """The weights after a step of SGD on all samples together.

    rows: what a rank with so many samples divides its gradient by; by default the number of all samples.
    """
    N = sum(map(len, xs))
    new = [W.clone() for W in weights]
    for x, target in zip(xs, targets, strict=True):
        gradient = (forward(weights, x)[-1] - target) / (rows(len(x)) if rows else N)
        for W, g in zip(new, backward(weights, [x], gradient), strict=True):
            W -= lr * g
    return new
