"""Known-wrong solutions of the lab `pipeline`."""

from __future__ import annotations

import math
from contextlib import nullcontext
from itertools import combinations

import torch
from known_wrong import KnownWrong

from mlsyslab import pipeline
from mlsyslab.pipeline import Action

wrong = KnownWrong()

# -- 1. the bubble ----------------------------------------------------------------------------------------------------


def run_time(times, m):
    return sum(times) + (m - 1) * max(times)


@wrong("inference_bubble", "the slowest one sets the pace")
def bubble_of_equal_stages(times, m):
    return (len(times) - 1) / (m + len(times) - 1)


@wrong("inference_bubble", "idle time over working time")
def bubble_over_work(times, m):
    p, work, total = len(times), sum(times), run_time(times, m)
    return (p * total - m * work) / (m * work)


@wrong("inference_bubble", "That is in percent")
def bubble_in_percent(times, m):
    return 100 * (1 - m * sum(times) / (len(times) * run_time(times, m)))


@wrong("inference_bubble", "there are m-1 to come, not m")
def bubble_one_slot_too_many(times, m):
    return 1 - m * sum(times) / (len(times) * (sum(times) + m * max(times)))


@wrong("inference_bubble", "the fraction in which the ranks work")
def bubble_efficiency(times, m):
    return m * sum(times) / (len(times) * run_time(times, m))


@wrong("inference_bubble", "passes p-1 stages")
def bubble_of_p_stages(times, m):
    return len(times) / (m + len(times) - 1)


@wrong("inference_bubble", "idle seconds a rank")
def bubble_in_seconds(times, m):
    return run_time(times, m) - m * sum(times) / len(times)


@wrong("inference_bubble", "expected a number from 0 to 1")
def bubble_printed(times, m):
    return f"{len(times) - 1}/{m + len(times) - 1}"


# -- 2. GPipe ---------------------------------------------------------------------------------------------------------


@wrong("gpipe", "in GPipe all 8 forwards come first")
def gpipe_one_at_a_time(p, m):
    return [[f"{r}{kind}{i}" for i in range(m) for kind in "FB"] for r in range(p)]


@wrong("gpipe", "there is no backward in it")
def gpipe_forwards_only(p, m):
    return [[f"{r}F{i}" for i in range(m)] for r in range(p)]


@wrong("gpipe", "Rank r holds stage r")
def gpipe_upside_down(p, m):
    return [[f"{p - 1 - r}{kind}{i}" for kind in "FB" for i in range(m)] for r in range(p)]


@wrong("gpipe", "this forward is missing")
def gpipe_counted_from_one(p, m):
    return [[f"{r}{kind}{i}" for kind in "FB" for i in range(1, m)] for r in range(p)]


@wrong("gpipe", "expected one a rank, 4 in all")
def gpipe_by_microbatch(p, m):
    return [[f"{r}{kind}{i}" for kind in "FB" for r in range(p)] for i in range(m)]


@wrong("gpipe", "or they wait for one another")
def gpipe_last_rank_reversed(p, m):
    """Ranks disagree on the order of the backwards, and on the forwards' too."""
    return [[f"{r}{kind}{i}" for kind in "FB" for i in (range(m) if r % 2 else reversed(range(m)))] for r in range(p)]


@wrong("gpipe", "expected text such as")
def gpipe_of_tuples(p, m):
    return [[(r, kind, i) for kind in "FB" for i in range(m)] for r in range(p)]


@wrong("gpipe", "right for world size 4 only")
def gpipe_of_four(p, m):
    return [[f"{r}{kind}{i}" for kind in "FB" for i in range(m)] for r in range(4)]


@wrong("gpipe", "is no action")
def gpipe_lower_case(p, m):
    return [[f"{r}{kind}{i}" for kind in "fb" for i in range(m)] for r in range(p)]


@wrong("gpipe", "it returned a str")
def gpipe_as_csv(p, m):
    return "\n".join(",".join(f"{r}{kind}{i}" for kind in "FB" for i in range(m)) for r in range(p))


@wrong("gpipe", "in this exercise you write that yourself")
def gpipe_of_the_library(p, m):
    return [[str(action) for action in row] for row in pipeline.schedule("GPipe", p, m).actions]


# -- 3. 1F1B ----------------------------------------------------------------------------------------------------------


