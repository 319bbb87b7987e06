"""Known-wrong solutions of the lab `memory`."""

from __future__ import annotations

import math

import numpy as np
import torch
from known_wrong import KnownWrong

from mlsyslab import memory, model
from mlsyslab.check.memory.counts import activation_bytes as right_bytes
from mlsyslab.check.memory.lifetimes import buffers, total

wrong = KnownWrong()

# -- 1. parameters ----------------------------------------------------------------------------------------------------


def count(L, h, V, s, tied, *, linear=lambda i, o: i * o + o, norm=2, norms=2, last=True, qkv=3, positions=True):
    """The right answer, but for what is given."""
    layer = norms * norm * h + linear(h, qkv * h) + linear(h, h) + linear(h, 4 * h) + linear(4 * h, h)
    return V * h + positions * s * h + L * layer + last * norm * h + (0 if tied else V * h)


@wrong("parameters", "biases of the linear layers")
def parameters_without_biases(*shape):
    return count(*shape, linear=lambda i, o: i * o)


@wrong("parameters", "A layer norm has a gain and a bias")
def parameters_with_gains_only(*shape):
    return count(*shape, norm=1)


@wrong("parameters", "two layer norms in a layer")
def parameters_with_one_norm(*shape):
    return count(*shape, norms=1)


@wrong("parameters", "The layer norms are left out")
def parameters_without_norms(*shape):
    return count(*shape, norm=0)


@wrong("parameters", "The last layer norm")
def parameters_without_the_last_norm(*shape):
    return count(*shape, last=False)


@wrong("parameters", "Queries, keys and values each have a matrix")
def parameters_of_one_projection(*shape):
    return count(*shape, qkv=1)


@wrong("parameters", "embedding of the positions")
def parameters_without_positions(*shape):
    return count(*shape, positions=False)


@wrong("parameters", "Is `tied` used the right way")
def parameters_always_tied(L, h, V, s, tied):
    return count(L, h, V, s, True)


@wrong("parameters", "12 L h² and the embeddings")
def parameters_by_rule_of_thumb(L, h, V, s, tied):
    return 12 * L * h * h + (V + s) * h + (0 if tied else V * h)


@wrong("parameters", "is `L` used")
def parameters_of_one_layer(L, h, V, s, tied):
    return count(1, h, V, s, tied)


@wrong("parameters", "expected a number of parameters")
def parameters_as_text(*shape):
    return f"{count(*shape) / 1e9:.1f}B"


@wrong("parameters", "in this exercise you write that yourself")
def parameters_of_the_library(L, h, V, s, tied):
    return model.parameters(model.Config(L, h, 1, V, s, tied=tied))


# -- 2. bytes a parameter ---------------------------------------------------------------------------------------------


def state(n, precision, optimizer, *, copy=2, master=4, mixed_number=4, numbers=None, gradient=None, in_state=False,
          where=("mixed",)):
    """The right answer, but for what is given."""
    number = {"fp32": 4, "autocast": 4, "mixed": mixed_number, "bf16": 2}[precision]
    weight = {"fp32": 4, "autocast": 4 + copy, "mixed": 2, "bf16": 2}[precision]
    of = {"fp32": 4, "autocast": 4, "mixed": 2, "bf16": 2} | (gradient or {})
    remembered = (numbers or {"adam": 2, "momentum": 1, "sgd": 0})[optimizer]
    masters = master if precision in where else 0
    return {"weights": n * weight, "gradients": n * of[precision],
            "optimizer": n * (masters + remembered * number + (of[precision] if in_state else 0))}


@wrong("state_bytes", "The master copy of the weights is left out")
def state_without_master(*given):
    return state(*given, master=0)


@wrong("state_bytes", "Autocast keeps a 16-bit copy")
def state_without_the_copy(*given):
    return state(*given, copy=0)


@wrong("state_bytes", "In mixed precision the optimizer works in 32 bits")
def state_of_16_bit_moments(*given):
    return state(*given, mixed_number=2)


@wrong("state_bytes", "A master copy is there in mixed precision only")
def state_with_masters_everywhere(*given):
    return state(*given, where=("mixed", "bf16", "fp32", "autocast"))


