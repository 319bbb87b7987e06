"""Known-wrong solutions of the lab `mfu`."""

from __future__ import annotations

import re
import statistics
import time

import torch
from known_wrong import KnownWrong

from mlsyslab import measure, mfu, model
from mlsyslab.check.mfu.audits import ERRORS, PEAKS, readings
from mlsyslab.check.mfu.ladders import rate, read
from mlsyslab.check.mfu.recomputing import flops as model_and_hardware

wrong = KnownWrong()

# -- 1. one product ---------------------------------------------------------------------------------------------------


@wrong("linear_flops", "two FLOPs: a multiplication and an addition")
def linear_flops_of_multiplications(B, s, n, p, input_gradient):
    return {"forward": B * s * n * p, "backward": B * s * n * p * (1 + input_gradient)}


@wrong("linear_flops", "In backward there are two products")
def linear_flops_backward_as_forward(B, s, n, p, input_gradient):
    return {"forward": 2 * B * s * n * p, "backward": 2 * B * s * n * p}


@wrong("linear_flops", "Is `input_gradient` used?")
def linear_flops_always_twice(B, s, n, p, input_gradient):
    return {"forward": 2 * B * s * n * p, "backward": 4 * B * s * n * p}


@wrong("linear_flops", "Is `B` used?")
def linear_flops_of_one_sequence(B, s, n, p, input_gradient):
    return {"forward": 2 * s * n * p, "backward": 2 * s * n * p * (1 + input_gradient)}


@wrong("linear_flops", "That is for one token")
def linear_flops_of_one_token(B, s, n, p, input_gradient):
    return {"forward": 2 * n * p, "backward": 2 * n * p * (1 + input_gradient)}


@wrong("linear_flops", "That is forward and backward together")
def linear_flops_backward_with_forward(B, s, n, p, input_gradient):
    return {"forward": 2 * B * s * n * p, "backward": 2 * B * s * n * p * (2 + input_gradient)}


@wrong("linear_flops", "everybody counts 2 FLOPs for each of the n terms")
def linear_flops_with_one_addition_less(B, s, n, p, input_gradient):
    return {"forward": B * s * (2 * n - 1) * p, "backward": 2 * B * s * n * p * (1 + input_gradient)}


@wrong("linear_flops", "expected a dict with the keys")
def linear_flops_in_all(B, s, n, p, input_gradient):
    return 2 * B * s * n * p * (2 + input_gradient)


@wrong("linear_flops", "expected a number: FLOPs")
def linear_flops_as_text(B, s, n, p, input_gradient):
    return {"forward": f"{2 * B * s * n * p / 1e12} TFLOPs", "backward": 0}


@wrong("linear_flops", "mlsyslab.model is called")
def linear_flops_of_the_library(B, s, n, p, input_gradient):
    product = model.matmul_flops(B * s, n, p)
    return {"forward": product, "backward": product * (1 + input_gradient)}


# -- 2. what multiplies -----------------------------------------------------------------------------------------------


