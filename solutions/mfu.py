# %% [markdown] nbgrader={"grade_id": "intro"}
# # MFU: how well is the machine used?
#
# A model needs so many floating-point operations (FLOPs) for a step, and a device can do so many a second at best. Model
# FLOPs utilization, MFU, is the share of that best which a run makes use of. In this lab you will
#
# 1. count the FLOPs of one product, forward and backward,
# 2. count a transformer's parameters, and those that a token is multiplied with,
# 3. count the FLOPs of a whole training step,
# 4. find what a product takes at least, and whether arithmetic or memory holds it up,
# 5. read the MFU of a run off its log,
# 6. find what is wrong with published claims,
# 7. tell MFU from HFU where activations are recomputed,
# 8. time a product on the device at hand, and
# 9. read a ladder of measured runs.
#
# Read the chapter *MFU* first. The lab takes about 90 minutes, is worth 100 points, runs on a laptop and needs no GPU. The
# exercises don't depend on one another.

# %% nbgrader={"grade_id": "imports"}
import re
import statistics
import time

import torch

from mlsyslab.check import mfu as check

# %% [markdown] nbgrader={"grade_id": "rules"}
# Rules for all exercises:
#
# - Your functions leave their arguments as they are.
# - They don't call `mlsyslab.mfu`, `mlsyslab.model` or `mlsyslab.measure`. Look there afterwards.
# - Counts of FLOPs and parameters are whole numbers, and exact. The rest may differ by rounding.
# - Shares are fractions: half of the peak is 0.5. Times are in seconds, sizes in bytes, rates a second.
#
# The check below each exercise calls your function on many inputs. Grading repeats it on inputs that you don't see.

# %% [markdown] nbgrader={"grade_id": "linear_flops_text"}
# ## 1. One product (6 points)
#
# A linear layer takes x, of shape (B, s, n), to y = x W, of shape (B, s, p); W is n × p. Each element of y is a sum of n
# products: a multiplication and an addition for each. In backward the gradient of y is there, and two products are due:
# the gradient of W, and the gradient of x. The latter isn't computed if nobody asks for it, as where x is data
# (`input_gradient` is false).

# %% nbgrader={"grade_id": "linear_flops", "solution": true}
def linear_flops(B, s, n, p, input_gradient):
    """The FLOPs of a linear layer, without bias.

    B: sequences.  s: tokens a sequence.  n: numbers a token has before, p: behind.
    input_gradient: whether the gradient of x is wanted.
    Returns a dict of whole numbers: {"forward": …, "backward": …}.
    """
    ### BEGIN SOLUTION
    product = 2 * B * s * n * p
    return {"forward": product, "backward": 2 * product if input_gradient else product}
    ### END SOLUTION

# %% nbgrader={"grade_id": "linear_flops_check", "grade": true, "points": 6}
check.linear_flops(linear_flops)
### BEGIN HIDDEN TESTS
check.linear_flops(linear_flops, hidden=True)
### END HIDDEN TESTS

# %% [markdown] nbgrader={"grade_id": "parameters_text"}
# ## 2. What multiplies (10 points)
#
# A transformer such as LLaMA, with L layers of width h and a vocabulary of V words, has
#
# - an embedding: h numbers for each word. A token looks up its row,
# - in each layer
#     - two norms, each with a gain of h numbers,
#     - for attention with a heads, each d = h/a wide: a matrix from h to h for queries; for keys and for values one from h
#       to g · d each, as there are only g heads of these (*grouped-query* attention); and one from h to h behind it,
#     - an MLP with a gate: two matrices from h to f, and one from f back to h,
# - a last norm, and
# - an output matrix from h to V. If it is *tied*, it is the embedding once more, not another matrix.
#
# There is no bias anywhere. Positions are turned into rotations, which have no parameters.
#
# How many parameters has it? And with how many of them is each token *multiplied*, in a product of matrices? The gains of
# the norms are not part of a product of matrices. To look up a row is no product. The output matrix is multiplied, tied or
# not. This second number is the one behind the rule of thumb "6 N FLOPs a token".

