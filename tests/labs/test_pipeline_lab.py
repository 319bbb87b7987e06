"""The lab `pipeline`: ways that are as good as the reference, inputs, pictures. See test_exercises.py for the rest."""

from __future__ import annotations

import gc
from fractions import Fraction

import numpy as np
import pytest
import torch
from exercises import message, solved
from pipeline_wrong import bubble_in_percent, executor, partition_by_least_squares, run_by_microbatches, run_by_numbers

from mlsyslab.check import inputs
from mlsyslab.check import pipeline as check
from mlsyslab.check.runs import run
from mlsyslab.comm import Link
from mlsyslab.pipeline import Action

SEEDS = ["1", "2", "another"]
GENERATORS = ["gpipe", "one_f_one_b", "interleaved", "zb_h1"]


# -- other right solutions --------------------------------------------------------------------------------------------


def bubble_in_float32(times, m):
    times = torch.tensor(times)
    return (1 - m * times.sum() / (len(times) * (times.sum() + (m - 1) * times.max()))).item()


def bubble_by_numpy_in_float32(times, m):
    times = np.array(times, np.float32)
    return 1 - np.float32(m) * times.mean() / (times.sum() + np.float32(m - 1) * times.max())


def bubble_as_a_fraction(times, m):
    return 1 - Fraction(m) * Fraction(sum(times)) / (len(times) * Fraction(sum(times) + (m - 1) * max(times)))


def gpipe_last_to_first(p, m):
    return [[f"{r}F{i}" for i in range(m)] + [f"{r}B{i}" for i in reversed(range(m))] for r in range(p)]


def one_f_one_b_by_counting(p, m):
    """Forward as long as fewer than p-r microbatches are under way."""
    rows = []
    for r in range(p):
        row, forwards, backwards = [], 0, 0
        while backwards < m:
            if forwards < m and forwards - backwards < p - r:
                row.append(f"{r}F{forwards}")
                forwards += 1
            else:
                row.append(f"{r}B{backwards}")
                backwards += 1
        rows.append(tuple(row))
    return tuple(rows)


