"""The lab `memory`: ways that are as good as the reference, what answers are compared with, what is watched.

See test_exercises.py for the rest.
"""

from __future__ import annotations

import itertools

import pytest
import torch
from exercises import message, solved
from memory_wrong import backward, forward, mean_gradient, segments_of, through

from mlsyslab import memory
from mlsyslab.check import inputs
from mlsyslab.check import memory as check
from mlsyslab.check.elsewhere import Elsewhere
from mlsyslab.check.memory.counts import activation_bytes
from mlsyslab.check.memory.counts import parameters as count_parameters
from mlsyslab.check.memory.lifetimes import buffers, total
from mlsyslab.check.runs import same
from mlsyslab.model import Config, parameters

# -- other right solutions --------------------------------------------------------------------------------------------


def parameters_part_by_part(L, h, V, s, tied):
    return float((12 * L * h + 13 * L + V * (2 - tied) + s + 2) * h)


def held_by_lifetimes(weights, activations, state, training):
    """From a list of buffers, each with its first and its last phase."""
    return total(buffers(weights, activations, state, training), 2 * len(weights) + 1 if training else len(weights))


def checkpointed_with_the_last_segment_kept(weights, x, gradient, k):
    """Backward begins in the last segment, which forward has just gone through: no need to compute it again."""
    segments, inputs, gradients = segments_of(weights, k), [], []
    for segment in segments[:-1]:
        inputs.append(x)
        for W in segment:
            x = forward(W, x)
    xs = through(segments[-1], x)
    del x
    for segment in reversed(segments):
        if segment is not segments[-1]:
            xs = through(segment, inputs.pop())
        for W in reversed(segment):
            y = xs.pop()
            gradient, of_weight = backward(W, xs[-1], y, gradient)
            gradients.append(of_weight)
        del y, xs
    return gradients[::-1]


def checkpointed_by_recursion(weights, x, gradient, k):
    """Each segment calls the next one, and has its own input in its own frame."""
    def rest(start, x):
        if start >= len(weights):
            return gradient, []
        segment = weights[start:start + k]
        y = x
        for W in segment:
            y = forward(W, y)
        g, later = rest(start + k, y)
        del y
        xs, own = through(segment, x), []
        for W in reversed(segment):
            y = xs.pop()
            g, of_weight = backward(W, xs[-1], y, g)
            own.insert(0, of_weight)
        return g, own + later
    return tuple(rest(0, x)[1])


def checkpointed_with_outputs_at_hand(weights, x, gradient, k):
    """A segment's output is the next one's input: only what is between is computed again."""
    segments, inputs = segments_of(weights, k), [x]
    for segment in segments:
        for W in segment:
            x = forward(W, x)
        inputs.append(x)
    del x
    gradients = []
    for segment in reversed(segments):
        y = inputs.pop()
        xs = [*through(segment[:-1], inputs[-1]), y]
        for W in reversed(segment):
            y = xs.pop()
            gradient, of_weight = backward(W, xs[-1], y, gradient)
            gradients.insert(0, of_weight)
    return gradients


def accumulated_by_sums(W, x, targets, parts):
    """Sums of the parts, divided once, at the end."""
    total, n = 0, 0
    for some, their in zip(x.tensor_split(parts), targets.tensor_split(parts), strict=True):
        count = (their >= 0).sum().item()
        if count:
            total, n = total + count * mean_gradient(W, some, their), n + count
    return total / n


def accumulated_from_a_stack(W, x, targets, parts):
    """Keeps the gradients of all parts, which are not what is too large here."""
    pairs = zip(x.tensor_split(parts), targets.tensor_split(parts), strict=True)
    sums = [mean_gradient(W, some, their) * (their >= 0).sum() for some, their in pairs if (their >= 0).any()]
    return torch.stack(sums).sum(0) / (targets >= 0).sum()


def scaled_step_in_another_order(master, gradient, scale, good, lr, interval):
    if torch.isinf(gradient).any() or torch.isnan(gradient).any():
        return [master.clone(), scale * 0.5, 0]
    good += 1
    new = master.sub(gradient.to(torch.float32).div(scale), alpha=lr)
    return [new, scale * (1 + (good == interval)), good % interval]


def scaled_step_of_the_largest(master, gradient, scale, good, lr, interval):
    """The largest number of float16 is 65504, and nothing is as large as NaN."""
    if not gradient.abs().max() <= 65504:
        return master, scale / 2, 0
    new = master.add(gradient, alpha=-lr / scale)
    return (new, scale, good + 1) if good + 1 < interval else (new, 2 * scale, 0)


@pytest.mark.parametrize("exercise, fn", [
    ("parameters", parameters_part_by_part), ("held", held_by_lifetimes),
    ("checkpointed", checkpointed_with_the_last_segment_kept), ("checkpointed", checkpointed_by_recursion),
    ("checkpointed", checkpointed_with_outputs_at_hand), ("accumulated", accumulated_by_sums),
    ("accumulated", accumulated_from_a_stack), ("scaled_step", scaled_step_in_another_order),
    ("scaled_step", scaled_step_of_the_largest)])
