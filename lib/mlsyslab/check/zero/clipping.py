"""Judging the clipping of a gradient that lies in shards on all ranks."""

from __future__ import annotations

from random import Random
from typing import Any

import torch

from mlsyslab import zero
from mlsyslab.check.exercise import Case
from mlsyslab.check.messages import article, is_number
from mlsyslab.check.unaided import unaided
from mlsyslab.check.zero.sharded import BY_BYTE, Sharded, close, near, normal, wrong_list
from mlsyslab.comm import RankFailed

SMALL = 1e-6  # added to the norm, as torch's clip_grad_norm_ does
#: Bytes of one number.
NUMBER = 8


class Clip(Sharded):
    name = "clip"

    def problem(self, fn, case):
        return super().problem(unaided(fn, zero), case)

    def cases(self, rng: Random) -> list[Case]:
        return [self.case(rng, p, lengths, share)
                for p, lengths in ((4, (8, 20, 12)), (3, (7, 1, 15)), (2, (9, 30)), (5, (3, 2, 16)), (8, (5, 24)),
                                   (1, (6, 4)), (rng.randint(2, 6), (rng.randint(1, 9), rng.randint(1, 30))))
                for share in (0.5, 2.0)]

    def case(self, rng: Random, p: int, lengths: tuple[int, ...], share: float) -> Case:
        """Layers of these lengths, and a max_norm of so many times the norm."""
        layers = [(1 + i) * normal(rng, length) for i, length in enumerate(lengths)]
        norm = torch.cat(layers).norm().item()
        parts = [[layer.tensor_split(p)[r].clone() for layer in layers] for r in range(p)]
        factor = min(1.0, share * norm / (norm + SMALL))
        traits = {"world size": p, "layers": len(lengths), "norm": "too large" if share < 1 else "small enough"}
        return Case([(own, share * norm) for own in parts], [([factor * one for one in own], norm) for own in parts], traits,
                    BY_BYTE)

    def example(self, p):
        return self.case(Random(0), p, (8, 20, 12), 0.5)

    def differ(self, rank, came, expected):
        if came is None:
            return wrong_list(rank, came, 2, "")
        if not isinstance(came, (list, tuple)) or len(came) != 2:
            return f"rank {rank} returned {article(type(came).__name__)}; expected the pair (shards, norm)"
        shards, norm = came
        if not is_one_number(norm):
            return f"rank {rank} returned the norm as {article(type(norm).__name__)}; expected a number"
        if not abs(float(norm) - expected[1]) <= 1e-6 * expected[1]:
            return f"rank {rank} returned the norm {float(norm):.6g}, expected {expected[1]:.6g}"
        if wrong := wrong_list(rank, shards, len(expected[0]), "one shard a layer"):
            return wrong
        for layer, (one, right) in enumerate(zip(shards, expected[0], strict=True)):
            if wrong := close(rank, one, right):
                return f"layer {layer}: {wrong}"
        return None

    def diagnose(self, case, outcome, fn):
        pairs = outcome.results
        if not all(isinstance(came, (list, tuple)) and len(came) == 2 and is_one_number(came[1]) for came in pairs):
            return None
        right = case.expected[0][1]
        if all(abs(float(norm) - right) <= 1e-6 * right for _, norm in pairs):
            return self.scale_mistake(case, pairs)
        return self.norm_mistake(case, pairs)  # the scale follows from it

    def norm_mistake(self, case: Case, results: list) -> str | None:
        """Which other norm it is."""
        given = [own[0] for own in case.arguments]
        own = [torch.cat(shards).norm().item() for shards in given]
        layers = [torch.cat(parts).norm().item() for parts in zip(*given, strict=True)]
        whole, p = case.expected[0][1], case.p
        ways = [
            (own, "That is the norm of this rank's shards alone: the squares of all ranks have to be added up."),
            ([sum(own)] * p, "That is the sum of the ranks' norms. Squares can be added up, norms can't: add the squares "
                             "of all ranks, and take the root of that."),
            ([sum(own) / p] * p, "That is the mean of the ranks' norms. Add up the squares of all ranks, and take the "
                                 "root."),
            ([max(own)] * p, "That is the largest of the ranks' norms."),
            ([whole**2] * p, "That is the norm's square: the root is missing."),
            ([whole / p**0.5] * p, 'That is the root of the mean of the ranks\' squares: they are to be added up '
                                   '(op="sum").'),
            *(([mean**0.5] * p, "There a mean is taken in place of a sum: add up the squares of all elements, of all layers "
                                "and all ranks.") for mean in means(given)),
            ([sum(layers)] * p, "That is the sum of the layers' norms: the squares of all layers belong under one root."),
            ([sum(torch.cat(shards).abs().sum().item() for shards in given)] * p, "That is the sum of absolute values."),
        ]
        return next((words for value, words in ways
                     if all(abs(float(came[1]) - right) <= 1e-6 * right for came, right in zip(results, value, strict=True))
                     and abs(value[0] - whole) > 1e-6 * whole), None)

    def scale_mistake(self, case: Case, results: list) -> str | None:
        """What the shards were multiplied by instead."""
        given, most = [own[0] for own in case.arguments], case.arguments[0][1]
        norm = case.expected[0][1]
        for factor, words in ((most / (norm + SMALL), "A gradient that is small enough stays as it is: min(1, …)."),
                              (min(1.0, most / norm), "1e-6 is left out of the denominator: max_norm / (norm + 1e-6)."),
                              (min(1.0, most / norm + SMALL), "1e-6 belongs in the denominator: max_norm / (norm + 1e-6)."),
                              (1.0, "The shards are as they came in: where the norm is too large, they are to be scaled."),
                              (1 / (norm + SMALL), "That scales to a norm of 1: multiply by max_norm."),
                              (min(1.0, (norm + SMALL) / most), "That is the factor upside down: max_norm / norm.")):
            if all(isinstance(shards, (list, tuple)) and len(shards) == len(own) and
                   all(isinstance(one, torch.Tensor) and near(one, factor * right)
                       for one, right in zip(shards, own, strict=True))
                   for (shards, _), own in zip(results, given, strict=True)):
                return words
        return None

    def judge(self, case, outcome):
        most = max(2 * (case.p - 1).bit_length(), case.p - 1)  # an all-reduce of one number, or an all-gather of one each
        layers = len(case.arguments[0][0])
        for rank in range(case.p):
            numbers = outcome.trace.bytes_sent(rank) // NUMBER
            if numbers <= most:
                continue
            if any(message.tensor.nbytes > NUMBER * layers for message in outcome.by(rank)):
                return (f"rank {rank} sent {numbers} numbers. The gradients stay where they are: all that the ranks have to "
                        "tell one another is one number, the sum of their squares")
            return (f"rank {rank} sent {numbers} numbers; where each rank has one to tell, {most} are plenty. Add up the "
                    "squares of all layers first, and then reduce once")
        return None

    def advise(self, error):
        if isinstance(error, RankFailed) and "scalar" in error.reason:
            return "A collective takes a tensor with at least one dimension: squares.reshape(1)."
        return None


def means(given: list[list[torch.Tensor]]) -> list[float]:
    """What comes of the squares where a mean is taken in place of some sum: of a rank's elements, a layer's, or all."""
    every = torch.cat([shard for own in given for shard in own]).square().mean().item()
    of_ranks = sum(torch.cat(own).square().mean().item() for own in given)
    of_shards = sum(shard.square().mean().item() for own in given for shard in own)
    return [every, of_ranks, of_ranks / len(given), of_shards, of_shards / len(given)]


def is_one_number(value: Any) -> bool:
    """Whether it is a number, or a tensor with one."""
    return is_number(value) or isinstance(value, torch.Tensor) and value.numel() == 1
