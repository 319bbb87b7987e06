"""Judging stage 1: every rank updates its shard only, and remembers the optimizer's state of its shard only."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random

import torch

from mlsyslab.check import inputs
from mlsyslab.check.exercise import Case
from mlsyslab.check.messages import article, count
from mlsyslab.check.zero.sharded import (
    BY_BYTE,
    Sharded,
    close,
    held_too_much,
    near,
    normal,
    sent_too_little,
    sent_too_much,
    wrong_list,
)
from mlsyslab.comm import RankFailed

STEPS = 2
#: Tensors as large as the model that may be there at once: old and new parameters, a gradient, and a copy of it.
WHOLE = 4
#: Bytes that may be there besides: a few numbers, which say nothing, and are much where the model has three.
SPARE = 128
#: The optimizers of the lab's `update`, and the names of what torch's remember.
OPTIMIZERS: dict[str, tuple[Callable, Sequence[str]]] = {
    "sgd": (lambda flat: torch.optim.SGD([flat], lr=0.1), ()),
    "momentum": (lambda flat: torch.optim.SGD([flat], lr=0.1, momentum=0.9), ("momentum_buffer",)),
    "adamw": (lambda flat: torch.optim.AdamW([flat], lr=0.1, weight_decay=0.01), ("exp_avg", "exp_avg_sq")),
}


class Zero1(Sharded):
    name = "zero1"

    def cases(self, rng: Random) -> list[Case]:
        lengths = {p: (40 * p, 40 * p + rng.randint(1, p), max(1, p - 1)) for p in inputs.SIZES}
        every = [(p, *pair) for p in (4, 3, 8) for pair in zip(lengths[p], ("sgd", "adamw", "momentum"), strict=True)]
        few = [(p, lengths[p][k], optimizer) for p, k, optimizer in ((2, 1, "sgd"), (5, 1, "momentum"), (1, 0, "adamw"))]
        return [self.case(rng, *of) for of in (*every, *few, (4, 163, "sgd"))]

    def case(self, rng: Random, p: int, M: int, optimizer: str) -> Case:
        parameters = normal(rng, M)
        gradients = [[normal(rng, M) for _ in range(STEPS)] for _ in range(p)]
        traits = {"world size": p, "length": M, "optimizer": optimizer}
        return Case([(parameters, own, optimizer) for own in gradients],
                    sharded(*trained(optimizer, parameters, means(gradients)), p), traits, BY_BYTE)

    def example(self, p):
        return self.case(Random(0), p, 40 * p, "sgd")

    def differ(self, rank, came, expected):
        if came is None:
            return wrong_list(rank, came, 2, "")
        if not isinstance(came, (list, tuple)) or len(came) != 2:
            return f"rank {rank} returned {article(type(came).__name__)}; expected the pair (parameters, state)"
        if wrong := close(rank, came[0], expected[0]):
            return f"the parameters: {wrong}"
        (_, state), (_, right) = came, expected
        if wrong := wrong_list(rank, state, len(right), "what the optimizer remembers"):
            return f"the state: {wrong}"
        for tensor, part in zip(state, right, strict=True):
            if tensor.numel() > part.numel():
                return (f"rank {rank} keeps {count(tensor.numel(), 'element')} of the optimizer's state; its shard has "
                        f"{len(part)}: stage 1 cuts this state, 8 of 16 bytes a parameter with Adam, and the update needs "
                        "the own shard only")
            if wrong := close(rank, tensor, part):
                return f"the state: {wrong}"
        return None

    def diagnose(self, case, outcome, fn):
        p, (start, _, optimizer) = case.p, case.arguments[0]
        gradients = [own[1] for own in case.arguments]
        came = [result[0] for result in outcome.results if isinstance(result, (list, tuple)) and result]
        if len(came) != p or not all(isinstance(one, torch.Tensor) for one in came):
            return None
        if any(one.isnan().any() for one in came):
            return "There are NaN in it. Steps are counted from 1: with t = 0 Adam's means would be divided by zero."
        right = case.expected[0][0]
        parts = right.tensor_split(p)
        if p > 1 and all(map(near, came, parts)):
            return "That is this rank's shard only: its new parameters have to reach everyone (all_gather)."
        mixed = [torch.cat([part if i == r else old for i, (part, old) in enumerate(zip(parts, start.tensor_split(p),
                                                                                         strict=True))]) for r in range(p)]
        slips = [
            ([trained(optimizer, start, [p * g for g in means(gradients)])[0]] * p,
             f"That is training with the sum of the gradients, {p} times their mean."),
            ([trained(optimizer, start, [g / p for g in means(gradients)])[0]] * p,
             f"The gradient is divided by {p} once too often: op=\"mean\" has done it."),
            ([trained(optimizer, start, own)[0] for own in gradients],
             "Every rank has trained with its own gradients alone: their mean is what counts."),
            (mixed, "Only the own shard is new: the shards of the others have to be gathered after the update."),
            ([forgetful(optimizer, start, means(gradients))] * p,
             "That is an optimizer that begins anew in every step: its state has to last."),
            ([torch.cat([trained(optimizer, start, own)[0].tensor_split(p)[r] for r, own in enumerate(gradients)])] * p,
             "Every rank has trained its shard with its own gradients alone: their mean is what counts."),
            ([trained(optimizer, start, means(gradients)[:1])[0]] * p, "That is where training is after one step."),
            ([start] * p, "These are the parameters from before the training."),
        ]
        if p == 1 or all(near(one, right) for one in came):
            return None
        return next((words for value, words in slips if all(map(near, came, value))), None)

    def judge(self, case, outcome):
        parameters = case.arguments[0][0]
        if wrong := sent_too_much(outcome, 2 * STEPS, [parameters],
                                  f"that is {STEPS} steps of a reduce-scatter of the gradients and an all-gather of the new "
                                  "parameters. An all-reduce is both of them already"):
            return wrong
        if wrong := sent_too_little(outcome, 2 * STEPS, parameters, "in each step the gradients are reduce-scattered, and "
                                    "the new parameters reach everyone; not only after the last step"):
            return wrong
        allowed = [WHOLE * parameters.nbytes + 8 * shard.nbytes + SPARE for shard in parameters.tensor_split(case.p)]
        return held_too_much(outcome, allowed, parameters.nbytes, "the model",
                             "of the optimizer's state, and of all that the update makes, a rank needs its shard only")

    def advise(self, error):
        if isinstance(error, RankFailed) and "size of tensor" in error.reason:
            return "`update` takes parameters and a gradient of one length: those of the shard."
        if isinstance(error, RankFailed) and "expects" in error.reason and "sends" in error.reason:
            return "all_gather takes the lengths of all ranks' shards: lengths=even_lengths(M, comm.size)."
        return None


def means(gradients: Sequence[Sequence[torch.Tensor]]) -> list[torch.Tensor]:
    """For each step the mean of all ranks' gradients."""
    return [torch.stack(of_step).mean(0) for of_step in zip(*gradients, strict=True)]


def trained(optimizer: str, parameters: torch.Tensor,
            gradients: Sequence[torch.Tensor]) -> tuple[torch.Tensor, list[torch.Tensor]]:
    """The parameters, and what the optimizer remembers, after a step with each of `gradients`, by torch's optimizers."""
    flat = parameters.clone()
    make, names = OPTIMIZERS[optimizer]
    steps = make(flat)
    for gradient in gradients:
        flat.grad = gradient
        steps.step()
    return flat, [steps.state[flat][name] for name in names]


def forgetful(optimizer: str, parameters: torch.Tensor, gradients: Sequence[torch.Tensor]) -> torch.Tensor:
    """The parameters after steps of which each has an optimizer of its own."""
    for gradient in gradients:
        parameters, _ = trained(optimizer, parameters, [gradient])
    return parameters


def sharded(parameters: torch.Tensor, state: Sequence[torch.Tensor], p: int) -> list[tuple]:
    """What each rank should return."""
    return [(parameters, [whole.tensor_split(p)[r] for whole in state]) for r in range(p)]