# %% nbgrader={"grade_id": "parameters", "solution": true}
def parameters(L, h, a, g, f, V, tied):
    """The parameters of a LLaMA.

    L: layers.  h: width.  a: heads; they divide h.  g: heads of keys and values.  f: width inside the MLP.
    V: words of the vocabulary.  tied: whether output and embedding share a matrix.
    Returns a dict of whole numbers: {"all": …, "multiplied": …}.
    """
    ### BEGIN SOLUTION
    attention = 2 * h * h + 2 * h * g * (h // a)
    matrices = L * (attention + 3 * h * f)
    norms = (2 * L + 1) * h
    return {"all": matrices + norms + (1 if tied else 2) * V * h, "multiplied": matrices + V * h}
    ### END SOLUTION

# %% nbgrader={"grade_id": "parameters_check", "grade": true, "points": 10}
check.parameters(parameters)
### BEGIN HIDDEN TESTS
check.parameters(parameters, hidden=True)
### END HIDDEN TESTS

# %% [markdown] nbgrader={"grade_id": "step_flops_text"}
# ## 3. A training step (14 points)
#
# Count the FLOPs of one training step of that model, forward and backward, on B sequences of s tokens. Only products of
# matrices count. All of them are there in backward twice: nothing is left out, and nothing is recomputed.
#
# Besides the matrices of exercise 2, attention itself multiplies. Each of the a heads compares each query with each key,
# d = h/a numbers each, which gives s × s scores a sequence, and then takes the sum of the values, weighted by these. Every
# head of queries does so, whatever g is.
#
# A token looks at earlier ones only, so half of the scores are masked. Conventions differ: if `causal` is true count half of
# attention's own products, otherwise all. (The matrices are as before.)

# %% nbgrader={"grade_id": "step_flops", "solution": true}
def step_flops(L, h, a, g, f, V, s, B, causal):
    """The FLOPs of a training step of a LLaMA.

    L, h, a, g, f, V: as in `parameters`.  s: tokens a sequence.  B: sequences.
    causal: whether half of attention's own products counts, or all.
    Returns a whole number.
    """
    ### BEGIN SOLUTION
    matrices = L * (2 * h * h + 2 * h * g * (h // a) + 3 * h * f) + V * h
    attention = L * 4 * B * s * s * h // (2 if causal else 1)
    return 3 * (2 * B * s * matrices + attention)
    ### END SOLUTION

# %% nbgrader={"grade_id": "step_flops_check", "grade": true, "points": 14}
check.step_flops(step_flops)
### BEGIN HIDDEN TESTS
check.step_flops(step_flops, hidden=True)
### END HIDDEN TESTS

# %% [markdown] nbgrader={"grade_id": "roofline_text"}
# ## 4. The roofline (10 points)
#
# To multiply an m × n by an n × p matrix, a device reads both from memory and writes the result, each number once. Its
# arithmetic does `peak` FLOPs a second, its memory moves `bandwidth` bytes a second, and both work at the same time.
#
# - The product's *intensity* is its FLOPs for each byte moved.
# - The seconds that it takes at least are those of the slower of the two.
# - It is bound by `"compute"` or by `"memory"`: by the slower one. If both take equally long, call it `"compute"`.

# %% nbgrader={"grade_id": "roofline", "solution": true}
def roofline(m, n, p, item, peak, bandwidth):
    """What a product takes at least, and what holds it up.

    m, n, p: the product of an m × n by an n × p matrix.  item: bytes of a number.  peak: FLOPs a second.
    bandwidth: bytes a second.
    Returns a dict: {"intensity": FLOPs a byte, "seconds": …, "bound": "compute" or "memory"}.
    """
    ### BEGIN SOLUTION
    flops, moved = 2 * m * n * p, item * (m * n + n * p + m * p)
    compute, memory = flops / peak, moved / bandwidth
    bound = "compute" if compute >= memory else "memory"
    return {"intensity": flops / moved, "seconds": max(compute, memory), "bound": bound}
    ### END SOLUTION

# %% nbgrader={"grade_id": "roofline_check", "grade": true, "points": 10}
check.roofline(roofline)
### BEGIN HIDDEN TESTS
check.roofline(roofline, hidden=True)
### END HIDDEN TESTS

# %% [markdown] nbgrader={"grade_id": "log_text"}
# ## 5. MFU from a log (16 points)
#
# Here is the log of a run. The number in brackets is the time when a line was written, in seconds.

# %% nbgrader={"grade_id": "log"}
LOG = """\
[    0.0] start: 64 devices
[   95.0] step 1 loss 10.97 tokens 4194304
[  107.0] step 2 loss 10.52 tokens 4194304
[  117.0] step 3 loss 10.11 tokens 4194304
[  127.5] step 4 loss 9.84 tokens 4194304
[  160.0] checkpoint after step 4
[  170.0] step 5 loss 9.61 tokens 4194304
[  180.0] step 6 loss 9.43 tokens 4194304
[  402.0] step 7 loss 9.30 tokens 4194304
[  411.5] step 8 loss 9.14 tokens 4194304
[  700.0] restart from step 4: rank 17 was lost
[  772.0] step 5 loss 9.61 tokens 4194304
[  783.0] step 6 loss 9.43 tokens 4194304
[  793.0] step 7 loss 9.30 tokens 4194304
"""

# %% [markdown] nbgrader={"grade_id": "log_mfu_text"}
# Much goes wrong in it, as it does. The first step compiles. A checkpoint is written. Step 7 waits for a disk. Then a rank
# is lost, and the run goes on from the checkpoint: what came after step 4 is lost, and done again.
#
# Two numbers can be told of it:
#
# - the *steady* MFU, how fast it is when it runs. A step's rate is its tokens over the seconds since the line before it,
#   whatever line that is. Leave out the first `warm_up` steps behind the start and behind each restart; of the rates of all
#   others take the median (`statistics.median`). That a step's work was lost later doesn't make its rate less true.
# - the MFU of the *run*, what came of it in all: the tokens of all steps whose work is there at the end, over the seconds
#   from the first line to the last. A step that was done twice counts once.
#
# From tokens a second comes MFU by the FLOPs of a token, the number of devices, and the peak of one. Steps needn't have
# equally many tokens. There may be several restarts, and lines of kinds that you don't see here: they tell nothing, but the
# time.

# %% nbgrader={"grade_id": "log_mfu", "solution": true}
def log_mfu(log, flops_per_token, peak, devices, warm_up):
    """MFU from a log.

    log: text, as above.  flops_per_token: model FLOPs of training.  peak: of one device, FLOPs a second.
    devices: how many there are.  warm_up: steps that are left out after each start.
    Returns a dict of fractions: {"steady": …, "run": …}.
    """
    ### BEGIN SOLUTION
    lines = [(float(at), text) for at, text in re.findall(r"^\[ *([\d.]+)\] (.*)$", log, re.MULTILINE)]
    done, rates, since_start, before = {}, [], 0, lines[0][0]
    for at, text in lines:
        if restart := re.match(r"restart from step (\d+)", text):
            done = {step: tokens for step, tokens in done.items() if step <= int(restart[1])}
            since_start = 0
        elif step := re.match(r"step (\d+) .*tokens (\d+)", text):
            done[int(step[1])] = tokens = int(step[2])
            since_start += 1
            if since_start > warm_up:
                rates.append(tokens / (at - before))
        before = at
    run = sum(done.values()) / (lines[-1][0] - lines[0][0])
    return {name: rate * flops_per_token / (devices * peak)
            for name, rate in (("steady", statistics.median(rates)), ("run", run))}
    ### END SOLUTION

# %% nbgrader={"grade_id": "log_mfu_check", "grade": true, "points": 16}
check.log_mfu(log_mfu)
### BEGIN HIDDEN TESTS
check.log_mfu(log_mfu, hidden=True)
### END HIDDEN TESTS

# %% [markdown] nbgrader={"grade_id": "claims_text"}
# ## 6. What is wrong with this claim? (16 points)
#
# Three claims, such as stand in papers, posts and on slides. (They are made up. Mistakes of these kinds are not.)
#
# > **A.** Our 7B model trains on 256 H100 in bf16 at **23.4%** MFU; all of our measurements are in the appendix.
# >
# > **B.** Thanks to activation recomputation, a context of 8,192 tokens fits on 64 A100. We reach **53.2%** MFU.
# >
# > **C.** We ran 12 steps on 16 B200, and report a mean of **31.8%** MFU.
#
# Here is what their appendices say, and what the devices can do:

# %% nbgrader={"grade_id": "claims"}
#: FLOPs a second of dense products, by device and precision. Those with sparsity ("2:4") are twice as large.
PEAKS = {
    "A100 SXM 80GB": {"fp32": 19.5e12, "tf32": 156e12, "bf16": 312e12},
    "H100 SXM": {"fp32": 66.9e12, "tf32": 494.7e12, "bf16": 989.4e12},
    "B200": {"fp32": 80e12, "tf32": 1100e12, "bf16": 2250e12},
}

CLAIMS = [
    {"device": "H100 SXM", "devices": 256, "precision": "bf16", "tokens": 4_194_304, "warm_up": 2,
     "seconds": [9.83, 1.74, 1.52, 1.515, 1.516, 1.519, 1.514, 1.517, 1.516],
     "multiplied": 6_607_077_376, "embedding": 131_072_000, "attention": 3_221_225_472, "recomputed": 0, "percent": 23.4},
    {"device": "A100 SXM 80GB", "devices": 64, "precision": "bf16", "tokens": 1_048_576, "warm_up": 1,
     "seconds": [8.41, 6.9, 6.88, 6.89, 6.887, 6.88, 6.885, 6.893],
     "multiplied": 6_607_077_376, "embedding": 131_072_000, "attention": 12_884_901_888, "recomputed": 17_246_978_048,
     "percent": 53.2},
    {"device": "B200", "devices": 16, "precision": "bf16", "tokens": 524_288, "warm_up": 2,
     "seconds": [6.92, 2.31, 1.6, 1.61, 1.61, 1.6, 1.61, 1.62, 1.6, 1.61, 1.61, 1.6],
     "multiplied": 6_607_077_376, "embedding": 131_072_000, "attention": 6_442_450_944, "recomputed": 0, "percent": 31.8},
]

# %% [markdown] nbgrader={"grade_id": "audit_text"}
# Each claim tells, besides the `device`, how many `devices` there are, and the `precision` of the products:
#
# | | |
# |---|---|
# | `tokens` | of a step, all devices together |
# | `seconds` | of each step that was timed, in order; the first `warm_up` of them are warming up |
# | `multiplied` | parameters with which a token is multiplied: 6 FLOPs each, forward and backward |
# | `embedding` | parameters of the embedding at the input, in which a token looks up a row |
# | `attention` | FLOPs a token of attention's own products, forward and backward |
# | `recomputed` | FLOPs a token that are computed a second time |
# | `percent` | the MFU that is claimed, in percent, rounded to one decimal |
#
# What is the MFU? It is that of the median step behind the warm-up, from the FLOPs that the model needs, against the dense
# peak of the precision that was used. If the claim says the same, well and good. If not, one of these was done in its place:
#
# | | |
# |---|---|
# | `"sparse"` | the peak is the one with sparsity |
# | `"precision"` | the peak is the dense one of another precision of that device |
# | `"recomputation"` | what is recomputed is counted, too: that is HFU |
# | `"embedding"` | the embedding at the input is counted as if a token were multiplied with it |
# | `"warm-up"` | the time is the mean of all steps, those of the warm-up included |
#
# Find which one gives the claimed figure. Never more than one does.

# %% nbgrader={"grade_id": "audit", "solution": true}
def audit(claim):
    """The MFU of a run, and what is wrong with the one that is claimed.

    claim: a dict, as above.
    Returns a dict: {"mfu": the right one, a fraction, "error": one of the five names, or None if the claim is right}.
    """
    ### BEGIN SOLUTION
    peaks, precision, times = PEAKS[claim["device"]], claim["precision"], claim["seconds"]
    flops, seconds = 6 * claim["multiplied"] + claim["attention"], statistics.median(times[claim["warm_up"]:])

    def mfu(flops=flops, seconds=seconds, peak=peaks[precision]):
        return claim["tokens"] * flops / (seconds * claim["devices"] * peak)

    ways = [
        (None, mfu()),
        ("sparse", mfu(peak=2 * peaks[precision])),
        *(("precision", mfu(peak=peak)) for other, peak in peaks.items() if other != precision),
        ("recomputation", mfu(flops + claim["recomputed"])),
        ("embedding", mfu(flops + 6 * claim["embedding"])),
        ("warm-up", mfu(seconds=statistics.mean(times))),
    ]
    error, _ = min(ways, key=lambda way: abs(100 * way[1] - claim["percent"]))
    return {"mfu": mfu(), "error": error}
    ### END SOLUTION

# %% nbgrader={"grade_id": "audit_check", "grade": true, "points": 16}
check.audit(audit)
### BEGIN HIDDEN TESTS
check.audit(audit, hidden=True)
### END HIDDEN TESTS

# %% [markdown] nbgrader={"grade_id": "utilizations_text"}
# ## 7. MFU and HFU (8 points)
#
# A model has L equal layers. The forward of one takes `layer` FLOPs; `core` of these are attention's own products, which
# *selective* recomputation repeats. The output matrix, behind the layers, takes `output` FLOPs more, forward. Backward takes
# twice what forward does.
#
# In backward, `full` of the layers are computed again as a whole; of `selective` others only the core is. The rest keep
# their activations, and nothing of the output matrix is computed twice.
#
# - MFU counts what the model needs, HFU what the hardware does.
# - Without any recomputation the activations wouldn't fit. If they did, and the hardware did as many FLOPs a second as it
#   does now, how long would a step take?

# %% nbgrader={"grade_id": "utilizations", "solution": true}
def utilizations(L, layer, core, output, full, selective, seconds, peak):
    """MFU and HFU of a step on one device, and what recomputation costs.

    L: layers.  layer, core, output: FLOPs, forward, of a layer, of attention's own products in it, of the output matrix.
    full, selective: layers that are computed again, as a whole, or their core.  seconds: of a step.
    peak: FLOPs a second.
    Returns a dict: {"mfu": …, "hfu": …, "seconds": of a step if nothing were recomputed}.
    """
    ### BEGIN SOLUTION
    model = 3 * (L * layer + output)
    hardware = model + full * layer + selective * core
    mfu, hfu = model / (seconds * peak), hardware / (seconds * peak)
    return {"mfu": mfu, "hfu": hfu, "seconds": seconds * mfu / hfu}
    ### END SOLUTION

# %% nbgrader={"grade_id": "utilizations_check", "grade": true, "points": 8}
check.utilizations(utilizations)
### BEGIN HIDDEN TESTS
check.utilizations(utilizations, hidden=True)
### END HIDDEN TESTS

# %% [markdown] nbgrader={"grade_id": "product_seconds_text"}
# ## 8. Measure (8 points)
#
# How fast is a product of two n × n matrices, on the device at hand? Time it. If this machine has a GPU, the check below
# runs your function there, with `device="cuda"`; otherwise, and when it is graded, on the processor, with `device="cpu"`.
#
# - Fill both matrices with random numbers, once, before anything is timed. (With zeros a GPU takes less power, and is
#   faster.)
# - The first products are slower: memory is still to be found, a kernel to be chosen, the clock to rise. Carry out `warm_up`
#   of them that don't count.
# - Then time `repeat` products, each by itself.
# - A call that works on a GPU comes back before the GPU is done. `torch.cuda.synchronize()` waits for it: before a clock is
#   started, and before it is stopped. On a processor there is nothing to wait for.
#
# `time.perf_counter()` is a clock.

# %% nbgrader={"grade_id": "product_seconds", "solution": true}
def product_seconds(n, dtype, device, warm_up, repeat):
    """The time of a product of two matrices, measured.

    n: side of both.  dtype: of their numbers, as torch.float32.  device: "cpu" or "cuda".
    warm_up: products that don't count.  repeat: products that do.
    Returns a list of `repeat` times, in seconds.
    """
    ### BEGIN SOLUTION
    def now():
        if device == "cuda":
            torch.cuda.synchronize()
        return time.perf_counter()

    a, b = (torch.randn(n, n, device=device, dtype=dtype) for _ in range(2))
    for _ in range(warm_up):
        a @ b
    times = []
    for _ in range(repeat):
        begin = now()
        a @ b
        times.append(now() - begin)
    return times
    ### END SOLUTION

# %% nbgrader={"grade_id": "product_seconds_check", "grade": true, "points": 8}
check.product_seconds(product_seconds)
### BEGIN HIDDEN TESTS
check.product_seconds(product_seconds, hidden=True)
### END HIDDEN TESTS

# %% [markdown] nbgrader={"grade_id": "run_text"}
# ## 9. The ladder (12 points)
#
# A *ladder* trains the same model in one way after the other, with one thing changed at each rung: the precision, how
# attention is computed, the batch, … Here is one that was measured. Where it comes from depends on where you are, and the
# cell says which case you are in:
#
# 1. If this machine has a GPU, a short ladder is climbed on it, now.
# 2. If not, but the course has a recorded run of a real GPU, it is that one.
# 3. If there is neither, a small model climbs a short ladder on this machine's processor, now. No datasheet tells its peak,
#    so its best product, measured here, stands in for it.
#
# Your function is checked with this run, and with others that are made up. When it is graded, a GPU of the grader's machine
# is left alone: case 2 or 3 holds there.

# %% nbgrader={"grade_id": "run"}
run = check.ladder.run()

# %% [markdown] nbgrader={"grade_id": "ladder_text"}
# `run` is a dict. `run["peaks"]` holds the device's peak in each precision, in FLOPs a second, or None where none is known;
# `run["best"]` what the best product reached. Each of `run["rungs"]`, from the lowest to the highest, has a `name`, the
# `precision` of its products, and of a step the `tokens`, the `model_flops`, the `hardware_flops` (with what is recomputed),
# and the `seconds`. A rung that could not be measured, as one that ran out of memory, has None for seconds.
#
# For each rung tell
#
# - `"mfu"` and `"hfu"`, against the peak of *its* precision; None where no peak is known, for a wrong one would be worse;
# - `"of_best"`: its model FLOPs a second, as a share of what the best product in its precision reached;
# - `"gain"`: how many times as many tokens a second it does as the rung below, or rather the nearest one below that was
#   measured; None if there is none.
#
# For a rung that wasn't measured tell None, in place of the dict. Then ask yourself: which step up was the largest? Did MFU
# and tokens a second always rise together?

# %% nbgrader={"grade_id": "ladder", "solution": true}
def ladder(run):
    """MFU, HFU, share of the best product and gain of each rung.

    run: a dict, as above.
    Returns a list, one a rung: {"mfu": …, "hfu": …, "of_best": …, "gain": …}, or None.
    """
    ### BEGIN SOLUTION
    found, below = [], None
    for rung in run["rungs"]:
        if rung["seconds"] is None:
            found.append(None)
            continue
        peak, best = run["peaks"][rung["precision"]], run["best"][rung["precision"]]
        model, hardware, tokens = (rung[of] / rung["seconds"] for of in ("model_flops", "hardware_flops", "tokens"))
        found.append({"mfu": peak and model / peak, "hfu": peak and hardware / peak, "of_best": model / best,
                      "gain": below and tokens / below})
        below = tokens
    return found
    ### END SOLUTION

# %% nbgrader={"grade_id": "ladder_check", "grade": true, "points": 12}
check.ladder(ladder)
### BEGIN HIDDEN TESTS
check.ladder(ladder, hidden=True)
### END HIDDEN TESTS

# %% [markdown] nbgrader={"grade_id": "end"}
# When you read the next MFU, ask five things: which FLOPs, which tokens, which seconds, which peak, how many devices. The
# library's `mlsyslab.mfu` keeps them apart, and `python -m mlsyslab.bench mfu` climbs the whole ladder on your device.
