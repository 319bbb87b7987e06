"""The lab `zero`: ways that are as good as the reference, inputs, what is watched. See test_exercises.py for the rest."""

from __future__ import annotations

import gc
import math
import re
from functools import partial

import numpy as np
import pytest
import torch
from exercises import message, solved
from zero_wrong import (
    clip_by_the_mean_of_the_elements,
    update,
    zero1_plain_optimizer_on_every_rank,
    zero1_whole_state_cut_at_the_end,
    zero1_with_a_dict_of_state,
    zero3_gathers_everything_first,
)

from mlsyslab import collectives, zero
from mlsyslab.check import inputs
from mlsyslab.check import zero as check
from mlsyslab.check.live import Live
from mlsyslab.check.runs import run
from mlsyslab.check.zero.formulas import BYTES, NUMBERS, times
from mlsyslab.collectives.parts import even_lengths
from mlsyslab.comm import Link

# -- other right solutions --------------------------------------------------------------------------------------------


def state_bytes_by_numpy(M, p, stage, precision, optimizer):
    shard = np.int64(math.ceil(M / p))
    each = {"parameters": 2, "gradients": 2, "optimizer": 4} if precision == "mixed" else {
        "parameters": 4, "gradients": 4, "optimizer": 0}
    each["optimizer"] += {"adam": 8, "momentum": 4, "sgd": 0}[optimizer]
    return {part: size * (shard if stage >= cut else np.int64(M)) for (part, size), cut in zip(each.items(), (3, 2, 1),
                                                                                               strict=True)}


def shard_of_by_counting(lengths, p, r):
    """Each element by its number."""
    owners = torch.cat([torch.full((n,), i) for i, n in enumerate(lengths)]).tensor_split(p)[r].tolist()
    first = sum(even_lengths(sum(lengths), p)[:r])
    pieces = []
    for number, owner in enumerate(owners):
        place = first + number - sum(lengths[:owner])
        if pieces and pieces[-1][0] == owner:
            pieces[-1][2] = place + 1
        else:
            pieces.append([owner, place, place + 1])
    return tuple(map(tuple, pieces))


def zero1_with_a_copy_of_everything(comm, parameters, gradients, optimizer):
    """Keeps whole parameters, as stage 1 does, and updates its shard where it lies in them."""
    whole, state = parameters.clone(), []
    lengths = even_lengths(len(whole), comm.size)
    shard = whole.split(lengths)[comm.rank]
    for t, gradient in enumerate(gradients, 1):
        own = collectives.reduce_scatter(comm, gradient, "sum", algorithm="ring") / comm.size
        update(optimizer, shard, own, state, t)
        whole.copy_(collectives.all_gather(comm, shard.clone(), lengths=lengths, algorithm="ring"))
    return [whole, tuple(state)]


def zero1_of_a_divided_gradient(comm, parameters, gradients, optimizer):
    """Divides the whole gradient, cuts its shard out of a whole copy, and has a name for everything."""
    lengths, state = even_lengths(len(parameters), comm.size), []
    shard = parameters.clone().split(lengths)[comm.rank]
    for t, gradient in enumerate(gradients, 1):
        divided = gradient / comm.size
        own = collectives.reduce_scatter(comm, divided, "sum")
        update(optimizer, shard, own, state, t)
        parameters = collectives.all_gather(comm, shard, lengths=lengths)
    return parameters, state


def zero2_with_names(comm, weights, inputs, gradient):
    shards = [None] * len(weights)
    for layer in range(len(weights) - 1, -1, -1):
        found = torch.einsum("ri,ro->io", inputs[layer], gradient)
        flat = found.reshape(-1)
        shards[layer] = collectives.reduce_scatter(comm, flat, op="sum")
        gradient = torch.nn.functional.linear(gradient, weights[layer])
    return tuple(shards)


def zero3_that_keeps_the_last_layer(comm, shards, widths, x, target, N, lr):
    """The last layer is used again at once: no need to gather it twice."""
    def gather(layer):
        shape = widths[layer], widths[layer + 1]
        return collectives.all_gather(comm, shards[layer], lengths=even_lengths(math.prod(shape), comm.size)).view(shape)

    last, activations = len(shards) - 1, [x]
    for layer in range(last + 1):
        W = gather(layer)
        activations.append(activations[-1] @ W)
    g, new = (activations[-1] - target).div(N), {}
    for layer in range(last, -1, -1):
        W = W if layer == last else gather(layer)
        found = activations[layer].T @ g
        new[layer] = shards[layer].sub(collectives.reduce_scatter(comm, found.flatten()), alpha=lr)
        g = g @ W.T
    return [new[layer] for layer in range(last + 1)]


def clip_by_the_whole_shard(comm, shards, max_norm):
    norm = torch.cat(shards).norm()
    norm = collectives.all_reduce(comm, norm.square().view(1)).sqrt()
    return [shard * torch.clamp(max_norm / (norm + 1e-6), max=1.0) for shard in shards], norm


def clip_by_a_number_of_each_rank(comm, shards, max_norm):
    squares = collectives.all_gather(comm, torch.cat(shards).square().sum().reshape(1))
    norm = squares.sum().sqrt().item()
    return [shard * min(1.0, max_norm / (norm + 1e-6)) for shard in shards], norm


@pytest.mark.parametrize("exercise, fn", [
    ("state_bytes", state_bytes_by_numpy), ("shard_of", shard_of_by_counting), ("zero1", zero1_with_a_copy_of_everything),
    ("zero1", zero1_of_a_divided_gradient), ("zero2_backward", zero2_with_names),
    ("zero3_step", zero3_that_keeps_the_last_layer), ("clip", clip_by_the_whole_shard),
    ("clip", clip_by_a_number_of_each_rank),
    ("elements_sent", lambda M, p, stage, k: [2, 2, k + 1, 3 * k][stage] * M * (p - 1) / p)])