def test_other_ways_that_are_as_good_pass_too(exercise, fn, monkeypatch):
    getattr(check, exercise)(fn)
    for seed in ("1", "another", "3.14", "2026"):
        monkeypatch.setenv(inputs.SEED, seed)
        getattr(check, exercise)(fn, hidden=True)


# -- what answers are compared with -----------------------------------------------------------------------------------


@pytest.mark.parametrize("tied", [False, True])
def test_parameters_are_those_of_the_model(tied):
    for L, h, V, s in itertools.product((1, 3), (4, 10), (7, 50), (1, 9)):
        assert count_parameters(L, h, V, s, tied) == parameters(Config(L, h, 1, V, s, tied=tied))


@pytest.mark.parametrize("recompute", [None, "selective", "full"])
def test_activation_bytes_are_the_papers_where_it_speaks(recompute):
    """Two bytes a number and dropout: Korthikanti et al. 2022."""
    for s, b, h, a in itertools.product((1, 64), (1, 3), (8, 96), (2, 4)):
        paper = memory.activation_bytes(Config(1, h, a, 10, s, dropout=0.1), b, s, recompute=recompute)
        assert activation_bytes(s, b, h, a, 2, True, recompute) == paper


@pytest.mark.parametrize("dropout", [0.0, 0.1])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_activation_bytes_are_what_the_library_counts_tensor_by_tensor(dtype, dropout):
    config = Config(1, 32, 4, 10, 16, dropout=dropout)
    kept = [one for one in memory.saved(config, 3, dtype=dtype, device="cuda")
            if one.part not in ("embedding", "output") and "mean" not in one.name]
    assert activation_bytes(16, 3, 32, 4, dtype.itemsize, dropout > 0, None) == memory.saved_total(kept)


def test_lifetimes_are_those_of_tensors_that_are_really_there():
    """Layers y = tanh(x W), run forward and backward by hand, with every tensor deleted after its last use."""
    rng = torch.Generator().manual_seed(0)
    widths = [5, 3, 8, 2]
    weights = [torch.randn(a, b, generator=rng) for a, b in itertools.pairwise(widths)]
    xs, seen = [torch.randn(4, widths[0], generator=rng)], []
    gradients, flows = [], {}

    def note(*now):
        seen.append(sum(tensor.nbytes for tensor in [*weights, *xs, *gradients, *now]))

    for W in weights:
        xs.append(forward(W, xs[-1]))
        note()
    flows[len(weights)] = torch.ones_like(xs[-1])
    for l in reversed(range(len(weights))):
        flows[l], of_weight = backward(weights[l], xs[l], xs[l + 1], flows[l + 1])
        gradients.append(of_weight)
        note(flows[l], flows[l + 1])
        xs.pop()
        del flows[l + 1]
    xs.clear()
    note()
    sizes = [4 * width * 4 for width in widths]
    assert seen == total(buffers([W.nbytes for W in weights], sizes, 0, True), 2 * len(weights) + 1)


# -- inputs -----------------------------------------------------------------------------------------------------------


def test_checkpoints_are_asked_for_with_a_shorter_last_segment_and_at_both_ends():
    ways = [(case.traits["layers"], case.traits["k"]) for case in check.checkpointed.cases(inputs.source("x", hidden=True))]
    assert any(L % k for L, k in ways) and any(k == 1 for _, k in ways) and any(k == L > 1 for L, k in ways)


def test_parts_are_unequal_and_some_have_no_row_that_counts():
    counts = [[int((part >= 0).sum()) for part in case.arguments[2].tensor_split(case.arguments[3])]
              for case in check.accumulated.cases(inputs.source("x", hidden=True))]
    assert any(0 in some for some in counts) and any(len(set(some)) > 1 for some in counts)
    assert all(sum(some) for some in counts)


def test_large_gradients_are_finite_but_their_sum_in_float16_is_not():
    cases = [case for case in check.scaled_step.cases(inputs.source("x", hidden=True)) if case.traits["gradient"] == "large"]
    for _, gradient, _, _, lr, _ in (case.arguments for case in cases):
        assert gradient.isfinite().all() and gradient.abs().max() == torch.finfo(torch.float16).max
        assert gradient.sum().isinf() and (lr * gradient).isinf().all()


def test_a_step_is_tried_on_the_same_types_whatever_the_default():
    before = check.scaled_step.cases(inputs.source("x", hidden=True))
    torch.set_default_dtype(torch.float64)
    try:
        after = check.scaled_step.cases(inputs.source("x", hidden=True))
    finally:
        torch.set_default_dtype(torch.float32)
    for case, again in zip(before, after, strict=True):
        assert same(case.arguments, again.arguments) and same(case.expected, again.expected)


# -- what is watched --------------------------------------------------------------------------------------------------


def test_what_is_watched_elsewhere_is_believed():
    """A stub of the grader tells products and memory; here it tells of too much memory."""
    class Greedy(Elsewhere):
        def __call__(self, *args):
            return solved("memory")["checkpointed"](*args)

        def run(self, *_):
            raise AssertionError("no ranks here")

        def counted(self, *args):
            return self(*args), 0, False

        def watched(self, *args):
            return self(*args), 0, 10**9, False

    assert "hardly anything was computed a second time" in message(check.checkpointed, Greedy())