@wrong("state_bytes", "That is Adam's")
def state_of_adam_always(*given):
    return state(*given, numbers={"adam": 2, "momentum": 2, "sgd": 2})


@wrong("state_bytes", "Adam remembers two numbers")
def state_of_one_moment(*given):
    return state(*given, numbers={"adam": 1, "momentum": 1, "sgd": 0})


@wrong("state_bytes", "The gradient is counted with the optimizer")
def state_with_the_gradient(*given):
    return state(*given, in_state=True)


@wrong("state_bytes", "Under autocast the gradients have the type of the weights")
def state_of_16_bit_gradients(*given):
    return state(*given, gradient={"autocast": 2})


@wrong("state_bytes", "Bits, not bytes")
def state_in_bits(*given):
    return {part: 8 * nbytes for part, nbytes in state(*given).items()}


@wrong("state_bytes", "expected a dict with the keys")
def state_in_all(*given):
    return sum(state(*given).values())


@wrong("state_bytes", "in this exercise you write that yourself")
def state_of_the_library(n, precision, optimizer):
    return memory.state_bytes(n, precision)


# -- 3. activations ---------------------------------------------------------------------------------------------------


@wrong("activation_bytes", "Is `item` used")
def activations_by_the_paper(s, b, h, a, item, dropout, recompute):
    if recompute == "full":
        return s * b * h * item
    return s * b * h * 34 + (5 * a * s * s * b if recompute is None else 0)


@wrong("activation_bytes", "A mask has one byte")
def activations_with_wide_masks(s, b, h, a, item, dropout, recompute):
    right = right_bytes(s, b, h, a, item, dropout, recompute)
    if not dropout or recompute == "full":
        return right
    return right + (item - 1) * (2 * s * b * h + (a * s * s * b if recompute is None else 0))


@wrong("activation_bytes", "Is `recompute` used")
def activations_of_everything(s, b, h, a, item, dropout, recompute):
    return right_bytes(s, b, h, a, item, dropout, None)


@wrong("activation_bytes", "Without dropout there are no masks")
def activations_with_masks_always(s, b, h, a, item, dropout, recompute):
    return right_bytes(s, b, h, a, item, True, recompute)


@wrong("activation_bytes", "Is dropout left out")
def activations_without_dropout(s, b, h, a, item, dropout, recompute):
    return right_bytes(s, b, h, a, item, False, recompute)


@wrong("activation_bytes", "Is `item` used")
def activations_in_16_bits(s, b, h, a, item, dropout, recompute):
    return right_bytes(s, b, h, a, 2, dropout, recompute)


@wrong("activation_bytes", "One of the s × s matrices is missing")
def activations_with_one_matrix(s, b, h, a, item, dropout, recompute):
    less = a * s * s * b * item if recompute is None and dropout else 0
    return right_bytes(s, b, h, a, item, dropout, recompute) - less


@wrong("activation_bytes", "an s × s matrix for each head")
def activations_of_one_head(s, b, h, a, item, dropout, recompute):
    return right_bytes(s, b, h, 1, item, dropout, recompute)


@wrong("activation_bytes", "4 h wide each")
def activations_of_a_narrow_mlp(s, b, h, a, item, dropout, recompute):
    return right_bytes(s, b, h, a, item, dropout, recompute) - (0 if recompute == "full" else 6 * s * b * h * item)


@wrong("activation_bytes", "The norm's output is kept once")
def activations_with_three_inputs(s, b, h, a, item, dropout, recompute):
    return right_bytes(s, b, h, a, item, dropout, recompute) + (0 if recompute == "full" else 2 * s * b * h * item)


# -- 4. lifetimes -----------------------------------------------------------------------------------------------------


def held(weights, activations, state, training, **other):
    phases = 2 * len(weights) + 1 if training else len(weights)
    return total(buffers(weights, activations, state, training, **(other if training else {})), phases)


@wrong("held", "let go one by one in backward")
def held_through_backward(*given):
    return held(*given, longer=10**6)


