"""The lab `data_parallel`: ways that are as good as the reference, inputs, pictures. See test_exercises.py for the rest."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
import torch
from exercises import message, solved

from mlsyslab import collectives
from mlsyslab.check import data_parallel as check
from mlsyslab.check import inputs
from mlsyslab.check.data_parallel.clocks import by_recurrence, played
from mlsyslab.check.data_parallel.links import measured

# -- other right solutions --------------------------------------------------------------------------------------------


def push_pull_all_at_once(comm, S, mine, rate):
    """Begins all its messages, then waits."""
    others = range(S, comm.size) if comm.rank < S else range(S)
    parts = [torch.empty_like(mine) for _ in others] if comm.rank < S else mine.tensor_split(S)
    if comm.rank < S:
        comm.wait_all([comm.irecv(part, other) for part, other in zip(parts, others, strict=True)])
        shard = mine - rate * torch.stack(parts).mean(0)
        comm.wait_all([comm.isend(shard, other) for other in others])
        return shard
    comm.wait_all([comm.isend(part, other) for part, other in zip(parts, others, strict=True)])
    new = torch.empty_like(mine)
    comm.wait_all([comm.irecv(part, other) for part, other in zip(new.tensor_split(S), others, strict=True)])
    return new


def push_pull_by_combine(comm, S, mine, rate):
    """From the last worker to the first, with comm.combine."""
    workers = range(comm.size - 1, S - 1, -1)
    if comm.rank < S:
        total = comm.recv(torch.empty_like(mine), workers[0])
        for worker in workers[1:]:
            comm.combine(total, comm.recv(torch.empty_like(mine), worker))
        shard = torch.sub(mine, total, alpha=rate / len(workers))
        for worker in workers:
            comm.send(shard, worker)
        return shard
    new = mine.clone()
    for server, part in enumerate(mine.tensor_split(S)):
        comm.send(part, server)
    for server, part in enumerate(new.tensor_split(S)):
        comm.recv(part, server)
    return new


def may_start_all(clocks, worker, s):
    return all(clocks[worker] <= clock + s for clock in clocks)


def finish_times_by_events(seconds, s):
    return played(seconds, s)


def staleness_by_looking_back(log):
    found = []
    for place, (kind, worker) in enumerate(log):
        if kind == "push":
            pulled = max(i for i in range(place) if log[i] == ("pull", worker))
            found.append(sum(kind == "push" for kind, _ in log[pulled:place]))
    return found


def apply_once_into_tuples(weight, applied, messages):
    counts, answers = np.array(applied), []
    for worker, number, update in messages:
        gap = number - counts[worker]
        answers.append(bool(gap <= 1))
        if gap == 1:
            weight = weight + update
            counts[worker] += 1
    return weight, tuple(int(count) for count in counts), tuple(answers)


def apply_once_with_numpy(weight, applied, messages):
    """What NumPy compares is a np.bool_."""
    counts, answers = np.array(applied), []
    for worker, number, update in messages:
        if number == counts[worker] + 1:
            weight = weight + update
            counts[worker] = number
        answers.append(number <= counts[worker])
    return weight, list(counts), answers


def sync_seconds_by_cases(way, W, S, n, beta):
    if way != "server":
        return 2 * n * beta - 2 * n * beta / W
    return 2 * n * beta if S > W else 2 * n * beta * W / S


def average_in_two(comm, gradient, rows):
    """The rows by a reduction of their own; the sum by the two halves of an all-reduce."""
    number = collectives.all_reduce(comm, torch.tensor([rows]))
    own = torch.nan_to_num(gradient) * rows
    part = collectives.reduce_scatter(comm, own) / number
    lengths = [len(piece) for piece in own.tensor_split(comm.size)]
    return collectives.all_gather(comm, part, lengths=lengths)


def average_of_shares(comm, gradient, rows):
    """Divides before it adds: where summands cancel, other rounding is left."""
    share = rows / float(collectives.all_reduce(comm, torch.tensor(rows)))
    return collectives.all_reduce(comm, gradient * share if rows else torch.zeros_like(gradient))


def average_of_quotients(comm, gradient, rows):
    number = collectives.all_reduce(comm, torch.tensor([rows])).item()
    return collectives.all_reduce(comm, gradient * rows / number if rows else torch.zeros_like(gradient))


def average_of_shares_in_float32(comm, gradient, rows):
    """A quotient of whole numbers is a float32 in torch."""
    share = rows / collectives.all_reduce(comm, torch.tensor(rows))
    return collectives.all_reduce(comm, gradient * share if rows else torch.zeros_like(gradient))


def make_buckets_by_sums(sizes, first, limit):
    buckets, held, room = [[]], 0, first
    for number, size in reversed(list(enumerate(sizes))):
        if held >= room:
            buckets.append([])
            held, room = 0, limit
        buckets[-1].append(number)
        held += size
    return buckets


def reduce_buckets_into_one_buffer(comm, parameters, gradients, buckets):
    means = [torch.zeros_like(parameter) for parameter in parameters]
    for bucket in buckets:
        flat = torch.cat([(means[k] if gradients[k] is None else gradients[k]).reshape(-1) for k in bucket])
        flat = collectives.all_reduce(comm, flat / comm.size)
        for k in bucket:
            means[k], flat = flat[:means[k].numel()].reshape(means[k].shape), flat[means[k].numel():]
    return means


def reduce_buckets_begun_at_once(comm, parameters, gradients, buckets):
    """Begins all its all-reduces, then waits; a bucket's gradients are in another order than in its list."""
    means, begun = [None] * len(parameters), []
    for bucket in map(sorted, buckets):
        own = [torch.zeros_like(parameters[k]) if gradients[k] is None else gradients[k] for k in bucket]
        flat = torch.cat([gradient.flatten() for gradient in own])
        begun.append((bucket, comm.start(lambda side, flat: collectives.all_reduce(side, flat, op="mean"), flat)))
    for bucket, work in begun:
        for k, part in zip(bucket, work.wait().split([parameters[k].numel() for k in bucket]), strict=True):
            means[k] = part.view(parameters[k].shape)
    return means