def one_f_one_b(p, m, warmup):
    """Right for warmup = lambda r: min(m, p - 1 - r)."""
    rows = []
    for r in range(p):
        ahead = warmup(r)
        row = [f"{r}F{i}" for i in range(ahead)]
        for i in range(m):
            if ahead + i < m:
                row.append(f"{r}F{ahead + i}")
            row.append(f"{r}B{i}")
        rows.append(row)
    return rows


@wrong("one_f_one_b", "that is GPipe")
def ofob_all_forwards_first(p, m):
    return one_f_one_b(p, m, lambda r: m)


@wrong("one_f_one_b", "Before their first backward the ranks do [5, 4, 3, 2] forwards; expected [4, 3, 2, 1]")
def ofob_warmup_one_too_long(p, m):
    return one_f_one_b(p, m, lambda r: min(m, p - r))


@wrong("one_f_one_b", "the ranks do [3, 2, 1, 1] forwards; expected [4, 3, 2, 1]")
def ofob_warmup_one_too_short(p, m):
    return one_f_one_b(p, m, lambda r: min(m, max(0, p - 2 - r)))


@wrong("one_f_one_b", "there are at least as many microbatches as ranks")
def ofob_few_microbatches(p, m):
    return one_f_one_b(p, m, lambda r: p - 1 - r)


@wrong("one_f_one_b", "deadlock")
def ofob_warmup_of_the_mirrored_rank(p, m):
    return one_f_one_b(p, m, lambda r: min(m, r))


@wrong("one_f_one_b", "comes before 3F0, which it needs")
def ofob_backward_first(p, m):
    rows = []
    for r in range(p):
        ahead = min(m, p - 1 - r)
        row = [f"{r}F{i}" for i in range(ahead)]
        for i in range(m):
            row.append(f"{r}B{i}")
            if ahead + i < m:
                row.append(f"{r}F{ahead + i}")
        rows.append(row)
    return rows


@wrong("one_f_one_b", "this backward is missing")
def ofob_without_cooldown(p, m):
    return [row[:2 * m - min(m, p - 1 - r)] for r, row in enumerate(one_f_one_b(p, m, lambda r: min(m, p - 1 - r)))]


@wrong("one_f_one_b", "the ranks do [1, 1, 1, 1] forwards")
def ofob_one_at_a_time(p, m):
    return [[f"{r}{kind}{i}" for i in range(m) for kind in "FB"] for r in range(p)]


@wrong("one_f_one_b", "right for world size 4 only")
def ofob_of_four(p, m):
    return one_f_one_b(4, m, lambda r: min(m, 3 - r))


@wrong("one_f_one_b", "that of the oldest microbatch")
def ofob_newest_microbatch_first(p, m):
    """The backward of the microbatch whose forward has just been done."""
    rows = []
    for r in range(p):
        ahead = min(m, p - 1 - r)
        row = [f"{r}F{i}" for i in range(ahead)]
        for i in range(ahead, m):
            row += [f"{r}F{i}", f"{r}B{i}"]
        rows.append(row + [f"{r}B{i}" for i in range(ahead)])
    return rows


# -- 4. what a schedule keeps -----------------------------------------------------------------------------------------


def count(schedule, change, first=False):
    peaks = []
    for row in schedule:
        live = peak = 0
        for text in row:
            action = Action.parse(text)
            if first:
                peak = max(peak, live)
            live += change.get(action.kind, 0)
            if not first:
                peak = max(peak, live)
        peaks.append(peak)
    return peaks


@wrong("peak_activations", "I frees nothing")
def peaks_freed_by_i(schedule):
    return count(schedule, {"F": 1, "B": -1, "I": -1})


@wrong("peak_activations", "a backward frees what its forward kept")
def peaks_of_forwards(schedule):
    return [sum("F" in text for text in row) for row in schedule]


@wrong("peak_activations", "backward is in one piece (B)")
def peaks_freed_by_b_only(schedule):
    return count(schedule, {"F": 1, "B": -1})


@wrong("peak_activations", "later there may be more")
def peaks_of_the_warmup(schedule):
    return [next(place for place, text in enumerate(row) if "F" not in text) for row in schedule]


@wrong("peak_activations", "One microbatch leaves an activation on every stage")
def peaks_of_microbatches(schedule):
    peaks = []
    for row in schedule:
        live, peak = set(), 0
        for text in row:
            action = Action.parse(text)
            if action.kind == "F":
                live.add(action.microbatch)
            elif action.kind in "BW":
                live.discard(action.microbatch)
            peak = max(peak, len(live))
        peaks.append(peak)
    return peaks