def interleaved_with_a_shorter_warmup(p, m, v):
    """As fast where messages take no time; the longer warm-up of exercise 5 leaves them some."""
    rounds = [part.tolist() for part in torch.arange(m).tensor_split(max(1, m // p))]
    rows = []
    for r in range(p):
        F = [f"{c * p + r}F{i}" for part in rounds for c in range(v) for i in part]
        B = [f"{c * p + r}B{i}" for part in rounds for c in reversed(range(v)) for i in part]
        warmup = min(m * v, (v - 1) * len(rounds[0]) + p - 1 - r)
        pairs = [text for pair in zip(F[warmup:], B, strict=False) for text in pair]
        rows.append(F[:warmup] + pairs + B[m * v - warmup:])
    return rows


def backward_input_by_einsum(weights, inputs, gradient):
    arrived = [gradient]
    for layer in range(len(weights) - 1, 0, -1):
        back = torch.einsum("ro,io->ri", arrived[0], weights[layer])
        arrived = [torch.where(inputs[layer] > 0, back, torch.zeros_like(back)), *arrived]
    return torch.nn.functional.linear(arrived[0], weights[0]), arrived


def partition_by_bisection(times, p):
    """Whether a bound can be kept is seen by filling stages up to it; the least such bound is one of the sums."""
    n = len(times)

    def fill(bound):
        sizes, filled = [], float("inf")
        for layer, t in enumerate(times):
            if filled + t > bound or n - layer == p - len(sizes):  # too much, or every layer left needs a stage of its own
                sizes.append(0)
                filled = 0.0
            sizes[-1] += 1
            filled += t
        return sizes

    bounds = sorted({sum(times[i:j]) for i in range(n) for j in range(i + 1, n + 1) if sum(times[i:j]) >= max(times)})
    return next(sizes for bound in bounds if len(sizes := fill(bound)) <= p)


def run_rank_with_receives_begun_early(comm, row, weight, inputs, targets):
    """Begins the receive of an action's input while the action before it is computed."""
    rank, last, N = comm.rank, comm.size - 1, sum(map(len, targets))
    total, kept, sends = torch.zeros_like(weight), {}, []

    def begin(text):
        action = Action.parse(text)
        source, width = (rank - 1, weight.shape[0]) if action.kind == "F" else (rank + 1, weight.shape[1])
        if not 0 <= source <= last:
            return None, inputs[action.microbatch]
        out = weight.new_empty(len(inputs[action.microbatch]), width)
        return comm.irecv(out, source), out

    coming = begin(row[0])
    for text, following in zip(row, [*row[1:], None], strict=True):
        action, (work, came) = Action.parse(text), coming
        if work:
            work.wait()
        coming = begin(following) if following else None
        with comm.work(text, seconds=1.0):
            if action.kind == "F":
                kept[action.microbatch] = came
                out, to = came @ weight, rank + 1
            else:
                x = kept.pop(action.microbatch)
                g = (x @ weight - targets[action.microbatch]) / N if rank == last else came
                total.addmm_(x.T, g)
                out, to = g @ weight.T, rank - 1
        if 0 <= to <= last:
            sends.append(comm.isend(out, to))
    comm.wait_all(sends)
    return total


def run_rank_waiting_for_one_send_after_the_other(comm, *given):
    sends = []
    total = executor(comm, *given, send=lambda tensor, to: sends.append(comm.isend(tensor, to)))
    for work in sends:
        work.wait()
    return total


def run_rank_waiting_for_any(comm, *given):
    sends = []
    total = executor(comm, *given, send=lambda tensor, to: sends.append(comm.isend(tensor, to)))
    while sends:
        sends.pop(comm.wait_any(sends))
    return total


def peaks_by_numpy(schedule):
    change = {"F": 1, "B": -1, "W": -1, "I": 0}
    return [np.cumsum([change[Action.parse(text).kind] for text in row]).max() for row in schedule]


@pytest.mark.parametrize("exercise, fn", [
    ("inference_bubble", bubble_in_float32), ("inference_bubble", bubble_by_numpy_in_float32),
    ("inference_bubble", bubble_as_a_fraction),
    ("gpipe", gpipe_last_to_first), ("one_f_one_b", one_f_one_b_by_counting), ("peak_activations", peaks_by_numpy),
    ("interleaved", interleaved_with_a_shorter_warmup),
    ("backward_input", backward_input_by_einsum), ("partition", partition_by_bisection),
    ("run_rank", run_rank_with_receives_begun_early), ("run_rank", run_rank_waiting_for_one_send_after_the_other),
    ("run_rank", run_rank_waiting_for_any)])
def test_other_ways_that_are_as_good_pass_too(exercise, fn, monkeypatch):
    getattr(check, exercise)(fn)
    for seed in SEEDS:
        monkeypatch.setenv(inputs.SEED, seed)
        getattr(check, exercise)(fn, hidden=True)


# -- inputs -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("exercise", GENERATORS)
def test_schedules_are_asked_for_whatever_p_and_m(exercise):
    cases = getattr(check, exercise).cases(inputs.source(exercise, hidden=True))
    assert {case.p for case in cases} >= {1, 2, 3, 5, 8}
    microbatches = [(case.p, case.traits["microbatches"]) for case in cases]
    assert any(m < p for p, m in microbatches)
    assert any(m > p and m % p for p, m in microbatches)
    assert any(m > p and m % p == 0 for p, m in microbatches)


def test_an_executor_is_tried_on_schedules_in_and_out_of_order():
    cases = check.run_rank.cases(inputs.source("run_rank", hidden=True))
    assert {case.p for case in cases} >= {1, 2, 3, 4, 5}
    assert {case.traits["schedule"] for case in cases} == {"GPipe", "1F1B", "device placement"}
    assert {case.traits["backwards"] for case in cases} == {"in order", "in reverse"}
    lengths = [{len(x) for x in case.arguments[0][2]} for case in cases]
    assert any(len(some) > 1 for some in lengths)  # microbatches of unequal length


@pytest.mark.parametrize("seed", SEEDS)
def test_other_divisors_of_the_gradient_are_never_taken_for_twice_or_half_of_it(seed, monkeypatch):
    monkeypatch.setenv(inputs.SEED, seed)
    assert "how many microbatches there are" in message(check.run_rank, run_by_microbatches, hidden=True)
    assert "how many numbers the targets have" in message(check.run_rank, run_by_numbers, hidden=True)


@pytest.mark.parametrize("seed", SEEDS)
def test_in_a_case_that_is_drawn_the_least_squares_are_not_the_best_stages(seed, monkeypatch):
    monkeypatch.setenv(inputs.SEED, seed)
    *_, drawn = check.partition.cases(inputs.source("partition", hidden=True))
    assert "the maximum" in check.partition.problem(partition_by_least_squares, drawn).text


# -- what is watched --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("keep", [0, 1, 5])
def test_received_tensors_are_counted_while_somebody_has_them(keep):
    def pass_on(comm, _):
        kept = []
        for _ in range(6):
            if comm.rank == 0:
                comm.send(torch.zeros(2), 1)
            else:
                kept.append(comm.recv(torch.empty(2), 0))
                del kept[:max(0, len(kept) - keep)]

    gc.disable()  # freed because nothing refers to them, not because they were searched for
    try:
        outcome = run(pass_on, [(0,), (0,)], Link())
    finally:
        gc.enable()
    assert outcome.held == {(1, 0): keep + 1}


def test_arguments_may_be_lists_of_tensors_and_a_change_in_one_is_seen():
    def spoil(comm, tensors):
        tensors[1] += comm.rank

    given = [([torch.zeros(2), torch.tensor([torch.nan, 1.0])],) for _ in range(3)]
    assert run(spoil, given, Link()).changed == [1, 2]
    assert given[1][0][1][1] == 1.0


# -- pictures ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("exercise", GENERATORS)
def test_a_schedule_is_drawn(exercise):
    picture = getattr(check, exercise).show(solved("pipeline")[exercise], p=4, m=8)
    assert "4 ranks" in picture._repr_html_()


def test_a_schedule_that_cannot_be_run_is_explained_instead(capsys):
    assert check.gpipe.show(lambda p, m: [[f"{r}B0", f"{r}F0"] for r in range(p)], 2, 1) is None
    assert "rank 0, 0B0: comes before 0F0, which it needs" in capsys.readouterr().out


def test_where_nothing_is_written_there_is_nothing_to_draw(capsys):
    def stub(*_):
        raise NotImplementedError

    assert check.gpipe.show(stub) is None
    assert check.run_rank.show(stub) is None
    assert capsys.readouterr().out.count("not written yet") == 2


def test_a_run_of_the_executor_is_drawn_as_a_timetable():
    picture = check.run_rank.show(solved("pipeline")["run_rank"], p=3)
    assert "Rank 2: 2F0 2B0 2F1 2B1" in picture._repr_html_()


# -- messages ---------------------------------------------------------------------------------------------------------


def test_a_broken_schedule_is_told_rank_action_and_reason():
    right = solved("pipeline")["one_f_one_b"]  # the notebook, which calls more than its functions may

    def late(p, m):
        rows = right(p, m)
        rows[-1][0], rows[-1][1] = rows[-1][1], rows[-1][0]
        return rows

    assert "rank 3, 3B0: comes before 3F0, which it needs" in message(check.one_f_one_b, late)


@pytest.mark.parametrize("number", [Fraction, np.float32])
def test_a_wrong_number_of_any_kind_is_told(number):
    said = message(check.inference_bubble, lambda *given: number(bubble_in_percent(*given)))
    assert "came as 27.2727" in said and "That is in percent" in said