def step_seconds_in_fractions(seconds, sizes, buckets, a, b):
    ends, there = [], Fraction(0)
    for k in reversed(range(len(seconds))):
        there += Fraction(seconds[k])
        ends.insert(0, there)
    free = Fraction(0)
    for bucket in buckets:
        free = max(free, *(ends[k] for k in bucket)) + Fraction(a) + Fraction(b) * sum(sizes[k] for k in bucket)
    return free


@pytest.mark.parametrize("seed", ["0", "1", "2", "3"])
@pytest.mark.parametrize("exercise, fn", [
    ("push_pull", push_pull_all_at_once), ("push_pull", push_pull_by_combine), ("may_start", may_start_all),
    ("finish_times", finish_times_by_events), ("staleness", staleness_by_looking_back),
    ("apply_once", apply_once_into_tuples), ("apply_once", apply_once_with_numpy), ("sync_seconds", sync_seconds_by_cases),
    ("average", average_in_two), ("average", average_of_shares), ("average", average_of_quotients),
    ("average", average_of_shares_in_float32), ("make_buckets", make_buckets_by_sums),
    ("reduce_buckets", reduce_buckets_into_one_buffer), ("reduce_buckets", reduce_buckets_begun_at_once),
    ("step_seconds", step_seconds_in_fractions)])
def test_other_ways_that_are_as_good_pass_too(exercise, fn, seed, monkeypatch):
    monkeypatch.setenv(inputs.SEED, seed)
    getattr(check, exercise)(fn)
    getattr(check, exercise)(fn, hidden=True)


# -- what answers are compared with -----------------------------------------------------------------------------------


