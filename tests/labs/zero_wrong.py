"""Known-wrong solutions of the lab `zero`."""

from __future__ import annotations

import torch
from known_wrong import KnownWrong

from mlsyslab import collectives, zero
from mlsyslab.collectives.parts import even_lengths

wrong = KnownWrong()

# -- 1. what a rank keeps ---------------------------------------------------------------------------------------------


def state(M, p, stage, precision, optimizer, *, shard=None, master=None, number=4, numbers=None, from_stage=(3, 2, 1)):
    """The right answer, but for what is given."""
    shard = -(-M // p) if shard is None else shard
    each, copy = (2, 4) if precision == "mixed" else (4, 0)
    copy = copy if master is None else master
    numbers = numbers or {"adam": 2, "momentum": 1, "sgd": 0}
    sizes = (each, each, copy + number * numbers[optimizer])
    return {part: size * (shard if stage >= cut else M)
            for part, size, cut in zip(("parameters", "gradients", "optimizer"), sizes, from_stage, strict=True)}


@wrong("state_bytes", "rank 0 has ceil(M / p) elements")
def state_of_the_shortest_shard(M, p, stage, precision, optimizer):
    return state(M, p, stage, precision, optimizer, shard=M // p)


@wrong("state_bytes", "a shard has a whole number of elements")
def state_of_the_mean_shard(M, p, stage, precision, optimizer):
    return state(M, p, stage, precision, optimizer, shard=M / p)


@wrong("state_bytes", "The master copy is left out, or the state counted with 2 bytes")
def state_without_master(M, p, stage, precision, optimizer):
    return state(M, p, stage, precision, optimizer, master=0)


@wrong("state_bytes", "only where the parameters have 2 bytes")
def state_with_master_always(M, p, stage, precision, optimizer):
    return state(M, p, stage, precision, optimizer, master=4)


@wrong("state_bytes", "the optimizer works in 4 bytes throughout")
def state_of_two_byte_moments(M, p, stage, precision, optimizer):
    return state(M, p, stage, precision, optimizer, number=2 if precision == "mixed" else 4)


@wrong("state_bytes", "In stage 1 the gradients are not cut yet")
def state_with_gradients_cut_early(M, p, stage, precision, optimizer):
    return state(M, p, stage, precision, optimizer, from_stage=(3, 1, 1))


@wrong("state_bytes", "From stage 3 on the parameters are cut")
def state_with_parameters_never_cut(M, p, stage, precision, optimizer):
    return state(M, p, stage, precision, optimizer, from_stage=(4, 2, 1))


@wrong("state_bytes", "From stage 1 on the optimizer is cut")
def state_of_data_parallelism(M, p, stage, precision, optimizer):
    return state(M, p, 0, precision, optimizer)


@wrong("state_bytes", "momentum remembers one number")
def state_of_adam_always(M, p, stage, precision, optimizer):
    return state(M, p, stage, precision, optimizer, numbers={"adam": 2, "momentum": 2, "sgd": 2})


@wrong("state_bytes", "expected a dict with the keys")
def state_in_all(M, p, stage, precision, optimizer):
    return sum(state(M, p, stage, precision, optimizer).values())


@wrong("state_bytes", "in this exercise you write that yourself")
def state_of_the_library(M, p, stage, precision, optimizer):
    return zero.memory(M, p, stage)._asdict()


# -- 2. what a rank sends ---------------------------------------------------------------------------------------------


def rounds(stage, k):
    return {0: 2, 1: 2, 2: k + 1, 3: 3 * k}[stage]


@wrong("elements_sent", "a rank's own part stays")
def sent_without_the_ring(M, p, stage, k):
    return rounds(stage, k) * M


@wrong("elements_sent", "what all ranks send together")
def sent_by_all(M, p, stage, k):
    return rounds(stage, k) * (p - 1) * M


@wrong("elements_sent", "That is one part of the vector")
def sent_one_part(M, p, stage, k):
    return rounds(stage, k) * M / p


@wrong("elements_sent", "right for one microbatch")
def sent_for_one_microbatch(M, p, stage, k):
    return rounds(stage, 1) * (p - 1) * M // p


@wrong("elements_sent", "counted for each microbatch")
def sent_for_each_microbatch(M, p, stage, k):
    return k * rounds(stage, 1) * (p - 1) * M // p


@wrong("elements_sent", "again for its backward")
def sent_with_one_gather(M, p, stage, k):
    return (2 * k if stage == 3 else rounds(stage, k)) * (p - 1) * M // p


@wrong("elements_sent", "the next forward does that")
def sent_with_a_gather_after_the_update(M, p, stage, k):
    return (3 * k + 1 if stage == 3 else rounds(stage, k)) * (p - 1) * M // p


@wrong("elements_sent", "Stage 2's new parameters have to reach all ranks")
def sent_without_the_new_parameters(M, p, stage, k):
    return (k if stage == 2 else rounds(stage, k)) * (p - 1) * M // p


@wrong("elements_sent", "A reduce-scatter is half of an all-reduce")
def sent_with_an_all_reduce(M, p, stage, k):
    return {0: 2, 1: 3, 2: 2 * k + 1, 3: 4 * k}[stage] * (p - 1) * M // p


@wrong("elements_sent", "expected a number of elements")
def sent_as_text(M, p, stage, k):
    return f"{rounds(stage, k)}M"


# -- 3. shards --------------------------------------------------------------------------------------------------------


def cut(lengths, first, last):
    pieces, offset = [], 0
    for i, length in enumerate(lengths):
        start, stop = max(first - offset, 0), min(last - offset, length)
        if start < stop:
            pieces.append((i, start, stop))
        offset += length
    return pieces


def bounds(lengths, p, r):
    parts = even_lengths(sum(lengths), p)
    return sum(parts[:r]), sum(parts[:r + 1])


@wrong("shard_of", "the last shard takes all that is left over")
def shard_with_a_long_last_one(lengths, p, r):
    each = sum(lengths) // p
    return cut(lengths, r * each, sum(lengths) if r == p - 1 else (r + 1) * each)


@wrong("shard_of", "all shards but the last are longer")
def shard_of_ceil(lengths, p, r):
    each = -(-sum(lengths) // p)
    return cut(lengths, r * each, min(sum(lengths), (r + 1) * each))


@wrong("shard_of", "some elements belong to nobody")
def shard_of_floor(lengths, p, r):
    each = sum(lengths) // p
    return cut(lengths, r * each, (r + 1) * each)


@wrong("shard_of", "cuts each parameter by itself")
def shard_of_each_parameter(lengths, p, r):
    parts = [bounds([length], p, r) for length in lengths]
    return [(i, start, stop) for i, (start, stop) in enumerate(parts) if start < stop]


@wrong("shard_of", "These are whole parameters")
def shard_of_whole_parameters(lengths, p, r):
    chosen = torch.arange(len(lengths)).tensor_split(p)[r].tolist()
    return [(i, 0, lengths[i]) for i in chosen if lengths[i]]


@wrong("shard_of", "is empty, and should be left out")
def shard_with_empty_pieces(lengths, p, r):
    first, last = bounds(lengths, p, r)
    pieces, offset = [], 0
    for i, length in enumerate(lengths):
        start = min(max(first - offset, 0), length)
        pieces.append((i, start, max(start, min(last - offset, length))))
        offset += length
    return pieces


@wrong("shard_of", "lies outside of the parameters")
def shard_counted_in_the_flat_vector(lengths, p, r):
    first, last = bounds(lengths, p, r)
    offsets = [sum(lengths[:i]) for i in range(len(lengths))]
    return [(i, offsets[i] + start, offsets[i] + stop) for i, start, stop in cut(lengths, first, last)]


@wrong("shard_of", "as in Python's slices")
def shard_with_the_last_included(lengths, p, r):
    return [(i, start, stop - 1) for i, start, stop in cut(lengths, *bounds(lengths, p, r)) if stop - 1 > start]


@wrong("shard_of", "expected a list of triples")
def shard_as_one_range(lengths, p, r):
    return bounds(lengths, p, r)


# -- 4. stage 1 -------------------------------------------------------------------------------------------------------


def update(optimizer, parameters, gradient, state, t):
    """As the lab has it."""
    if not state:
        state += [torch.zeros_like(parameters) for _ in range({"sgd": 0, "momentum": 1, "adamw": 2}[optimizer])]
    if optimizer == "sgd":
        parameters -= 0.1 * gradient
    elif optimizer == "momentum":
        state[0].mul_(0.9).add_(gradient)
        parameters -= 0.1 * state[0]
    else:
        m, v = state
        parameters -= 0.1 * 0.01 * parameters
        m.mul_(0.9).add_(gradient, alpha=0.1)
        v.mul_(0.999).addcmul_(gradient, gradient, value=0.001)
        parameters -= 0.1 * (m / (1 - 0.9**t)) / ((v / (1 - 0.999**t)).sqrt() + 1e-8)


def own(comm, tensor):
    return tensor.tensor_split(comm.size)[comm.rank].clone()


def gathered(comm, shard, length):
    return collectives.all_gather(comm, shard, lengths=even_lengths(length, comm.size))


@wrong("zero1", "elements of the optimizer's state; its shard has")
def zero1_plain_optimizer_on_every_rank(comm, parameters, gradients, optimizer):
    parameters, state = parameters.clone(), []
    for t, gradient in enumerate(gradients, 1):
        update(optimizer, parameters, collectives.all_reduce(comm, gradient, "mean"), state, t)
    return parameters, state


@wrong("zero1", "a rank needs its shard only")
def zero1_whole_state_cut_at_the_end(comm, parameters, gradients, optimizer):
    """Returns the right state, and has kept all of it all the time."""
    parameters, state = parameters.clone(), []
    for t, gradient in enumerate(gradients, 1):
        update(optimizer, parameters, collectives.all_reduce(comm, gradient, "mean"), state, t)
    return parameters, [own(comm, whole) for whole in state]


@wrong("zero1", "An all-reduce is both of them already")
def zero1_by_all_reduce(comm, parameters, gradients, optimizer):
    shard, state = own(comm, parameters), []
    for t, gradient in enumerate(gradients, 1):
        update(optimizer, shard, own(comm, collectives.all_reduce(comm, gradient, "mean")), state, t)
        parameters = gathered(comm, shard, len(parameters))
    return parameters, state


@wrong("zero1", "training with the sum of the gradients")
def zero1_with_sums(comm, parameters, gradients, optimizer):
    shard, state = own(comm, parameters), []
    for t, gradient in enumerate(gradients, 1):
        update(optimizer, shard, collectives.reduce_scatter(comm, gradient, "sum"), state, t)
        parameters = gathered(comm, shard, len(parameters))
    return parameters, state


@wrong("zero1", "divided by 4 once too often")
def zero1_averaged_twice(comm, parameters, gradients, optimizer):
    shard, state = own(comm, parameters), []
    for t, gradient in enumerate(gradients, 1):
        update(optimizer, shard, collectives.reduce_scatter(comm, gradient, "mean") / comm.size, state, t)
        parameters = gathered(comm, shard, len(parameters))
    return parameters, state


@wrong("zero1", "with its own gradients alone")
def zero1_without_reducing(comm, parameters, gradients, optimizer):
    shard, state = own(comm, parameters), []
    for t, gradient in enumerate(gradients, 1):
        update(optimizer, shard, own(comm, gradient), state, t)
        parameters = gathered(comm, shard, len(parameters))
    return parameters, state


@wrong("zero1", "That is this rank's shard only")
def zero1_never_gathered(comm, parameters, gradients, optimizer):
    shard, state = own(comm, parameters), []
    for t, gradient in enumerate(gradients, 1):
        update(optimizer, shard, collectives.reduce_scatter(comm, gradient, "mean"), state, t)
    return shard, state


@wrong("zero1", "Only the own shard is new")
def zero1_others_left_old(comm, parameters, gradients, optimizer):
    parameters, state = parameters.clone(), []
    shard = parameters.tensor_split(comm.size)[comm.rank]
    for t, gradient in enumerate(gradients, 1):
        update(optimizer, shard, collectives.reduce_scatter(comm, gradient, "mean"), state, t)
    return parameters, state


@wrong("zero1", "begins anew in every step")
def zero1_forgetful(comm, parameters, gradients, optimizer):
    shard = own(comm, parameters)
    for gradient in gradients:
        state = []
        update(optimizer, shard, collectives.reduce_scatter(comm, gradient, "mean"), state, 1)
        parameters = gathered(comm, shard, len(parameters))
    return parameters, state


@wrong("zero1", "Steps are counted from 1")
def zero1_counted_from_zero(comm, parameters, gradients, optimizer):
    shard, state = own(comm, parameters), []
    for t, gradient in enumerate(gradients):
        update(optimizer, shard, collectives.reduce_scatter(comm, gradient, "mean"), state, t)
        parameters = gathered(comm, shard, len(parameters))
    return parameters, state


@wrong("zero1", "all_gather takes the lengths of all ranks' shards")
def zero1_of_equal_shards(comm, parameters, gradients, optimizer):
    shard, state = own(comm, parameters), []
    for t, gradient in enumerate(gradients, 1):
        update(optimizer, shard, collectives.reduce_scatter(comm, gradient, "mean"), state, t)
        parameters = collectives.all_gather(comm, shard)
    return parameters, state


@wrong("zero1", "input of rank 0 was changed")
def zero1_in_the_argument(comm, parameters, gradients, optimizer):
    shard, state = parameters.tensor_split(comm.size)[comm.rank], []
    for t, gradient in enumerate(gradients, 1):
        update(optimizer, shard, collectives.reduce_scatter(comm, gradient, "mean"), state, t)
        parameters = gathered(comm, shard, len(parameters))
    return parameters, state


@wrong("zero1", "not only after the last step")
def zero1_gathered_at_the_end(comm, parameters, gradients, optimizer):
    """The gradients are given, so nobody looks at the parameters in between."""
    shard, state = own(comm, parameters), []
    for t, gradient in enumerate(gradients, 1):
        update(optimizer, shard, collectives.reduce_scatter(comm, gradient, "mean"), state, t)
    return gathered(comm, shard, len(parameters)), state


@wrong("zero1", "expected a list of tensors, what the optimizer remembers")
def zero1_with_a_dict_of_state(comm, parameters, gradients, optimizer):
    shard, state = own(comm, parameters), []
    for t, gradient in enumerate(gradients, 1):
        update(optimizer, shard, collectives.reduce_scatter(comm, gradient, "mean"), state, t)
        parameters = gathered(comm, shard, len(parameters))
    return parameters, dict(enumerate(state))


@wrong("zero1", "expected the pair (parameters, state)")
def zero1_without_state(comm, parameters, gradients, optimizer):
    return zero1_by_all_reduce(comm, parameters, gradients, optimizer)[0]


# -- 5. stage 2 -------------------------------------------------------------------------------------------------------


def whole_gradients(weights, inputs, gradient):
    found = []
    for W, x in zip(reversed(weights), reversed(inputs), strict=True):
        found.insert(0, (x.T @ gradient).flatten())
        gradient = gradient @ W.T
    return found


@wrong("zero2_backward", "tensors as large as a layer's whole gradient")
def zero2_everything_first(comm, weights, inputs, gradient):
    return [collectives.reduce_scatter(comm, whole, "sum") for whole in whole_gradients(weights, inputs, gradient)]


@wrong("zero2_backward", "tensors as large as a layer's whole gradient")
def zero2_views_of_whole_gradients(comm, weights, inputs, gradient):
    """The shards are views, and keep all that they are views of."""
    shards = []
    for whole in whole_gradients(weights, inputs, gradient)[::-1]:
        whole.tensor_split(comm.size)[comm.rank].copy_(collectives.reduce_scatter(comm, whole, "sum"))
        shards.insert(0, whole.tensor_split(comm.size)[comm.rank])
    return shards


@wrong("zero2_backward", "reduce_scatter gives each rank its own part")
def zero2_all_reduced(comm, weights, inputs, gradient):
    return [collectives.all_reduce(comm, whole, "sum") for whole in whole_gradients(weights, inputs, gradient)]


@wrong("zero2_backward", "expected at most")
def zero2_all_reduced_and_cut(comm, weights, inputs, gradient):
    shards = []
    for W, x in zip(reversed(weights), reversed(inputs), strict=True):
        shards.insert(0, own(comm, collectives.all_reduce(comm, (x.T @ gradient).flatten(), "sum")))
        gradient = gradient @ W.T
    return shards


def zero2(comm, weights, inputs, gradient, op="sum", turn=False, reverse=False):
    """The right answer, but for what is given."""
    shards = []
    for W, x in zip(reversed(weights), reversed(inputs), strict=True):
        found = x.T @ gradient
        shards.insert(0, collectives.reduce_scatter(comm, (found.T if turn else found).flatten(), op))
        gradient = gradient @ W.T
    return shards[::-1] if reverse else shards


@wrong("zero2_backward", "divided by the number of all samples already")
def zero2_of_means(comm, weights, inputs, gradient):
    return zero2(comm, weights, inputs, gradient, op="mean")


@wrong("zero2_backward", "gradients of the transposed weights")
def zero2_transposed(comm, weights, inputs, gradient):
    return zero2(comm, weights, inputs, gradient, turn=True)


@wrong("zero2_backward", "The list is upside down")
def zero2_upside_down(comm, weights, inputs, gradient):
    return zero2(comm, weights, inputs, gradient, reverse=True)


@wrong("zero2_backward", "of this rank's samples alone")
def zero2_alone(comm, weights, inputs, gradient):
    return [own(comm, whole) for whole in whole_gradients(weights, inputs, gradient)]


@wrong("zero2_backward", "expected 8, one shard a layer")
def zero2_in_one_piece(comm, weights, inputs, gradient):
    return [collectives.reduce_scatter(comm, torch.cat(whole_gradients(weights, inputs, gradient)), "sum")]


@wrong("zero2_backward", "x_l has the shape (rows, d_l)")
def zero2_weights_not_transposed(comm, weights, inputs, gradient):
    shards = []
    for W, x in zip(reversed(weights), reversed(inputs), strict=True):
        shards.insert(0, collectives.reduce_scatter(comm, (x.T @ gradient).flatten(), "sum"))
        gradient = gradient @ torch.cat([W, W], 1)
    return shards


# -- 6. stage 3 -------------------------------------------------------------------------------------------------------


def layer_of(comm, shards, widths, layer):
    d_in, d_out = widths[layer:layer + 2]
    return gathered(comm, shards[layer], d_in * d_out).view(d_in, d_out)


@wrong("zero3_step", "tensors as large as a whole layer")
def zero3_gathers_everything_first(comm, shards, widths, x, target, N, lr):
    weights = [layer_of(comm, shards, widths, layer) for layer in range(len(shards))]
    inputs = [x]
    for W in weights:
        inputs.append(inputs[-1] @ W)
    gradient, new = (inputs.pop() - target) / N, []
    for shard, W, x in zip(shards[::-1], weights[::-1], inputs[::-1], strict=True):
        new.insert(0, shard - lr * collectives.reduce_scatter(comm, (x.T @ gradient).flatten(), "sum"))
        gradient = gradient @ W.T
    return new


@wrong("zero3_step", "tensors as large as a whole layer")
def zero3_by_autograd(comm, shards, widths, x, target, N, lr):
    """Autograd keeps what backward needs, and that is every layer."""
    with torch.enable_grad():
        weights = [layer_of(comm, shards, widths, layer).requires_grad_() for layer in range(len(shards))]
        for W in weights:
            x = x @ W
        gradients = torch.autograd.grad((x - target).pow(2).sum() / 2 / N, weights)
    return [shard - lr * collectives.reduce_scatter(comm, found.flatten(), "sum")
            for shard, found in zip(shards, gradients, strict=True)]


def zero3(comm, shards, widths, x, target, N, lr, op="sum", rows=None, reverse=False):
    """The right answer, but for what is given."""
    inputs, new = [x], []
    for layer in range(len(shards)):
        inputs.append(inputs[-1] @ layer_of(comm, shards, widths, layer))
    gradient = (inputs.pop() - target) / (rows or N)
    for layer in reversed(range(len(shards))):
        new.insert(0, shards[layer] - lr * collectives.reduce_scatter(comm, (inputs[layer].T @ gradient).flatten(), op))
        gradient = gradient @ layer_of(comm, shards, widths, layer).T
    return new[::-1] if reverse else new


@wrong("zero3_step", "a view, such as a slice, keeps all")
def zero3_returns_views_of_whole_layers(comm, shards, widths, x, target, N, lr):
    inputs, new = [x], []
    for layer in range(len(shards)):
        inputs.append(inputs[-1] @ layer_of(comm, shards, widths, layer))
    gradient = (inputs.pop() - target) / N
    for layer in reversed(range(len(shards))):
        found = collectives.reduce_scatter(comm, (inputs[layer].T @ gradient).flatten(), "sum")
        W = layer_of(comm, shards, widths, layer)
        gradient = gradient @ W.T
        new.insert(0, W.flatten().tensor_split(comm.size)[comm.rank].sub_(lr * found))
    return new


@wrong("zero3_step", "That is a step with 1/4 of the gradient")
def zero3_of_means(comm, shards, widths, x, target, N, lr):
    return zero3(comm, shards, widths, x, target, N, lr, op="mean")


@wrong("zero3_step", "with the sum of the ranks' means")
def zero3_by_own_rows(comm, shards, widths, x, target, N, lr):
    return zero3(comm, shards, widths, x, target, N, lr, rows=len(x))


@wrong("zero3_step", "with the mean of the ranks' means")
def zero3_mean_of_means(comm, shards, widths, x, target, N, lr):
    return zero3(comm, shards, widths, x, target, N, lr, op="mean", rows=len(x))


@wrong("zero3_step", "times the gradient: the loss is a mean")
def zero3_of_the_sum(comm, shards, widths, x, target, N, lr):
    return zero3(comm, shards, widths, x, target, N, lr, rows=1)


@wrong("zero3_step", "uphill")
def zero3_uphill(comm, shards, widths, x, target, N, lr):
    return zero3(comm, shards, widths, x, target, N, -lr)


@wrong("zero3_step", "Is `lr` used?")
def zero3_without_lr(comm, shards, widths, x, target, N, lr):
    return zero3(comm, shards, widths, x, target, N, 1.0)


@wrong("zero3_step", "of this rank's samples alone")
def zero3_alone(comm, shards, widths, x, target, N, lr):
    inputs, new = [x], []
    for layer in range(len(shards)):
        inputs.append(inputs[-1] @ layer_of(comm, shards, widths, layer))
    gradient = (inputs.pop() - target) / N
    for layer in reversed(range(len(shards))):
        new.insert(0, shards[layer] - lr * own(comm, (inputs[layer].T @ gradient).flatten()))
        gradient = gradient @ layer_of(comm, shards, widths, layer).T
    return new


@wrong("zero3_step", "nothing else from step to step")
def zero3_returns_whole_layers(comm, shards, widths, x, target, N, lr):
    new = zero3(comm, shards, widths, x, target, N, lr)
    return [gathered(comm, shard, widths[layer] * widths[layer + 1]) for layer, shard in enumerate(new)]


@wrong("zero3_step", "expected at most")
def zero3_with_all_reduce(comm, shards, widths, x, target, N, lr):
    inputs, new = [x], []
    for layer in range(len(shards)):
        inputs.append(inputs[-1] @ layer_of(comm, shards, widths, layer))
    gradient = (inputs.pop() - target) / N
    for layer in reversed(range(len(shards))):
        found = collectives.all_reduce(comm, (inputs[layer].T @ gradient).flatten(), "sum")
        new.insert(0, shards[layer] - lr * own(comm, found))
        gradient = gradient @ layer_of(comm, shards, widths, layer).T
    return new


@wrong("zero3_step", "makes it a matrix")
def zero3_flat(comm, shards, widths, x, target, N, lr):
    for layer, shard in enumerate(shards):
        x = x @ gathered(comm, shard, widths[layer] * widths[layer + 1])
    return x


@wrong("zero3_step", "all_gather takes the lengths of all ranks' parts")
def zero3_of_equal_parts(comm, shards, widths, x, target, N, lr):
    for layer, shard in enumerate(shards):
        x = x @ collectives.all_gather(comm, shard).view(widths[layer], widths[layer + 1])
    return x


# -- 7. clipping ------------------------------------------------------------------------------------------------------


def scaled(shards, norm, max_norm):
    return [min(1.0, max_norm / (norm + 1e-6)) * shard for shard in shards], norm


def squares(shards):
    return sum((shard**2).sum() for shard in shards).reshape(1)


@wrong("clip", "1e-6 is left out of the denominator")
def clip_without_a_guard_against_zero(comm, shards, max_norm):
    norm = collectives.all_reduce(comm, squares(shards), "sum").sqrt().item()
    return [min(1.0, max_norm / norm) * shard for shard in shards], norm


@wrong("clip", "1e-6 belongs in the denominator")
def clip_with_the_guard_behind_the_quotient(comm, shards, max_norm):
    norm = collectives.all_reduce(comm, squares(shards), "sum").sqrt().item()
    return [min(1.0, max_norm / norm + 1e-6) * shard for shard in shards], norm


@wrong("clip", "a mean is taken in place of a sum")
def clip_by_the_mean_of_the_elements(comm, shards, max_norm):
    mean = torch.cat(shards).square().mean().reshape(1)
    return scaled(shards, collectives.all_reduce(comm, mean, "sum").sqrt().item(), max_norm)


@wrong("clip", "a mean is taken in place of a sum")
def clip_by_the_mean_of_each_layer(comm, shards, max_norm):
    means = sum(shard.square().mean() for shard in shards).reshape(1)
    return scaled(shards, collectives.all_reduce(comm, means, "sum").sqrt().item(), max_norm)


@wrong("clip", "then reduce once")
def clip_by_a_number_of_each_layer(comm, shards, max_norm):
    each = torch.stack([shard.square().sum() for shard in shards])
    return scaled(shards, collectives.all_reduce(comm, each, "sum").sum().sqrt().item(), max_norm)


@wrong("clip", "of this rank's shards alone")
def clip_alone(comm, shards, max_norm):
    return scaled(shards, squares(shards).sqrt().item(), max_norm)


@wrong("clip", "Squares can be added up, norms can't")
def clip_by_the_sum_of_norms(comm, shards, max_norm):
    return scaled(shards, collectives.all_reduce(comm, squares(shards).sqrt(), "sum").item(), max_norm)


@wrong("clip", "the root of the mean of the ranks' squares")
def clip_by_the_mean_of_squares(comm, shards, max_norm):
    return scaled(shards, collectives.all_reduce(comm, squares(shards), "mean").sqrt().item(), max_norm)


@wrong("clip", "the largest of the ranks' norms")
def clip_by_the_largest(comm, shards, max_norm):
    return scaled(shards, collectives.all_reduce(comm, squares(shards), "max").sqrt().item(), max_norm)


@wrong("clip", "the root is missing")
def clip_by_squares(comm, shards, max_norm):
    return scaled(shards, collectives.all_reduce(comm, squares(shards), "sum").item(), max_norm)


@wrong("clip", "A gradient that is small enough stays as it is")
def clip_always(comm, shards, max_norm):
    norm = collectives.all_reduce(comm, squares(shards), "sum").sqrt().item()
    return [max_norm / (norm + 1e-6) * shard for shard in shards], norm


@wrong("clip", "The shards are as they came in")
def clip_never(comm, shards, max_norm):
    return shards, collectives.all_reduce(comm, squares(shards), "sum").sqrt().item()


@wrong("clip", "The gradients stay where they are")
def clip_gathered(comm, shards, max_norm):
    mine = torch.cat(shards)
    lengths = collectives.all_gather(comm, torch.tensor([len(mine)])).tolist()
    return scaled(shards, collectives.all_gather(comm, mine, lengths=lengths).norm().item(), max_norm)


@wrong("clip", "then reduce once")
def clip_layer_by_layer(comm, shards, max_norm):
    total = sum(collectives.all_reduce(comm, squares([shard]), "sum") for shard in shards)
    return scaled(shards, total.sqrt().item(), max_norm)


@wrong("clip", "squares.reshape(1)")
def clip_of_a_scalar(comm, shards, max_norm):
    return scaled(shards, collectives.reduce_scatter(comm, squares(shards)[0], "sum").sqrt().item(), max_norm)


@wrong("clip", "input of rank 0 was changed")
def clip_in_place(comm, shards, max_norm):
    norm = collectives.all_reduce(comm, squares(shards), "sum").sqrt().item()
    return [shard.mul_(min(1.0, max_norm / (norm + 1e-6))) for shard in shards], norm


@wrong("clip", "expected the pair (shards, norm)")
def clip_without_norm(comm, shards, max_norm):
    norm = collectives.all_reduce(comm, squares(shards), "sum").sqrt().item()
    return [min(1.0, max_norm / (norm + 1e-6)) * shard for shard in shards]
