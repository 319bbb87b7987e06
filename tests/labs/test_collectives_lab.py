"""The lab `collectives`: ways that are as good as the reference, inputs, pictures. See test_exercises.py for the rest."""

from __future__ import annotations

import threading

import numpy as np
import pytest
import torch
from collectives_wrong import wrong
from exercises import message, solved

from mlsyslab.check import collectives as check
from mlsyslab.check import inputs

# -- other right solutions --------------------------------------------------------------------------------------------


def to_the_left(comm, part, lengths):
    p, rank = comm.size, comm.rank
    slots = list(part.new_empty((sum(lengths), *part.shape[1:])).split(lengths))
    slots[rank] = part
    for k in range(p - 1):
        incoming = torch.empty_like(slots[(rank + k + 1) % p])
        slots[(rank + k + 1) % p] = comm.sendrecv(slots[(rank + k) % p], (rank - 1) % p, incoming, (rank + 1) % p)
    return torch.cat(slots)


def without_waiting(comm, part, lengths):
    p, rank = comm.size, comm.rank
    whole = part.new_empty((sum(lengths), *part.shape[1:]))
    slots = whole.split(lengths)
    slots[rank].copy_(part)
    for k in range(p - 1):
        works = [comm.irecv(slots[(rank - k - 1) % p], (rank - 1) % p), comm.isend(slots[(rank - k) % p], (rank + 1) % p)]
        comm.wait_all(works)
    return whole


def reduce_to_the_left(comm, tensor, op):
    p, rank = comm.size, comm.rank
    parts = tensor.clone().tensor_split(p)
    for k in range(p - 1):
        mine = parts[(rank + k + 2) % p]
        incoming = torch.empty_like(mine)
        comm.sendrecv(parts[(rank + k + 1) % p], (rank - 1) % p, incoming, (rank + 1) % p)
        comm.combine(mine, incoming, op)
    return parts[rank]


def binomial(comm, tensor, root):
    """Another tree of as many rounds: ranks counted from the root, the furthest served first."""
    p, out = comm.size, tensor.clone()
    place = (comm.rank - root) % p
    reach = 1 << (p - 1).bit_length()
    if place:
        comm.recv(out, (comm.rank - (place & -place)) % p)
        reach = place & -place
    while reach > 1:
        reach //= 2
        if place + reach < p:
            comm.send(out, (comm.rank + reach) % p)
    return out


def recursive(comm, tensor, root):
    out = tensor.clone()

    def serve(left, right, root):
        if left == right:
            return
        mid = (left + right) // 2
        other = mid + 1 if root <= mid else mid
        if comm.rank == root:
            comm.send(out, other)
        if comm.rank == other:
            comm.recv(out, root)
        left_root, right_root = (root, other) if root <= mid else (other, root)
        serve(left, mid, left_root) if comm.rank <= mid else serve(mid + 1, right, right_root)

    serve(0, comm.size - 1, root)
    return out


def all_at_once(comm, row):
    left, right, works = torch.zeros_like(row), torch.zeros_like(row), []
    for out, peer in ((left, comm.rank - 1), (right, comm.rank + 1)):
        if 0 <= peer < comm.size:
            works += [comm.irecv(out, peer), comm.isend(row, peer)]
    comm.wait_all(works)
    return torch.stack([left, row, right])


def by_parity(comm, row):
    left, right = torch.zeros_like(row), torch.zeros_like(row)
    for turn in (0, 1):  # pairs (0, 1), (2, 3), … and then (1, 2), (3, 4), …
        first = comm.rank % 2 == turn
        peer, out = (comm.rank + 1, right) if first else (comm.rank - 1, left)
        if 0 <= peer < comm.size:
            if first:
                comm.send(row, peer)
                comm.recv(out, peer)
            else:
                comm.recv(out, peer)
                comm.send(row, peer)
    return torch.stack([left, row, right])


def last_two(p):
    return range(p - 2, p) if p > 1 else []


def last_two_of_numpy(p):
    return list(np.arange(p)[:-3:-1]) if p > 1 else ()


@pytest.mark.parametrize("seed", ["0", "1", "2"])
@pytest.mark.parametrize("exercise, fn", [
    ("ring_all_gather", to_the_left), ("ring_all_gather", without_waiting), ("ring_reduce_scatter", reduce_to_the_left),
    ("mst_broadcast", binomial), ("mst_broadcast", recursive), ("exchange", all_at_once), ("exchange", by_parity),
    ("deadlock_cycle", last_two), ("deadlock_cycle", last_two_of_numpy)])
def test_other_ways_that_are_as_good_pass_too(exercise, fn, seed, monkeypatch):
    monkeypatch.setenv(inputs.SEED, seed)
    getattr(check, exercise)(fn)
    getattr(check, exercise)(fn, hidden=True)


def test_no_thread_stays_behind_after_a_deadlock_or_an_endless_loop(monkeypatch):
    monkeypatch.setattr(check.mst_broadcast, "timeout", 2.0)
    for fn, _ in wrong["mst_broadcast"]:
        if fn.__name__ in ("broadcast_endless", "broadcast_root_kept"):
            message(check.mst_broadcast, fn)
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("rank ")]


# -- inputs -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("exercise", ["mst_broadcast", "mst_scatter", "ring_all_gather", "ring_reduce_scatter",
                                      "short_all_reduce", "long_all_reduce"])
def test_the_inputs_hold_what_an_exercise_must_stand(exercise):
    cases = getattr(check, exercise).cases(inputs.source(exercise, hidden=True))
    assert {case.p for case in cases} >= {1, 2, 3, 5, 8}
    assert {case.traits["dtype"] for case in cases} >= {"int64", "bfloat16", "float32"}
    for p in (2, 3, 5, 8):
        lengths = [case.traits["length"] for case in cases if case.p == p]
        assert any(length % p == 0 for length in lengths)
        assert any(length > p and length % p for length in lengths)
        assert any(length < p for length in lengths)


# -- pictures ---------------------------------------------------------------------------------------------------------


def test_a_run_is_drawn():
    picture = check.mst_broadcast.show(solved("collectives")["mst_broadcast"], p=5)
    assert picture._repr_html_().count("sends 80 bytes") == 4


def test_a_run_that_hangs_is_drawn_up_to_there(capsys):
    def half(comm, part, lengths):
        if comm.rank:
            comm.send(part, 0)
        else:
            comm.recv(part.clone(), 1)
        return part

    assert "sends" in check.ring_all_gather.show(half, p=3)._repr_html_()
    assert "Deadlock" in capsys.readouterr().out


def test_where_nothing_was_sent_there_is_nothing_to_draw(capsys):
    def stub(comm, tensor, root):
        raise NotImplementedError

    assert check.mst_broadcast.show(stub) is None
    assert "not written yet" in capsys.readouterr().out


def test_a_picture_of_too_many_ranks_is_refused():
    with pytest.raises(ValueError, match="1 … 32 ranks"):
        check.mst_broadcast.show(solved("collectives")["mst_broadcast"], p=33)