@wrong("peak_activations", "add those of its chunks up")
def peaks_of_one_chunk(schedule):
    peaks = []
    for row in schedule:
        stages = {Action.parse(text).stage for text in row}
        peaks.append(max(count([[text for text in row if Action.parse(text).stage == s]], {"F": 1, "B": -1, "W": -1})[0]
                         for s in stages))
    return peaks


@wrong("peak_activations", "before the next forward begins")
def peaks_freed_too_late(schedule):
    peaks = []
    for row in schedule:
        live = peak = pending = 0
        for text in row:
            live += "F" in text
            peak = max(peak, live)
            live -= pending
            pending = int(Action.parse(text).kind in "BW")
        peaks.append(peak)
    return peaks


@wrong("peak_activations", "each rank has its own")
def peaks_of_the_worst_rank(schedule):
    return [max(count(schedule, {"F": 1, "B": -1, "W": -1}))] * len(schedule)


@wrong("peak_activations", "it raised")
def peaks_of_one_digit(schedule):
    """Stage numbers of two digits."""
    change = {"F": 1, "B": -1, "W": -1, "I": 0}
    peaks = []
    for row in schedule:
        live = peak = 0
        for text in row:
            live += change[text[1]]
            peak = max(peak, live)
        peaks.append(peak)
    return peaks


@wrong("peak_activations", "one a rank")
def peaks_in_one_number(schedule):
    return max(count(schedule, {"F": 1, "B": -1, "W": -1}))


@wrong("peak_activations", "from its start")
def peaks_before_each_action(schedule):
    """Of a forward, what is there before it."""
    return [peak - 1 for peak in count(schedule, {"F": 1, "B": -1, "W": -1})]


@wrong("peak_activations", "in this exercise you write that yourself")
def peaks_of_the_library(schedule):
    parsed = pipeline.Schedule("", [map(Action.parse, row) for row in schedule])
    return [int(peak) for peak in pipeline.peak_activations(parsed)]


# -- 5. interleaving --------------------------------------------------------------------------------------------------