def llama(L, h, a, g, f, V, tied, *, wide=None, three=3, outer=1, norms=2, last=1, gain=1, looked_up=0, output=1, own=None):
    """The right answer, but for what is given."""
    matrices = L * ((1 + outer) * h * h + h * (2 * g * (h // a) if wide is None else wide) + three * h * f)
    gains = gain * (norms * L + last) * h
    untied = not tied if own is None else own
    return {"all": matrices + gains + V * h + untied * V * h, "multiplied": matrices + (output + looked_up) * V * h}


@wrong("parameters", "The MLP has a gate")
def parameters_without_a_gate(*shape):
    return llama(*shape, three=2)


@wrong("parameters", "Is `g` used?")
def parameters_with_all_heads(L, h, *rest):
    return llama(L, h, *rest, wide=2 * h)


@wrong("parameters", "g heads of keys, and g of values")
def parameters_of_one_head(L, h, a, *rest):
    return llama(L, h, a, *rest, wide=2 * (h // a))


@wrong("parameters", "not h/g")
def parameters_of_wide_groups(L, h, a, g, *rest):
    return llama(L, h, a, g, *rest, wide=2 * h // g)


@wrong("parameters", "Keys and values have a matrix each")
def parameters_of_keys_alone(L, h, a, g, *rest):
    return llama(L, h, a, g, *rest, wide=g * (h // a))


@wrong("parameters", "behind attention, from h to h, is left out")
def parameters_without_the_projection(*shape):
    return llama(*shape, outer=0)


@wrong("parameters", "a gain only, no bias")
def parameters_with_biases_of_norms(*shape):
    return llama(*shape, gain=2)


@wrong("parameters", "The last norm")
def parameters_without_the_last_norm(*shape):
    return llama(*shape, last=0)


@wrong("parameters", "two norms in a layer")
def parameters_with_one_norm(*shape):
    return llama(*shape, norms=1)


@wrong("parameters", "a token looks up its row")
def parameters_that_multiply_the_embedding(*shape):
    return llama(*shape, looked_up=1)


@wrong("parameters", "multiplied, tied or not")
def parameters_without_the_tied_output(*given):
    return llama(*given, output=int(not given[-1]))


@wrong("parameters", "Is `tied` used the right way?")
def parameters_untied(*shape):
    return llama(*shape, own=True)


@wrong("parameters", "Those are all parameters")
def parameters_that_all_multiply(*shape):
    found = llama(*shape)
    return found | {"multiplied": found["all"]}


@wrong("parameters", "mlsyslab.model is called")
def parameters_of_the_library(L, h, a, g, f, V, tied):
    return llama(L, h, a, g, f, V, tied) | {"all": model.parameters(model.Config(L, h, a, V, 1))}


# -- 3. a training step -----------------------------------------------------------------------------------------------


def step(L, h, a, g, f, V, s, B, causal, *, passes=3, core=None, looked_up=0, halved=None, **other):
    """The right answer, but for what is given.  core: FLOPs of attention's own products, of a layer and sequence."""
    many = llama(L, h, a, g, f, V, True, **other)["multiplied"] + looked_up * V * h
    own = L * B * (4 * s * s * h if core is None else core)
    return passes * (2 * B * s * many + own // (2 if (causal if halved is None else halved) else 1))


@wrong("step_flops", "That is forward alone")
def step_flops_forward(*given):
    return step(*given, passes=1)


@wrong("step_flops", "Backward takes twice what forward does")
def step_flops_backward_as_forward(*given):
    return step(*given, passes=2)


@wrong("step_flops", "Nothing is recomputed")
def step_flops_recomputed(*given):
    return step(*given, passes=4)


@wrong("step_flops", "Attention's own products are left out")
def step_flops_six_n(*given):
    return step(*given, core=0)


@wrong("step_flops", "Attention multiplies twice")
def step_flops_of_scores_only(L, h, a, g, f, V, s, B, causal):
    return step(L, h, a, g, f, V, s, B, causal, core=2 * s * s * h)


@wrong("step_flops", "a of them, whatever g is")
def step_flops_with_few_scores(L, h, a, g, f, V, s, B, causal):
    return step(L, h, a, g, f, V, s, B, causal, core=4 * s * s * g * (h // a))


@wrong("step_flops", "The heads are d = h/a wide")
def step_flops_with_wide_heads(L, h, a, g, f, V, s, B, causal):
    return step(L, h, a, g, f, V, s, B, causal, core=4 * s * s * h * a)


@wrong("step_flops", "s × s scores a sequence")
def step_flops_linear_attention(L, h, a, g, f, V, s, B, causal):
    return step(L, h, a, g, f, V, s, B, causal, core=4 * s * h)


@wrong("step_flops", "A token attends to its own sequence")
def step_flops_across_the_batch(L, h, a, g, f, V, s, B, causal):
    return step(L, h, a, g, f, V, s, B, causal, core=4 * s * s * h * B)


@wrong("step_flops", "Is `causal` used?")
def step_flops_never_causal(*given):
    return step(*given, halved=False)


@wrong("step_flops", "the matrices count in full")
def step_flops_all_halved(*given):
    return step(*given, halved=False) // (2 if given[-1] else 1)


@wrong("step_flops", "is a look-up, not a product")
def step_flops_with_the_embedding(*given):
    return step(*given, looked_up=1)


@wrong("step_flops", "The output matrix is left out")
def step_flops_without_the_output(*given):
    return step(*given, output=0)


@wrong("step_flops", "The MLP has a gate")
def step_flops_without_a_gate(*given):
    return step(*given, three=2)


@wrong("step_flops", "Is `B` used?")
def step_flops_of_one_sequence(L, h, a, g, f, V, s, B, causal):
    return step(L, h, a, g, f, V, s, 1, causal)


@wrong("step_flops", "mlsyslab.mfu is called")
def step_flops_of_the_library(L, h, a, g, f, V, s, B, causal):
    mfu.claim("no such claim")


# -- 4. the roofline --------------------------------------------------------------------------------------------------


def line(m, n, p, item, peak, bandwidth, *, flops=None, moved=None, together=max, least="compute"):
    flops = 2 * m * n * p if flops is None else flops
    moved = item * (m * n + n * p + m * p) if moved is None else moved
    compute, memory = flops / peak, moved / bandwidth
    bound = "compute" if compute > memory else "memory" if memory > compute else least
    return {"intensity": flops / moved, "seconds": together(compute, memory), "bound": bound}


@wrong("roofline", "two FLOPs")
def roofline_of_multiplications(m, n, p, *rest):
    return line(m, n, p, *rest, flops=m * n * p)


@wrong("roofline", "The result is written, too")
def roofline_of_what_is_read(m, n, p, item, *rest):
    return line(m, n, p, item, *rest, moved=item * (m * n + n * p))


@wrong("roofline", "FLOPs for each number")
def roofline_of_numbers(m, n, p, item, *rest):
    return line(m, n, p, item, *rest, moved=m * n + n * p + m * p)


@wrong("roofline", "bytes for each FLOP")
def roofline_upside_down(*given):
    found = line(*given)
    return found | {"intensity": 1 / found["intensity"]}


@wrong("roofline", "Both work at the same time")
def roofline_of_the_sum(*given):
    return line(*given, together=lambda *both: sum(both))


@wrong("roofline", "That is what arithmetic takes")
def roofline_of_arithmetic(*given):
    return line(*given, together=lambda compute, memory: compute)


@wrong("roofline", "waits for the slower of the two")
def roofline_of_the_faster(*given):
    return line(*given, together=min)


@wrong("roofline", "the slower one holds it up")
def roofline_with_bounds_exchanged(*given):
    found = line(*given)
    return found | {"bound": {"compute": "memory", "memory": "compute"}[found["bound"]]}


@wrong("roofline", "Both take equally long here")
def roofline_memory_at_the_ridge(*given):
    return line(*given, least="memory")


@wrong("roofline", "the device's ridge")
def roofline_of_the_ridge(m, n, p, item, peak, bandwidth):
    return line(m, n, p, item, peak, bandwidth) | {"intensity": peak / bandwidth}


@wrong("roofline", "mlsyslab.mfu is called")
def roofline_of_the_library(m, n, p, item, peak, bandwidth):
    return line(m, n, p, item, peak, bandwidth) | {"intensity": mfu.ridge("H100 SXM")}


# -- 5. a log ---------------------------------------------------------------------------------------------------------


def logged(log, flops_per_token, peak, devices, warm_up, *, again=True, from_step=False, middle=statistics.median, lost=True,
           twice=False, redone=True, first_step=False, to_step=False, of_steps=False, equal=False, more=0, unique=False):
    """The right answer, but for what is given."""
    lines = [(float(at), text) for at, text in re.findall(r"^\[ *([\d.]+)\] (.*)$", log, re.MULTILINE)]
    done, rates, since, before, marks, alone = [], [], 0, lines[0][0], [], 0.0
    for at, text in lines:
        if restart := re.match(r"restart from step (\d+)", text):
            kept = [one for one in done if one[0] <= int(restart[1]) + more]
            if not lost:
                rates = [rate for rate in rates if rate[0] <= int(restart[1])]
            done = done if twice or not redone else kept
            since = 0 if again else since
        elif found := re.match(r"step (\d+) .*tokens (\d+)", text):
            number, tokens = map(int, found.groups())
            done.append((number, tokens))
            since += 1
            alone += at - before
            if since > warm_up:
                rates.append((number, tokens / (at - (marks[-1] if from_step and marks else before))))
            marks.append(at)
        if restart:
            marks.append(at)
        before = at
    stepped = [at for at, text in lines if text.startswith("step")]
    start, end = stepped[0] if first_step else lines[0][0], stepped[-1] if to_step else lines[-1][0]
    if unique or not redone:
        done = list(dict(done).items())
    tokens = len(done) * done[0][1] if equal else sum(tokens for _, tokens in done)
    unit = flops_per_token / devices / peak
    seconds = alone if of_steps else end - start
    return {"steady": middle([rate for _, rate in rates]) * unit, "run": tokens / seconds * unit}


@wrong("log_mfu", "The steps of the warm-up are counted, too")
def log_mfu_with_the_warm_up(log, flops_per_token, peak, devices, warm_up):
    return logged(log, flops_per_token, peak, devices, 0)


@wrong("log_mfu", "Behind a restart there is a warm-up again")
def log_mfu_with_one_warm_up(*given):
    return logged(*given, again=False)


@wrong("log_mfu", "to write a checkpoint is not part of a step")
def log_mfu_with_checkpoints_in_steps(*given):
    return logged(*given, from_step=True)


@wrong("log_mfu", "That is the mean; one stall spoils it")
def log_mfu_of_the_mean(*given):
    return logged(*given, middle=statistics.mean)


@wrong("log_mfu", "the mean of the middle two")
def log_mfu_of_the_upper_middle(*given):
    return logged(*given, middle=lambda found: sorted(found)[len(found) // 2])


@wrong("log_mfu", "their rates are as true")
def log_mfu_without_lost_steps(*given):
    return logged(*given, lost=False)


@wrong("log_mfu", "counted twice")
def log_mfu_counting_lost_work(*given):
    return logged(*given, twice=True)


@wrong("log_mfu", "lost and never done again")
def log_mfu_by_the_number_of_the_step(*given):
    return logged(*given, redone=False)


@wrong("log_mfu", "keeps the steps up to r")
def log_mfu_keeping_one_too_few(*given):
    return logged(*given, more=-1)


@wrong("log_mfu", "keeps the steps up to r")
def log_mfu_keeping_one_too_many(*given):
    return logged(*given, more=1)


@wrong("log_mfu", "keeps the steps up to r")
def log_mfu_keeping_one_that_is_done_again(*given):
    """By its number, so that only a step that is never done again tells."""
    return logged(*given, more=1, unique=True)


@wrong("log_mfu", "the first step takes time, too")
def log_mfu_from_the_first_step(*given):
    return logged(*given, first_step=True)


@wrong("log_mfu", "The time runs to the last line")
def log_mfu_to_the_last_step(*given):
    return logged(*given, to_step=True)


@wrong("log_mfu", "That is the time of the steps alone")
def log_mfu_of_the_steps_alone(*given):
    return logged(*given, of_steps=True)


@wrong("log_mfu", "Steps needn't have equally many tokens")
def log_mfu_with_equal_steps(*given):
    return logged(*given, equal=True)


@wrong("log_mfu", "Is `devices` used?")
def log_mfu_of_one_device(log, flops_per_token, peak, devices, warm_up):
    return logged(log, flops_per_token, peak, 1, warm_up)


@wrong("log_mfu", "in percent; a fraction is asked for")
def log_mfu_in_percent(*given):
    return {name: 100 * value for name, value in logged(*given).items()}


@wrong("log_mfu", "mlsyslab.measure is called")
def log_mfu_of_the_library(log, flops_per_token, peak, devices, warm_up):
    return {"steady": measure.utilization(flops_per_token, 1.0, peak, devices), "run": 0.1}


# -- 6. claims --------------------------------------------------------------------------------------------------------


def audited(claim, *, flops=None, seconds=None, peak=None, devices=None):
    """The right answer, but for what is given, the same for MFU and error."""
    found = 6 * claim["multiplied"] + claim["attention"] if flops is None else flops
    taken = statistics.median(claim["seconds"][claim["warm_up"]:]) if seconds is None else seconds
    most = (devices or claim["devices"]) * (peak or PEAKS[claim["device"]][claim["precision"]])
    error, _ = min(readings(claim), key=lambda reading: abs(100 * reading[1] - claim["percent"]))
    return {"mfu": claim["tokens"] * found / taken / most, "error": error}


@wrong("audit", "The peak is the one with sparsity")
def audit_with_sparse_peaks(claim):
    return audited(claim, peak=2 * PEAKS[claim["device"]][claim["precision"]])


@wrong("audit", "that is HFU")
def audit_of_hfu(claim):
    return audited(claim, flops=6 * claim["multiplied"] + claim["attention"] + claim["recomputed"])


@wrong("audit", "The embedding at the input is counted")
def audit_with_the_embedding(claim):
    return audited(claim, flops=6 * (claim["multiplied"] + claim["embedding"]) + claim["attention"])


@wrong("audit", "The steps of the warm-up are in the mean")
def audit_of_the_mean(claim):
    return audited(claim, seconds=statistics.mean(claim["seconds"]))


@wrong("audit", "Take the median of those behind the warm-up")
def audit_of_the_warm_mean(claim):
    return audited(claim, seconds=statistics.mean(claim["seconds"][claim["warm_up"]:]))


@wrong("audit", "The peak is that of another precision")
def audit_in_bf16_always(claim):
    return audited(claim, peak=PEAKS[claim["device"]]["bf16"])


@wrong("audit", "Attention's own products are left out")
def audit_by_six_n(claim):
    return audited(claim, flops=6 * claim["multiplied"])


@wrong("audit", "A parameter takes 6 FLOPs a token")
def audit_of_forward(claim):
    return audited(claim, flops=2 * claim["multiplied"] + claim["attention"])


@wrong("audit", "Is `devices` used?")
def audit_of_one_device(claim):
    return audited(claim, devices=1)


@wrong("audit", "That is the claim's own")
def audit_that_believes(claim):
    return {"mfu": claim["percent"] / 100, "error": None}


@wrong("audit", "it would have come to")
def audit_of_the_printed_claims(claim):
    """Hard-coded: by the device, as in the three that the lab prints."""
    known = {"H100 SXM": "sparse", "A100 SXM 80GB": "recomputation", "B200": "warm-up"}
    return audited(claim) | {"error": known[claim["device"]]}


@wrong("audit", "nothing is wrong with it")
def audit_that_finds_fault_with_everything(claim):
    near = [reading for reading in readings(claim) if reading[0]]
    return audited(claim) | {"error": min(near, key=lambda reading: abs(100 * reading[1] - claim["percent"]))[0]}


@wrong("audit", "something is wrong with it")
def audit_that_finds_no_fault(claim):
    return audited(claim) | {"error": None}


@wrong("audit", "expected one of None")
def audit_in_own_words(claim):
    found = audited(claim)
    return found | {"error": found["error"] and f"{found['error']} peak"}


@wrong("audit", "expected a dict with the keys")
def audit_that_gives_the_error_alone(claim):
    return ERRORS[0]


# -- 7. MFU and HFU ---------------------------------------------------------------------------------------------------


def told(L, layer, core, output, full, selective, seconds, peak, *, model=None, hardware=None, less=None):
    """The right answer, but for what is given."""
    right = model_and_hardware(L, layer, core, output, full, selective)
    model, hardware = right[0] if model is None else model, right[1] if hardware is None else hardware
    return {"mfu": model / seconds / peak, "hfu": hardware / seconds / peak,
            "seconds": seconds * right[0] / right[1] if less is None else less}


@wrong("utilizations", "That is MFU: HFU counts")
def utilizations_without_recomputation(L, layer, core, output, *rest):
    return told(L, layer, core, output, *rest, hardware=3 * (L * layer + output))


@wrong("utilizations", "That is HFU: MFU counts")
def utilizations_exchanged(*given):
    found = told(*given)
    return found | {"mfu": found["hfu"], "hfu": found["mfu"]}


@wrong("utilizations", "Not everything is computed again")
def utilizations_by_four_thirds(L, layer, core, output, *rest):
    return told(L, layer, core, output, *rest, hardware=4 * (L * layer + output))


@wrong("utilizations", "Nothing of the output matrix is computed twice")
def utilizations_with_the_output_again(L, layer, core, output, full, selective, *rest):
    more = 3 * (L * layer + output) + full * layer + selective * core + output
    return told(L, layer, core, output, full, selective, *rest, hardware=more)


@wrong("utilizations", "Of the `selective` layers only the core")
def utilizations_with_whole_selective_layers(L, layer, core, output, full, selective, *rest):
    more = 3 * (L * layer + output) + (full + selective) * layer
    return told(L, layer, core, output, full, selective, *rest, hardware=more)


@wrong("utilizations", "Of the `selective` layers the core is computed again")
def utilizations_without_selective(L, layer, core, output, full, selective, *rest):
    return told(L, layer, core, output, full, selective, *rest, hardware=3 * (L * layer + output) + full * layer)


@wrong("utilizations", "That is forward alone")
def utilizations_of_forward(L, layer, core, output, *rest):
    return told(L, layer, core, output, *rest, model=L * layer + output)


@wrong("utilizations", "The output matrix is left out")
def utilizations_without_the_output(L, layer, core, output, *rest):
    return told(L, layer, core, output, *rest, model=3 * L * layer)


@wrong("utilizations", "turn the ratio over")
def utilizations_that_get_slower(*given):
    found = told(*given)
    return found | {"seconds": given[-2] * found["hfu"] / found["mfu"]}


@wrong("utilizations", "3/4 holds if")
def utilizations_of_three_quarters(*given):
    return told(*given, less=0.75 * given[-2])


@wrong("utilizations", "not its peak")
def utilizations_at_the_peak(L, layer, core, output, full, selective, seconds, peak):
    return told(L, layer, core, output, full, selective, seconds, peak, less=3 * (L * layer + output) / peak)


# -- 8. measuring -----------------------------------------------------------------------------------------------------


def timed(n, dtype, device, warm_up, repeat, *, clock=time.perf_counter, unit=1.0, pair=None):
    """A right way, with the matrices of `pair`, if given."""
    a, b = pair or [torch.randn(n, n, device=device).to(dtype) for _ in range(2)]
    for _ in range(warm_up):
        a @ b
    times = []
    for _ in range(repeat):
        if device == "cuda":
            torch.cuda.synchronize()
        begin = clock()
        a @ b
        if device == "cuda":
            torch.cuda.synchronize()
        times.append((clock() - begin) * unit)
    return times


@wrong("product_seconds", "The warm-up is left out")
def product_seconds_cold(n, dtype, device, warm_up, repeat):
    return timed(n, dtype, device, 0, repeat)


@wrong("product_seconds", "Is `warm_up` used?")
def product_seconds_after_one(n, dtype, device, warm_up, repeat):
    return timed(n, dtype, device, 1, repeat)


@wrong("product_seconds", "Those of the warm-up don't count")
def product_seconds_of_the_warm_up_too(n, dtype, device, warm_up, repeat):
    return timed(n, dtype, device, 0, warm_up + repeat)


@wrong("product_seconds", "the median is a later thought")
def product_seconds_median(*given):
    return statistics.median(timed(*given))


@wrong("product_seconds", "in seconds?")
def product_seconds_in_milliseconds(*given):
    return timed(*given, unit=1000)


@wrong("product_seconds", "all times are the same")
def product_seconds_divided(n, dtype, device, warm_up, repeat):
    times = timed(n, dtype, device, warm_up, repeat)
    return [sum(times) / repeat] * repeat


@wrong("product_seconds", "the times grow and grow")
def product_seconds_since_the_beginning(n, dtype, device, warm_up, repeat):
    times = timed(n, dtype, device, warm_up, repeat)
    return [sum(times[:i + 1]) for i in range(repeat)]


@wrong("product_seconds", "carried out between the two looks at the clock")
def product_seconds_of_nothing(n, dtype, device, warm_up, repeat):
    a, b, times = torch.randn(n, n, dtype=dtype), torch.randn(n, n, dtype=dtype), []
    for _ in range(warm_up + repeat):
        begin = time.perf_counter()
        end = time.perf_counter()
        a @ b
        times.append(end - begin + 1e-9)
    return times[warm_up:]


@wrong("product_seconds", "are `n` and `dtype` used?")
def product_seconds_of_default_numbers(n, dtype, device, warm_up, repeat):
    return timed(n, torch.float32, device, warm_up, repeat)


@wrong("product_seconds", "are there two matrices?")
def product_seconds_of_a_square(n, dtype, device, warm_up, repeat):
    return timed(n, dtype, device, warm_up, repeat, pair=[torch.randn(n, n, dtype=dtype, device=device)] * 2)


@wrong("product_seconds", "one of torch's")
def product_seconds_of_numpy(n, dtype, device, warm_up, repeat):
    a, b, times = torch.randn(n, n).numpy(), torch.randn(n, n).numpy(), []
    for _ in range(warm_up + repeat):
        begin = time.perf_counter()
        a @ b
        times.append(time.perf_counter() - begin)
    return times[warm_up:]


@wrong("product_seconds", "mlsyslab.measure is called")
def product_seconds_of_the_library(n, dtype, device, warm_up, repeat):
    a, b = torch.randn(n, n, dtype=dtype), torch.randn(n, n, dtype=dtype)
    return list(measure.timed(lambda: a @ b, warm_up=warm_up, repeat=repeat, device=device).seconds)


# -- 9. the ladder ----------------------------------------------------------------------------------------------------


def rungs(run, change):
    """The right answer, each entry changed by change(entry, rung, the rungs below that were measured)."""
    found, below = [], []
    for entry, rung in zip(read(run), run["rungs"], strict=True):
        found.append(None if entry is None else entry | change(entry, rung, below))
        if entry is not None:
            below = [*below, rung]
    return found


@wrong("ladder", "this rung computes in")
def ladder_with_one_peak(run):
    peak = next(peak for peak in run["peaks"].values() if peak)
    return rungs(run, lambda entry, rung, _: {"mfu": rate(rung) / peak, "hfu": rate(rung, "hardware_flops") / peak})


@wrong("ladder", "That is MFU: HFU counts what is carried out")
def ladder_without_hfu(run):
    return rungs(run, lambda entry, *_: {"hfu": entry["mfu"]})


@wrong("ladder", "0 would be a wrong one")
def ladder_of_zeros(run):
    return rungs(run, lambda entry, *_: {name: entry[name] or 0 for name in ("mfu", "hfu")})


@wrong("ladder", "none is known in")
def ladder_with_a_borrowed_peak(run):
    peak = max(peak for peak in run["peaks"].values() if peak)
    return rungs(run, lambda entry, rung, _: {
        name: rate(rung, of) / (run["peaks"][rung["precision"]] or peak)
        for name, of in (("mfu", "model_flops"), ("hfu", "hardware_flops"))})


@wrong("ladder", "That is against the lowest rung")
def ladder_from_the_ground(run):
    return rungs(run, lambda entry, rung, below: {"gain": rate(rung, "tokens") / rate(below[0], "tokens")
                                                  if below else None})


@wrong("ladder", "steps needn't have equally many tokens")
def ladder_of_seconds(run):
    return rungs(run, lambda entry, rung, below: {"gain": below[-1]["seconds"] / rung["seconds"] if below else None})


@wrong("ladder", "not by how much more")
def ladder_of_increases(run):
    return rungs(run, lambda entry, *_: {"gain": entry["gain"] and entry["gain"] - 1})


@wrong("ladder", "To compute something twice is no gain")
def ladder_of_hardware_flops(run):
    return rungs(run, lambda entry, rung, below: {"gain": rate(rung, "hardware_flops") / rate(below[-1], "hardware_flops")
                                                  if below else None})


@wrong("ladder", "No rung below was measured: None")
def ladder_with_a_gain_at_its_foot(run):
    return rungs(run, lambda entry, *_: {"gain": entry["gain"] or 1.0})


@wrong("ladder", "compare with the nearest one below that was")
def ladder_that_gives_up_at_gaps(run):
    found = read(run)
    return [entry and entry | {"gain": entry["gain"] if i and found[i - 1] else None} for i, entry in enumerate(found)]


@wrong("ladder", "is told as None, not left out")
def ladder_without_gaps(run):
    return [entry for entry in read(run) if entry]


@wrong("ladder", "That is from hardware FLOPs; take those that the model needs")
def ladder_of_all_flops_against_the_best(run):
    return rungs(run, lambda entry, rung, _: {"of_best": rate(rung, "hardware_flops") / run["best"][rung["precision"]]})


@wrong("ladder", "an argument was changed")
def ladder_that_fills_the_gaps(run):
    found = read(run)
    for rung in run["rungs"]:
        rung["seconds"] = rung["seconds"] or 0.0
    return found


@wrong("ladder", "mlsyslab.measure is called")
def ladder_of_the_library(run):
    return [measure.utilization(rung["model_flops"], rung["seconds"], 1e12) for rung in run["rungs"]]