@pytest.mark.parametrize("s", [0, 1, 2, 5, math.inf])
def test_event_by_event_and_by_the_recurrence_clocks_agree(s):
    rng = inputs.source("clocks", hidden=False)
    for W, K in ((1, 3), (2, 7), (5, 9)):
        seconds = [[float(rng.randint(1, 9)) for _ in range(K)] for _ in range(W)]
        assert played(seconds, s) == by_recurrence(seconds, s + 1)


@pytest.mark.parametrize("W, S", [(1, 1), (2, 1), (4, 1), (4, 3), (3, 4), (6, 6), (5, 2)])
def test_exchanges_with_servers_keep_the_busiest_link_busy(W, S):
    """The simulated exchange takes what its busiest link needs: no more, so its messages are well ordered."""
    assert measured("server", W, S) == pytest.approx(2 * max(W, S) / S)
    assert measured("beside", W, W) == pytest.approx(2 * (W - 1) / W)
    assert measured("ring", W, 0) == pytest.approx(2 * (W - 1) / W)


# -- inputs -----------------------------------------------------------------------------------------------------------


def test_servers_have_shards_of_unequal_length_and_empty_ones():
    cases = check.push_pull.cases(inputs.source("push_pull", hidden=True))
    shards = [[len(own[1]) for own in case.arguments[:case.traits["servers"]]] for case in cases]
    assert any(len(set(lengths)) > 1 for lengths in shards) and any(0 in lengths for lengths in shards)
    assert {case.traits["workers"] for case in cases} >= {1, 2, 3, 5}


@pytest.mark.parametrize("exercise", ["average", "reduce_buckets"])
def test_means_are_asked_for_over_many_world_sizes(exercise):
    cases = getattr(check, exercise).cases(inputs.source(exercise, hidden=True))
    assert {case.p for case in cases} >= {1, 2, 3, 4, 5, 8}


def test_some_ranks_have_no_rows():
    cases = check.average.cases(inputs.source("average", hidden=True))
    assert any(own[1] == 0 and own[0].isnan().all() for case in cases for own in case.arguments)


def test_bounds_from_bsp_to_asp_are_tried():
    for exercise in (check.may_start, check.finish_times):
        cases = exercise.cases(inputs.source(exercise.name, hidden=True))
        assert {case.traits["bound s"] for case in cases} >= {"0 (BSP)", "1", "2", "infinity (ASP)"}


# -- pictures and messages --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("exercise", ["push_pull", "average", "reduce_buckets"])
def test_a_run_is_drawn(exercise):
    assert "4 ranks" in getattr(check, exercise).show(solved("data_parallel")[exercise], p=4)._repr_html_()


def test_a_server_and_a_worker_are_two_ranks():
    with pytest.raises(ValueError, match="p is 2 or more"):
        check.push_pull.show(solved("data_parallel")["push_pull"], p=1)


def test_a_missing_push_is_told_with_the_line_that_waits():
    def forgets(comm, S, mine, rate):
        if comm.rank == S:
            return mine
        return solved("data_parallel")["push_pull"](comm, S, mine, rate)

    assert "rank 2 has already returned" in message(check.push_pull, forgets)


def test_where_acknowledgements_are_right_nothing_is_said_of_them():
    def forgets_what_was_applied(weight, applied, messages):
        weight, _, acknowledged = solved("data_parallel")["apply_once"](weight, applied, messages)
        return weight, applied, acknowledged

    said = message(check.apply_once, forgets_what_was_applied)
    assert "applied came as [-1, -1]" in said and "answer" not in said


@pytest.mark.parametrize("slip", [1e-3, 1e-4])
def test_what_is_more_than_rounding_is_no_mean(slip):
    def biased(comm, gradient, rows):
        mean = solved("data_parallel")["average"](comm, gradient, rows)
        return mean + slip * (mean.abs() < 1e-12)

    assert "rank 0 returned" in message(check.average, biased)