def interleaved(p, m, v, warmup=None, rounds=None, stage=None, forward_chunks=None, backward_chunks=None):
    """Right unless something is given."""
    rounds = rounds or [part.tolist() for part in torch.arange(m).tensor_split(max(1, m // p))]
    stage = stage or (lambda c, r: c * p + r)
    rows = []
    for r in range(p):
        forwards = [f"{stage(c, r)}F{i}" for part in rounds for c in forward_chunks or range(v) for i in part]
        backwards = [f"{stage(c, r)}B{i}" for part in rounds for c in backward_chunks or reversed(range(v)) for i in part]
        ahead = min(len(forwards), warmup(r) if warmup else (v - 1) * len(rounds[0]) + 2 * (p - 1 - r))
        row = forwards[:ahead]
        for pair in zip(forwards[ahead:], backwards, strict=False):
            row += pair
        rows.append(row + backwards[len(forwards) - ahead:])
    return rows


@wrong("interleaved", "through a rank's chunks in reverse")
def interleaved_backward_chunks_in_order(p, m, v):
    return interleaved(p, m, v, backward_chunks=range(v))


@wrong("interleaved", "Chunk c of rank r is stage c p + r")
def interleaved_consecutive_stages(p, m, v):
    return interleaved(p, m, v, stage=lambda c, r: r * v + c)


@wrong("interleaved", "then comes the next round")
def interleaved_depth_first(p, m, v):
    """Every microbatch by itself through all chunks."""
    return interleaved(p, m, v, rounds=[[i] for i in range(m)], warmup=lambda r: (v - 1) * p + 2 * (p - 1 - r))


@wrong("interleaved", "then comes the next round")
def interleaved_breadth_first(p, m, v):
    return interleaved(p, m, v, rounds=[list(range(m))])


@wrong("interleaved", "the world size divides the number of microbatches")
def interleaved_drops_the_rest(p, m, v):
    return interleaved(p, m, v, rounds=[list(range(k, k + p)) for k in range(0, m - p + 1, p)] or [list(range(m))])


@wrong("interleaved", "the world size divides the number of microbatches")
def interleaved_short_last_round(p, m, v):
    return interleaved(p, m, v, rounds=[list(range(k, min(k + p, m))) for k in range(0, m, p)])


@wrong("interleaved", "Before their first backward the ranks do")
def interleaved_warmup_of_1f1b(p, m, v):
    return interleaved(p, m, v, warmup=lambda r: p - 1 - r)


@wrong("interleaved", "All forwards come before the first backward")
def interleaved_all_forwards_first(p, m, v):
    return interleaved(p, m, v, warmup=lambda r: m * v)


@wrong("interleaved", "this forward is missing")
def interleaved_without_chunks(p, m, v):
    return interleaved(p, m, 1)


@wrong("interleaved", "every rank holds 2 chunks")
def interleaved_two_chunks(p, m, v):
    return interleaved(p, m, 2)


@wrong("interleaved", "Before their first backward the ranks do")
def interleaved_one_forward_too_many(p, m, v):
    return interleaved(p, m, v, warmup=lambda r: (v - 1) * min(m, p) + 2 * (p - 1 - r) + 1)


# -- 6. a backward in two halves --------------------------------------------------------------------------------------


def back_through(weights, inputs, gradient, through):
    arrived = []
    for layer in reversed(range(len(weights))):
        arrived.insert(0, gradient)
        gradient = gradient @ weights[layer].T
        if layer:
            gradient = through(gradient, inputs[layer])
    return gradient, arrived


@wrong("backward_input", "relu's part is left out")
def input_without_relu(weights, inputs, gradient):
    return back_through(weights, inputs, gradient, lambda g, x: g)


@wrong("backward_input", "relu's derivative is 0 or 1")
def input_times_relu(weights, inputs, gradient):
    return back_through(weights, inputs, gradient, lambda g, x: g * x)


@wrong("backward_input", "goes by the sign of what went forward")
def input_relu_of_the_gradient(weights, inputs, gradient):
    return back_through(weights, inputs, gradient, lambda g, x: g.relu())


@wrong("backward_input", "`arrived` stands in reverse")
def input_arrived_in_reverse(weights, inputs, gradient):
    back, arrived = back_through(weights, inputs, gradient, lambda g, x: g * (x > 0))
    return back, arrived[::-1]


@wrong("backward_input", "W's work")
def input_with_the_weights_too(weights, inputs, gradient):
    back, arrived = back_through(weights, inputs, gradient, lambda g, x: g * (x > 0))
    for x, g in zip(inputs, arrived, strict=True):
        x.T @ g
    return back, arrived


@wrong("backward_input", "a tensor that was given was changed")
def input_in_place(weights, inputs, gradient):
    arrived = []
    back = gradient
    for layer in reversed(range(len(weights))):
        arrived.insert(0, back)
        if layer:
            inputs[layer].gt_(0)
            back = (back @ weights[layer].T) * inputs[layer]
    return arrived[0] @ weights[0].T, arrived


@wrong("backward_input", "one more product takes it to the input")
def input_gradient_not_taken_to_the_input(weights, inputs, gradient):
    back, arrived = back_through(weights, inputs, gradient, lambda g, x: g * (x > 0))
    return arrived[0], arrived


@wrong("backward_input", "expected (input gradient, arrived)")
def input_alone(weights, inputs, gradient):
    return back_through(weights, inputs, gradient, lambda g, x: g * (x > 0))[0]


@wrong("backward_input", "came through no relu of this stage")
def input_masked_at_the_end(weights, inputs, gradient):
    """relu of the first layer's input, too."""
    back, arrived = back_through(weights, inputs, gradient, lambda g, x: g * (x > 0))
    return back * (inputs[0] > 0), arrived


@wrong("backward_input", "it raised")
def input_not_transposed(weights, inputs, gradient):
    return gradient @ weights[-1], [gradient]


@wrong("backward_input", "autograd is called")
def input_by_autograd(weights, inputs, gradient):
    x, arrived = inputs[0].requires_grad_(), []
    for weight in weights:
        arrived.append(x @ weight)
        x = arrived[-1].relu()
    back, *arrived = torch.autograd.grad(arrived[-1], [inputs[0], *arrived], gradient)
    return back, arrived


def weight_gradients(inputs, arrived):
    return [x.T @ g for x, g in zip(inputs, arrived, strict=True)]


@wrong("backward_weights", "Those are transposed")
def weights_transposed(inputs, arrived):
    return [g.T @ x for x, g in zip(inputs, arrived, strict=True)]


@wrong("backward_weights", "the rows are added up")
def weights_averaged(inputs, arrived):
    return [g / len(inputs[0]) for g in weight_gradients(inputs, arrived)]


@wrong("backward_weights", "stand in reverse")
def weights_in_reverse(inputs, arrived):
    return weight_gradients(inputs, arrived)[::-1]


@wrong("backward_weights", "each of the 3 layers")
def weights_without_the_first(inputs, arrived):
    return weight_gradients(inputs[1:], arrived[1:])


@wrong("backward_weights", "this half needs one a layer")
def weights_twice(inputs, arrived):
    weight_gradients(inputs, arrived)
    return weight_gradients(inputs, arrived)


@wrong("backward_weights", "the weight gradient of layer 0 came as")
def weights_masked(inputs, arrived):
    """relu's mask once more."""
    return [(x > 0).to(x.dtype).T @ g for x, g in zip(inputs, arrived, strict=True)]


@wrong("backward_weights", "expected a list of one tensor a layer")
def weights_added_up(inputs, arrived):
    return sum(float((x.T @ g).sum()) for x, g in zip(inputs, arrived, strict=True))


def zb(p, m, held_back, warmup=None):
    """Right for held_back = lambda r: r."""
    rows = []
    for r in range(p):
        ahead, late = min(m, p - 1 - r) if warmup is None else warmup(r), held_back(r)
        row = [f"{r}F{i}" for i in range(ahead)]
        for i in range(m):
            if ahead + i < m:
                row.append(f"{r}F{ahead + i}")
            row.append(f"{r}I{i}")
            if i >= late:
                row.append(f"{r}W{i - late}")
        rows.append(row + [f"{r}W{i}" for i in range(max(0, m - late), m)])
    return rows


@wrong("zb_h1", "no bubble is filled")
def zb_w_at_once(p, m):
    return zb(p, m, lambda r: 0)


@wrong("zb_h1", "All W come at the end")
def zb_w_at_the_end(p, m):
    return zb(p, m, lambda r: m)


@wrong("zb_h1", "rank r by r of them")
def zb_held_back_by_the_mirrored_rank(p, m):
    return zb(p, m, lambda r: p - 1 - r)


@wrong("zb_h1", "this weight gradient is missing")
def zb_last_w_forgotten(p, m):
    return [row[:3 * m - r] if r < m else row[:2 * m] for r, row in enumerate(zb(p, m, lambda r: r))]


@wrong("zb_h1", "comes before 0I0, which it needs")
def zb_w_before_i(p, m):
    return [[f"{r}{kind}{i}" for i in range(m) for kind in "FWI"] for r in range(p)]


@wrong("zb_h1", "the kinds of action in this schedule are F, I, W")
def zb_with_b(p, m):
    return one_f_one_b(p, m, lambda r: min(m, p - 1 - r))


@wrong("zb_h1", "there are at least as many microbatches as ranks")
def zb_few_microbatches(p, m):
    rows = []
    for r in range(p):
        row = [f"{r}F{i}" for i in range(min(m, p - 1 - r))]
        for i in range(m):
            if p - 1 - r + i < m:
                row.append(f"{r}F{p - 1 - r + i}")
            row.append(f"{r}I{i}")
            if i >= r:
                row.append(f"{r}W{i - r}")
        rows.append(row + [f"{r}W{i}" for i in range(m - r, m)])
    return rows


# -- 7. stages of equal work ------------------------------------------------------------------------------------------


def dynamic(times, p, layer_time=None, least=1):
    """Right unless something is given."""
    n = len(times)
    if layer_time is None:
        def layer_time(i, j):
            return sum(times[i:j])
    T = [[0.0 if k == j == 0 else math.inf for j in range(n + 1)] for k in range(p + 1)]
    begin = [[0] * (n + 1) for _ in range(p + 1)]
    for k in range(1, p + 1):
        for j in range(n + 1):
            for i in range(j + 1 - least):
                slowest = max(T[k - 1][i], layer_time(i, j))
                if slowest < T[k][j]:
                    T[k][j], begin[k][j] = slowest, i
    sizes, j = [], n
    for k in range(p, 0, -1):
        sizes.append(j - begin[k][j])
        j = begin[k][j]
    return sizes[::-1]


@wrong("partition", "equal numbers of layers")
def partition_even(times, p):
    few, more = divmod(len(times), p)
    return [few + (s < more) for s in range(p)]


@wrong("partition", "closed")
def partition_greedy(times, p):
    share, sizes, layer = sum(times) / p, [], 0
    for s in range(p - 1):
        size, filled = 1, times[layer]
        while filled < share and size < len(times) - layer - (p - 1 - s):
            filled += times[layer + size]
            size += 1
        sizes.append(size)
        layer += size
    return [*sizes, len(times) - layer]


@wrong("partition", "every stage gets at least one")
def partition_with_empty_stages(times, p):
    return dynamic(times, p, least=0)


@wrong("partition", "moved by one layer")
def partition_sums_off_by_one(times, p):
    upto = [0.0]
    for t in times:
        upto.append(upto[-1] + t)
    upto.append(upto[-1])
    return dynamic(times, p, lambda i, j: upto[j + 1] - upto[i + 1])


@wrong("partition", "the places of the cuts")
def partition_as_cuts(times, p):
    sizes = dynamic(times, p)
    return [sum(sizes[:s + 1]) for s in range(p)]


@wrong("partition", "2 stages; expected 3")
def partition_one_stage_short(times, p):
    return dynamic(times, max(1, p - 1))


@wrong("partition", "Trying every partition takes too long")
def partition_endless_search(times, p):
    n = len(times)

    def sizes(cuts):
        return [b - a for a, b in zip((0, *cuts), (*cuts, n), strict=True)]

    def slowest(cuts):
        return max(sum(times[a:b]) for a, b in zip((0, *cuts), (*cuts, n), strict=True))

    return sizes(min(combinations(range(1, n), p - 1), key=slowest))


@wrong("partition", "expected a list of 3 numbers of layers")
def partition_bottleneck_only(times, p):
    sizes = dynamic(times, p)
    return max(sum(times[sum(sizes[:s]):sum(sizes[:s + 1])]) for s in range(p))


@wrong("partition", "It is the slowest stage alone that counts")
def partition_by_least_squares(times, p):
    n = len(times)
    best = {(0, 0): (0.0, [])}
    for k in range(1, p + 1):
        for j in range(k, n + 1):
            best[k, j] = min((best[k - 1, i][0] + sum(times[i:j])**2, [*best[k - 1, i][1], j - i])
                             for i in range(k - 1, j) if (k - 1, i) in best)
    return best[p, n][1]


@wrong("partition", "if the last layer cost nothing")
def partition_without_the_last(times, p):
    return dynamic([*times[:-1], 0.0], p)


@wrong("partition", "in this exercise you write that yourself")
def partition_of_the_library(times, p):
    return list(pipeline.partition(times, p).sizes)


# -- 8. a pipeline that never drains ----------------------------------------------------------------------------------


@wrong("pipedream_versions", "PipeDream stashes the one that the forward used")
def versions_newest_at_backward(p, r, m):
    return [(max(0, i - (p - 1 - r)), i) for i in range(m)]


@wrong("pipedream_versions", "That is so on rank 0 only")
def versions_counted_from_p(p, r, m):
    return [(max(0, i - (p - 1)),) * 2 for i in range(m)]


@wrong("pipedream_versions", "one forward too many before the first update")
def versions_off_by_one(p, r, m):
    return [(max(0, i - (p - r)),) * 2 for i in range(m)]


@wrong("pipedream_versions", "Versions are counted from 0, and the first forwards all use version 0")
def versions_below_zero(p, r, m):
    return [(i - (p - 1 - r),) * 2 for i in range(m)]


@wrong("pipedream_versions", "That is so on the last rank only")
def versions_by_microbatch(p, r, m):
    return [(i, i) for i in range(m)]


@wrong("pipedream_versions", "It is the first rank that is furthest")
def versions_of_the_mirrored_rank(p, r, m):
    return [(max(0, i - r),) * 2 for i in range(m)]


@wrong("pipedream_versions", "Versions are counted from 0.")
def versions_counted_from_one(p, r, m):
    return [(1 + max(0, i - (p - 1 - r)),) * 2 for i in range(m)]


@wrong("pipedream_versions", "expected a list of 8 pairs")
def versions_of_forwards(p, r, m):
    return [max(0, i - (p - 1 - r)) for i in range(m)]


@wrong("pipedream_versions", "after every backward")
def versions_flushed(p, r, m):
    """As if there were no updates before the end."""
    return [(0, 0)] * m


@wrong("versions_held", "Only rank 0 has p microbatches in flight")
def held_p(p, r):
    return p


@wrong("versions_held", "its backwards come last")
def held_by_the_mirrored_rank(p, r):
    return r + 1


@wrong("versions_held", "are a version too")
def held_without_the_newest(p, r):
    return p - 1 - r


@wrong("versions_held", "The version that nobody needs any more is gone")
def held_one_too_many(p, r):
    return p - r + 1


@wrong("versions_held", "PipeDream-2BW")
def held_two(p, r):
    return 2


@wrong("versions_held", "expected a whole number")
def held_as_float(p, r):
    return float(p - r)


# -- 9. carrying it out -----------------------------------------------------------------------------------------------


def executor(comm, row, weight, inputs, targets, *, send=None, begin=None, add=None, take=None, last=None, wait=True,
             work=None):
    """Right unless something is given."""
    rank, last = comm.rank, comm.size - 1 if last is None else last
    N = sum(map(len, targets))
    begin = begin or (lambda y, t: (y - t) / N)
    add = add or (lambda total, part: total + part)
    take = take or (lambda kept, i: kept.pop(i))
    send = send or (lambda tensor, to: comm.isend(tensor, to))
    total, kept, sends = torch.zeros_like(weight), {}, []
    for text in row:
        action = Action.parse(text)
        i, rows = action.microbatch, len(inputs[action.microbatch])
        if action.kind == "F":
            x = inputs[i] if rank == 0 else comm.recv(weight.new_empty(rows, weight.shape[0]), rank - 1)
            with work(text) if work else comm.work(text, seconds=1.0):
                y = x @ weight
            kept[i] = x, y
            if rank < last:
                sends.append(send(y, rank + 1))
        else:
            x, y = take(kept, i)
            if rank < last:
                g = comm.recv(weight.new_empty(rows, weight.shape[1]), rank + 1)
            with work(text) if work else comm.work(text, seconds=1.0):
                if rank == last:
                    g = begin(y, targets[i])
                total = add(total, x.T @ g)
                back = g @ weight.T
            if rank > 0:
                sends.append(send(back, rank - 1))
    if wait:
        comm.wait_all([sent for sent in sends if sent])
    return total


@wrong("run_rank", "Begin the sends (comm.isend)")
def run_blocking_sends(comm, row, weight, inputs, targets):
    return executor(comm, row, weight, inputs, targets, send=lambda tensor, to: comm.send(tensor, to))


@wrong("run_rank", "divide by how many rows there are in all")
def run_mean_of_a_microbatch(comm, row, weight, inputs, targets):
    return executor(comm, row, weight, inputs, targets, begin=lambda y, t: (y - t) / len(t))


@wrong("run_rank", "of the mean of the microbatches' means")
def run_mean_of_means(comm, row, weight, inputs, targets):
    return executor(comm, row, weight, inputs, targets, begin=lambda y, t: (y - t) / len(t) / len(targets))


@wrong("run_rank", "divide by 32 where it begins")
def run_without_scale(comm, row, weight, inputs, targets):
    return executor(comm, row, weight, inputs, targets, begin=lambda y, t: y - t)


@wrong("run_rank", "of the last microbatch's backward only")
def run_overwrites_the_gradient(comm, row, weight, inputs, targets):
    return executor(comm, row, weight, inputs, targets, add=lambda total, part: part)


@wrong("run_rank", "nothing may refer to its activations any more")
def run_keeps_everything(comm, row, weight, inputs, targets):
    return executor(comm, row, weight, inputs, targets, take=lambda kept, i: kept[i])


@wrong("run_rank", "right for world size 4 only")
def run_of_four(comm, row, weight, inputs, targets):
    return executor(comm, row, weight, inputs, targets, last=3)


@wrong("run_rank", "find what a microbatch left by its number")
def run_queue(comm, row, weight, inputs, targets):
    return executor(comm, row, weight, inputs, targets, take=lambda kept, i: kept.pop(min(kept)))


@wrong("run_rank", "every action in its turn")
def run_without_work(comm, row, weight, inputs, targets):
    return executor(comm, row, weight, inputs, targets, work=lambda text: torch.no_grad())


@wrong("run_rank", "inside `with comm.work(action, seconds=1.0):`")
def run_without_labels(comm, row, weight, inputs, targets):
    return executor(comm, row, weight, inputs, targets, work=lambda text: comm.work("work", seconds=1.0))


@wrong("run_rank", "The sign is wrong")
def run_sign(comm, row, weight, inputs, targets):
    N = sum(map(len, targets))
    return executor(comm, row, weight, inputs, targets, begin=lambda y, t: (t - y) / N)


@wrong("run_rank", "That is twice the gradient")
def run_twice(comm, row, weight, inputs, targets):
    N = sum(map(len, targets))
    return executor(comm, row, weight, inputs, targets, begin=lambda y, t: 2 * (y - t) / N)


@wrong("run_rank", "That is half the gradient")
def run_half(comm, row, weight, inputs, targets):
    N = sum(map(len, targets))
    return executor(comm, row, weight, inputs, targets, begin=lambda y, t: (y - t) / 2 / N)


@wrong("run_rank", "how many microbatches there are")
def run_by_microbatches(comm, row, weight, inputs, targets):
    return executor(comm, row, weight, inputs, targets, begin=lambda y, t: (y - t) / len(targets))


@wrong("run_rank", "how many numbers the targets have")
def run_by_numbers(comm, row, weight, inputs, targets):
    N = sum(map(torch.numel, targets))
    return executor(comm, row, weight, inputs, targets, begin=lambda y, t: (y - t) / N)


@wrong("run_rank", "as long as the first")
def run_equal_microbatches(comm, row, weight, inputs, targets):
    N = len(targets) * len(targets[0])
    return executor(comm, row, weight, inputs, targets, begin=lambda y, t: (y - t) / N)


@wrong("run_rank", "rank 0 never waited for 8 of its 8 sends")
def run_without_waiting(comm, row, weight, inputs, targets):
    return executor(comm, row, weight, inputs, targets, wait=False)


@wrong("run_rank", "rank 0 never waited for 7 of its 8 sends")
def run_waits_for_the_last_send(comm, row, weight, inputs, targets):
    sends = []

    def send(tensor, to):
        sends[:] = [comm.isend(tensor, to)]

    total = executor(comm, row, weight, inputs, targets, send=send)
    comm.wait_all(sends)
    return total


@wrong("run_rank", "0F0 took 0 s on the clock; every action takes one second")
def run_without_seconds(comm, row, weight, inputs, targets):
    return executor(comm, row, weight, inputs, targets, work=lambda text: comm.work(text))


@wrong("run_rank", "0F0 took 0.5 s on the clock")
def run_too_fast(comm, row, weight, inputs, targets):
    return executor(comm, row, weight, inputs, targets, work=lambda text: comm.work(text, seconds=0.5))


@wrong("run_rank", "0F0 took 2 s on the clock")
def run_too_slow(comm, row, weight, inputs, targets):
    return executor(comm, row, weight, inputs, targets, work=lambda text: comm.work(text, seconds=2.0))


@wrong("run_rank", "Receive before `with comm.work(…)`, and send after it")
def run_messages_inside(comm, row, weight, inputs, targets):
    def within():
        for text in row:
            with comm.work(text, seconds=1.0):
                yield text

    return executor(comm, within(), weight, inputs, targets, work=lambda text: nullcontext())


@wrong("run_rank", "was everything sent")
def run_gradients_not_sent(comm, row, weight, inputs, targets):
    return executor(comm, row, weight, inputs, targets,
                    send=lambda tensor, to: comm.isend(tensor, to) if to > comm.rank else None)


@wrong("run_rank", "`inputs` has no values")
def run_own_inputs(comm, row, weight, inputs, targets):
    rank, N, total = comm.rank, sum(map(len, targets)), torch.zeros_like(weight)
    for text in row:
        i = Action.parse(text).microbatch
        with comm.work(text, seconds=1.0):
            if "B" in text:
                total += inputs[i].new_full((len(inputs[i]), weight.shape[0]), inputs[i].sum() + rank).T @ (
                    targets[i].new_full((len(inputs[i]), weight.shape[1]), targets[i].sum()) / N)
    return total


@wrong("run_rank", "in the dtype of the weight")
def run_in_float32(comm, row, weight, inputs, targets):
    rank, last = comm.rank, comm.size - 1
    for text in row:
        i = Action.parse(text).microbatch
        if "F" in text:
            x = inputs[i] if rank == 0 else comm.recv(torch.empty(len(inputs[i]), weight.shape[0]), rank - 1)
            if rank < last:
                comm.isend(x @ weight, rank + 1)
    return weight


@wrong("run_rank", "The first rank has nobody before it")
def run_past_the_ends(comm, row, weight, inputs, targets):
    return executor(comm, row, weight, inputs, targets, last=comm.size)
