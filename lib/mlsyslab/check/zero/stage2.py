"""Judging stage 2: each layer's gradient is reduced to shards when it is there, and then gone."""

from __future__ import annotations

from random import Random

from mlsyslab.check.exercise import Case
from mlsyslab.check.zero.layers import backward, forward, rows, shards, stack
from mlsyslab.check.zero.sharded import BY_BYTE, Sharded, close, held_too_much, normal, sent_too_much, slip, wrong_list
from mlsyslab.comm import RankFailed

LAYERS = 8
#: Whole gradients that may be there at once: the one that is made, the copy that is reduced, and one that has a name still.
WHOLE = 4
#: Tensors of the size of an activation that may be there: the gradients between the layers.
SPARE = 4


class Zero2Backward(Sharded):
    name = "zero2_backward"

    def cases(self, rng: Random) -> list[Case]:
        return [self.case(rng, p, L) for p, L in ((4, LAYERS), (3, 4), (2, 4), (5, 3), (8, 2), (3, 1), (1, 4),
                                                 (rng.randint(3, 6), LAYERS))]

    def case(self, rng: Random, p: int, L: int) -> Case:
        weights, samples = stack(rng, L), rows(rng, p)
        xs = [forward(weights, normal(rng, n, len(weights[0])))[:-1] for n in samples]
        gradients = [normal(rng, n, weights[-1].shape[1]) / sum(samples) for n in samples]
        whole = [sum(of_layer) for of_layer in zip(*(backward(weights, x, g) for x, g in zip(xs, gradients, strict=True)),
                                                   strict=True)]
        return Case([(weights, x, g) for x, g in zip(xs, gradients, strict=True)],
                    [shards(whole, p, r) for r in range(p)], {"world size": p, "layers": L}, BY_BYTE)

    def example(self, p):
        return self.case(Random(0), p, 4)

    def differ(self, rank, came, expected):
        if wrong := wrong_list(rank, came, len(expected), "one shard a layer"):
            return wrong
        for layer, (one, right) in enumerate(zip(came, expected, strict=True)):
            if one.dim() == 1 and one.numel() > 1.5 * right.numel():
                return (f"rank {rank} keeps {one.numel()} elements of layer {layer}'s gradient; its shard has "
                        f"{right.numel()}. Stage 2 cuts the gradients: reduce_scatter gives each rank its own part")
            if wrong := close(rank, one, right):
                return f"layer {layer}: {wrong}"
        return None

    def diagnose(self, case, outcome, fn):
        p = case.p
        if p == 1:
            return None
        alone = [backward(*own) for own in case.arguments]
        turned = [sum(layer).T.contiguous() for layer in zip(*alone, strict=True)]
        slips = [
            ([[g / p for g in own] for own in case.expected],
             f"That is the gradient divided by {p}. What arrives is divided by the number of all samples already: the "
             "ranks' "
             'gradients are to be added up (op="sum").'),
            ([[g * p for g in own] for own in case.expected], f"That is {p} times the gradient."),
            ([shards(own, p, r) for r, own in enumerate(alone)],
             "That is the gradient of this rank's samples alone: reduce over all ranks."),
            ([own[::-1] for own in case.expected],
             "The list is upside down: backward goes from the last layer to the first, and the list from the first to the "
             "last."),
            ([shards(turned, p, r) for r in range(p)],
             "These are the gradients of the transposed weights: that of W_l is x_l^T g_{l+1}."),
        ]
        return slip(outcome.results, slips)

    def judge(self, case, outcome):
        weights = case.arguments[0][0]
        if wrong := sent_too_much(outcome, 1, weights, "a reduce-scatter of each layer's gradient"):
            return wrong
        largest = max(W.nbytes for W in weights)
        allowed = [WHOLE * largest + sum(part.nbytes for part in own) + SPARE * max(x.nbytes for x in xs)
                   for own, (_, xs, _) in zip(case.expected, case.arguments, strict=True)]
        return held_too_much(outcome, allowed, min(W.nbytes for W in weights), "a layer's whole gradient",
                             "reduce a layer's gradient to shards before the next one is made, and keep the shard only (a "
                             "view, as tensor_split and slices give it, keeps all that it is a part of)")

    def advise(self, error):
        if isinstance(error, RankFailed) and "cannot be multiplied" in error.reason:
            return "x_l has the shape (rows, d_l), and g_{l+1} has (rows, d_{l+1}); W_l has (d_l, d_{l+1})."
        return None