@wrong("held", "reads x_{l+1} too")
def held_without_the_output(*given):
    return held(*given, needs_output=False)


@wrong("held", "the gradients of x_l and x_{l+1} are there")
def held_without_activation_gradients(*given):
    return held(*given, of_activations=0)


@wrong("held", "one is read, the other made")
def held_with_one_activation_gradient(*given):
    return held(*given, of_activations=1)


@wrong("held", "from the backward of layer l on, not before")
def held_with_gradients_from_the_start(*given):
    return held(*given, gradients_from="start")


@wrong("held", "The update reads the gradients")
def held_with_gradients_gone_before_the_update(*given):
    return held(*given, gradients_to=1)


@wrong("held", "Is `state` used")
def held_without_state(weights, activations, state, training):
    return held(weights, activations, 0, training)


@wrong("held", "stays until the update")
def held_with_one_gradient_at_a_time(weights, activations, state, training):
    right, L = held(weights, activations, state, training), len(weights)
    if not training:
        return right
    return right[:L] + [right[L + i] - sum(weights[L - i:]) for i in range(L)] + [right[-1] - sum(weights)]


@wrong("held", "In inference no activation is needed twice")
def held_in_inference_as_in_training(weights, activations, state, training):
    if training:
        return held(weights, activations, state, training)
    return [sum(weights) + sum(activations[:l + 2]) for l in range(len(weights))]


@wrong("held", "reads its input")
def held_in_inference_without_input(weights, activations, state, training):
    if training:
        return held(weights, activations, state, training)
    return [sum(weights) + activations[l + 1] for l in range(len(weights))]


@wrong("held", "L forward, L backward, and the update")
def held_without_the_update(weights, activations, state, training):
    return held(weights, activations, state, training)[:2 * len(weights)]


@wrong("held", "expected a list of numbers")
def held_at_the_peak(*given):
    return max(held(*given))


# -- 5. the best spacing ----------------------------------------------------------------------------------------------


def best(L, cost, order=None):
    return min(order or range(L, 0, -1), key=cost)


@wrong("best_spacing", "The square root of L alone")
def spacing_by_the_root_of_layers(L, boundary, inside):
    return round(math.sqrt(L))


@wrong("best_spacing", "The root is where a smooth curve is least")
def spacing_by_the_root(L, boundary, inside):
    return max(1, round(math.sqrt(L * boundary / inside)))


@wrong("best_spacing", "take the largest k")
def spacing_of_the_smallest(L, boundary, inside):
    return best(L, lambda k: math.ceil(L / k) * boundary + k * inside, range(1, L + 1))