def test_other_ways_that_are_as_good_pass_too(exercise, fn, monkeypatch):
    getattr(check, exercise)(fn)
    for seed in ("1", "another", "3.14", "2026"):
        monkeypatch.setenv(inputs.SEED, seed)
        getattr(check, exercise)(fn, hidden=True)


# -- what is expected is what the library says ------------------------------------------------------------------------


@pytest.mark.parametrize("stage", [0, 1, 2, 3])
def test_the_formulas_are_those_of_the_library(stage):
    optimizers = {"adam": partial(torch.optim.Adam, lr=1.0), "sgd": partial(torch.optim.SGD, lr=1.0),
                  "momentum": partial(torch.optim.SGD, lr=1.0, momentum=0.9)}
    state = solved("zero")["state_bytes"]
    for precision, dtype in (("mixed", torch.bfloat16), ("single", torch.float32)):
        for name, make in optimizers.items():
            each = zero.bytes_a_parameter(make, dtype)
            assert tuple(state(7200, 8, stage, precision, name).values()) == zero.memory(7200, 8, stage, *each)[:3]
            assert each[2] == BYTES[precision][2] + 4 * NUMBERS[name]
    for k in (1, 3):
        assert times(stage, k) * 7 * 900 == zero.traffic(7200, 8, stage, k).total


# -- inputs -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("exercise", ["zero1", "zero2_backward", "zero3_step", "clip"])
def test_rank_programs_are_tried_on_many_worlds_and_on_lengths_that_do_not_divide(exercise):
    cases = getattr(check, exercise).cases(inputs.source(exercise, hidden=True))
    assert {case.p for case in cases} >= {1, 2, 3, 4, 5, 8}
    if exercise == "zero1":
        lengths = [(case.traits["length"], case.p) for case in cases]
        assert any(M % p for M, p in lengths) and any(p > M for M, p in lengths)
        assert any(M % p == 0 and p > 1 for M, p in lengths)
        assert {case.traits["optimizer"] for case in cases} == {"sgd", "momentum", "adamw"}
    else:
        parts = [tensor.numel() for case in cases for own in case.arguments for tensor in own[0]]
        assert len(set(parts)) > 3


def test_a_step_of_stage_3_is_tried_with_unequal_numbers_of_samples():
    for case in check.zero3_step.cases(inputs.source("zero3_step", hidden=True))[:2]:
        assert len({len(own[2]) for own in case.arguments}) > 1


# -- messages ---------------------------------------------------------------------------------------------------------


def test_a_plain_optimizer_on_every_rank_is_told_what_was_found_and_where():
    said = message(check.zero1, zero1_plain_optimizer_on_every_rank)
    assert re.search(r"rank 0 keeps 16\d elements of the optimizer's state; its shard has 41", said)


def test_what_is_told_of_memory_is_not_blamed_on_lengths():
    assert "It is right whenever" not in message(check.zero1, zero1_whole_state_cut_at_the_end)


def test_a_state_of_another_type_is_not_taken_for_another_mistake():
    """Without a state, as under sgd, to forget it changes nothing."""
    said = message(check.zero1, zero1_with_a_dict_of_state)
    assert "optimizer sgd" in said and "begins anew" not in said


def test_a_wrong_norm_is_not_blamed_on_the_shards():
    """Scaled with too small a norm they stay as they are."""
    assert "as they came in" not in message(check.clip, clip_by_the_mean_of_the_elements)


@pytest.mark.parametrize("exercise, fn, whole", [
    (check.zero1, zero1_whole_state_cut_at_the_end, "as large as the model"),
    (check.zero3_step, zero3_gathers_everything_first, "as large as a whole layer")])
def test_whoever_keeps_everything_is_told_the_rank_and_what_lay_there(exercise, fn, whole):
    said = message(exercise, fn)
    assert "the values are right, but not the way they came: rank " in said
    assert "bytes at once in tensors that it made, among them " in said
    assert whole in said


# -- what is watched --------------------------------------------------------------------------------------------------


def test_memory_is_watched_while_somebody_has_a_name_for_it():
    gc.disable()  # freed because nothing refers to them, not because they were searched for
    try:
        before = torch.zeros(10)
        with Live() as live:
            assert before[2:5].add_(1) is not None
            assert live.sizes() == []  # a view of what was there before, written in place
            kept = [torch.ones(100) for _ in range(3)]
            kept.pop()
            assert live.sizes() == [400, 400]
            half = kept.pop()[:50]
            assert live.sizes() == [400, 400]  # a view keeps all that it is a view of
            del half
            with live.aside():
                kept.append(kept[0].clone())
            assert live.sizes() == [400]
            kept[0].untyped_storage().resize_(0)
            assert live.sizes() == [0]
        torch.ones(1000)
        assert (live.peak, live.at_peak) == (1200, [400, 400, 400])
    finally:
        gc.enable()


def test_what_one_rank_makes_is_not_counted_for_another():
    def send(comm, length):
        if comm.rank == 0:
            comm.send(torch.zeros(length), 1)
        else:
            comm.recv(torch.empty(length), 0)
            torch.zeros(2 * length)

    outcome = run(send, [(25,), (25,)], Link(), watch=True)
    assert [live.peak for live in outcome.live] == [100, 200]
    assert run(send, [(25,), (25,)], Link()).live == []


# -- pictures ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("exercise", ["zero1", "zero2_backward", "zero3_step"])
def test_a_run_is_drawn(exercise):
    picture = getattr(check, exercise).show(solved("zero")[exercise], p=3)
    assert "3 ranks" in picture._repr_html_()