@wrong("best_spacing", "not L // k")
def spacing_of_whole_segments(L, boundary, inside):
    return best(L, lambda k: L // k * boundary + k * inside)


@wrong("best_spacing", "There is a whole number of segments")
def spacing_of_a_smooth_curve(L, boundary, inside):
    return best(L, lambda k: L / k * boundary + k * inside)


@wrong("best_spacing", "Boundary and inside are exchanged")
def spacing_exchanged(L, boundary, inside):
    return best(L, lambda k: math.ceil(L / k) * inside + k * boundary)


@wrong("best_spacing", "Are `boundary` and `inside` used")
def spacing_of_equal_sizes(L, boundary, inside):
    return best(L, lambda k: math.ceil(L / k) + k)


@wrong("best_spacing", "the number of segments; k is their length")
def spacing_as_segments(L, boundary, inside):
    return math.ceil(L / best(L, lambda k: math.ceil(L / k) * boundary + k * inside))


@wrong("best_spacing", "in this exercise you write that yourself")
def spacing_of_the_library(L, boundary, inside):
    return memory.best_spacing(L, boundary, inside)


# -- 6. checkpointing -------------------------------------------------------------------------------------------------


def forward(W, x):
    return torch.tanh(x @ W)


def backward(W, x, y, gradient):
    inner = gradient * (1 - y * y)
    return inner @ W.T, x.T @ inner


def through(segment, x):
    xs = [x]
    for W in segment:
        xs.append(forward(W, xs[-1]))
    return xs


def back(segment, xs, gradient):
    found = []
    for i in reversed(range(len(segment))):
        gradient, of_weight = backward(segment[i], xs[i], xs[i + 1], gradient)
        found.insert(0, of_weight)
    return gradient, found


def segments_of(weights, k):
    return [weights[l:l + k] for l in range(0, len(weights), k)]


def inputs_of(segments, x):
    inputs = []
    for segment in segments:
        inputs.append(x)
        for W in segment:
            x = forward(W, x)
    return inputs


@wrong("checkpointed", "hardly anything was computed a second time")
def checkpointed_nothing(weights, x, gradient, k):
    return back(weights, through(weights, x), gradient)[1]


@wrong("checkpointed", "keep no x but the checkpoints")
def checkpointed_and_kept(weights, x, gradient, k):
    segments, everything = segments_of(weights, k), through(weights, x)
    gradients = []
    for i in reversed(range(len(segments))):
        gradient, found = back(segments[i], through(segments[i], everything[i * k]), gradient)
        gradients = found + gradients
    return gradients


@wrong("checkpointed", "keep no x but the checkpoints")
def checkpointed_with_insides_kept(weights, x, gradient, k):
    segments = segments_of(weights, k)
    insides = [through(segment, start) for segment, start in zip(segments, inputs_of(segments, x), strict=True)]
    gradients = []
    for segment, xs in zip(reversed(segments), reversed(insides), strict=True):
        gradient, found = back(segment, xs, gradient)
        gradients = found + gradients
    return gradients


@wrong("checkpointed", "keep no x but the checkpoints")
def checkpointed_every_layer(weights, x, gradient, k):
    segments = segments_of(weights, 1)
    inputs, gradients = inputs_of(segments, x), []
    for segment, start in zip(reversed(segments), reversed(inputs), strict=True):
        gradient, found = back(segment, through(segment, start), gradient)
        gradients = found + gradients
    return gradients


def checkpointed(weights, x, gradient, k):
    """The right way."""
    segments, gradients = segments_of(weights, k), []
    inputs = inputs_of(segments, x)
    for segment in reversed(segments):
        gradient, found = back(segment, through(segment, inputs.pop()), gradient)
        gradients = found + gradients
    return gradients


@wrong("checkpointed", "keep no x but the checkpoints, one every 2 layers")
def checkpointed_too_often(weights, x, gradient, k):
    return checkpointed(weights, x, gradient, max(1, k - 1))


@wrong("checkpointed", "Is the distance of the checkpoints the `k` that is given?")
def checkpointed_too_seldom(weights, x, gradient, k):
    return checkpointed(weights, x, gradient, min(len(weights), k + 1))


@wrong("checkpointed", "Is the distance of the checkpoints the `k` that is given?")
def checkpointed_every_four_layers(weights, x, gradient, k):
    return checkpointed(weights, x, gradient, min(len(weights), 4))


@wrong("checkpointed", "Is the distance of the checkpoints the `k` that is given?")
def checkpointed_by_the_root(weights, x, gradient, k):
    return checkpointed(weights, x, gradient, round(math.sqrt(len(weights))))


@wrong("checkpointed", "Is the distance of the checkpoints the `k` that is given?")
def checkpointed_every_few_layers(weights, x, gradient, k):
    return checkpointed(weights, x, gradient, min(k, 12))


@wrong("checkpointed", "what else holds is not seen")
def checkpointed_nothing_in_numpy(weights, x, gradient, k):
    xs, weights, found = [x.numpy()], [W.numpy() for W in weights], []
    for W in weights:
        xs.append(np.tanh(xs[-1] @ W))
    g = gradient.numpy()
    for W in reversed(weights):
        inner = g * (1 - xs.pop()**2)
        found.insert(0, torch.from_numpy(xs[-1].T @ inner))
        g = inner @ W.T
    return found


@wrong("checkpointed", "not at x_0")
def checkpointed_from_the_start(weights, x, gradient, k):
    gradients = []
    for layer in reversed(range(len(weights))):
        start = x
        for W in weights[:layer]:
            start = forward(W, start)
        gradient, of_weight = backward(weights[layer], start, forward(weights[layer], start), gradient)
        gradients.insert(0, of_weight)
    return gradients


@wrong("checkpointed", "go through a segment once")
def checkpointed_again_for_each_layer(weights, x, gradient, k):
    segments = segments_of(weights, k)
    inputs, gradients = inputs_of(segments, x), []
    for segment, start in zip(reversed(segments), reversed(inputs), strict=True):
        for i in reversed(range(len(segment))):
            y = start
            for W in segment[:i]:
                y = forward(W, y)
            gradient, of_weight = backward(segment[i], y, forward(segment[i], y), gradient)
            gradients.insert(0, of_weight)
    return gradients


@wrong("checkpointed", "the gradient of the segment's input")
def checkpointed_without_handing_on(weights, x, gradient, k):
    segments = segments_of(weights, k)
    gradients = []
    for segment, start in zip(reversed(segments), reversed(inputs_of(segments, x)), strict=True):
        gradients = back(segment, through(segment, start), gradient)[1] + gradients
    return gradients


@wrong("checkpointed", "the last segment may be shorter")
def checkpointed_whole_segments_only(weights, x, gradient, k):
    whole = weights[:len(weights) // k * k]
    segments, gradients = segments_of(whole, k), []
    for segment, start in zip(reversed(segments), reversed(inputs_of(segments, x)), strict=True):
        gradient, found = back(segment, through(segment, start), gradient)
        gradients = found + gradients
    return gradients


@wrong("checkpointed", "come in reverse")
def checkpointed_in_reverse(weights, x, gradient, k):
    segments, gradients = segments_of(weights, k), []
    for segment, start in zip(reversed(segments), reversed(inputs_of(segments, x)), strict=True):
        gradient, found = back(segment, through(segment, start), gradient)
        gradients += found[::-1]
    return gradients


@wrong("checkpointed", "in this exercise you write what it does")
def checkpointed_by_autograd(weights, x, gradient, k):
    found = [W.clone().requires_grad_() for W in weights]
    through(found, x)[-1].backward(gradient)
    return [W.grad for W in found]


# -- 7. accumulation --------------------------------------------------------------------------------------------------


def mean_gradient(W, x, targets):
    counts = targets >= 0
    p = torch.softmax(x @ W, dim=1)
    p[counts, targets[counts]] -= 1
    p[~counts] = 0
    return x.T @ p / counts.sum()


def accumulate(W, x, targets, parts, share):
    """The parts that have a mean, each times share(its rows, its rows that count)."""
    total = torch.zeros_like(W)
    for some, their in zip(x.tensor_split(parts), targets.tensor_split(parts), strict=True):
        count = int((their >= 0).sum())
        if count:
            total += mean_gradient(W, some, their) * share(len(some), count)
    return total


@wrong("accumulated", "the sum of the parts' means")
def accumulated_unscaled(W, x, targets, parts):
    return accumulate(W, x, targets, parts, lambda rows, count: 1)


@wrong("accumulated", "the mean of the parts' means")
def accumulated_by_parts(W, x, targets, parts):
    return accumulate(W, x, targets, parts, lambda rows, count: 1 / parts)


@wrong("accumulated", "weighted by their rows")
def accumulated_by_rows(W, x, targets, parts):
    return accumulate(W, x, targets, parts, lambda rows, count: rows / len(x))


@wrong("accumulated", "divided by all rows")
def accumulated_over_all_rows(W, x, targets, parts):
    return accumulate(W, x, targets, parts, lambda rows, count: count / len(x))


@wrong("accumulated", "divided by the number of parts once too often")
def accumulated_scaled_twice(W, x, targets, parts):
    n = int((targets >= 0).sum())
    return accumulate(W, x, targets, parts, lambda rows, count: count / n / parts)


@wrong("accumulated", "There is NaN in it")
def accumulated_with_empty_parts(W, x, targets, parts):
    total, n = torch.zeros_like(W), (targets >= 0).sum()
    for some, their in zip(x.tensor_split(parts), targets.tensor_split(parts), strict=True):
        total += mean_gradient(W, some, their) * ((their >= 0).sum() / n)
    return total


@wrong("accumulated", "add up, don't overwrite")
def accumulated_overwritten(W, x, targets, parts):
    for some, their in zip(x.tensor_split(parts), targets.tensor_split(parts), strict=True):
        if (their >= 0).any():
            total = mean_gradient(W, some, their)
    return total


@wrong("accumulated", "rows are missing")
def accumulated_without_the_rest(W, x, targets, parts):
    size = len(x) // parts
    x, targets = x[:size * parts], targets[:size * parts]
    n = int((targets >= 0).sum())
    return accumulate(W, x, targets, parts, lambda rows, count: count / n)


@wrong("accumulated", "only one part may be there at a time")
def accumulated_all_at_once(W, x, targets, parts):
    return mean_gradient(W, x, targets)


# -- 8. loss scaling --------------------------------------------------------------------------------------------------


def step(master, gradient, scale, good, lr, interval, *, true=None, finite=None, reset=True, grown=0, due=0, backoff=0.5):
    """The right step, but for what is given."""
    finite = gradient.isfinite().all() if finite is None else finite
    if not finite:
        return master, scale * backoff, 0 if reset else good
    master = master - lr * (gradient.float() / scale if true is None else true)
    return (master, scale * 2, grown) if good + 1 >= interval + due else (master, scale, good + 1)


@wrong("scaled_step", "divide it by `scale`")
def step_scaled(master, gradient, *rest):
    return step(master, gradient, *rest, true=gradient.float())


@wrong("scaled_step", "divided by the scale in float16")
def step_unscaled_in_float16(master, gradient, scale, *rest):
    return step(master, gradient, scale, *rest, true=(gradient / scale).float())


@wrong("scaled_step", "lr times the gradient is computed in float16")
def step_with_the_rate_in_float16(master, gradient, scale, good, lr, *rest):
    return step(master, gradient, scale, good, lr, *rest, true=(lr * gradient).float() / scale / lr)


@wrong("scaled_step", "Is that asked of each of them?")
def step_that_looks_at_the_sum(master, gradient, *rest):
    return step(master, gradient, *rest, finite=gradient.sum().isfinite())


@wrong("scaled_step", "Is that asked of each of them?")
def step_that_looks_at_the_sum_of_squares(master, gradient, *rest):
    return step(master, gradient, *rest, finite=(gradient * gradient).sum().isfinite())


@wrong("scaled_step", "the largest number is 65504")
def step_that_stops_at_the_largest_number(master, gradient, *rest):
    return step(master, gradient, *rest, finite=gradient.abs().max() < 65504)


@wrong("scaled_step", "infinite or NaN there is no update")
def step_whatever_comes(master, gradient, *rest):
    return step(master, gradient, *rest, finite=True)


@wrong("scaled_step", "infinite or NaN there is no update")
def step_blind_to_nan(master, gradient, *rest):
    return step(master, gradient, *rest, finite=not gradient.isinf().any())


@wrong("scaled_step", "infinite or NaN there is no update")
def step_with_zeros_for_infinities(master, gradient, *rest):
    return step(master, gradient.nan_to_num(0, 0, 0), *rest)


@wrong("scaled_step", "counts from 0 again")
def step_with_good_ones_kept(*given):
    return step(*given, reset=False)


@wrong("scaled_step", "the count begins at 0 again")
def step_with_growth_without_reset(master, gradient, scale, good, lr, interval):
    return step(master, gradient, scale, good, lr, interval, grown=good + 1)


@wrong("scaled_step", "now the scale is doubled")
def step_with_growth_too_late(*given):
    return step(*given, due=1)


@wrong("scaled_step", "After an overflow the scale is halved")
def step_without_backoff(*given):
    return step(*given, backoff=1)


@wrong("scaled_step", "the master weights stay in float32")
def step_into_float16(master, gradient, *rest):
    new, *state = step(master, gradient, *rest)
    return new.half(), *state


@wrong("scaled_step", "don't compute in place")
def step_in_place(master, gradient, scale, good, lr, interval):
    new, *state = step(master, gradient, scale, good, lr, interval)
    master.copy_(new)
    return master, *state
