"""The lab `collectives` and its checks: right solutions pass, the stub and every known-wrong solution get their message."""

from __future__ import annotations

import re
import threading
from pathlib import Path
from random import Random
from zlib import crc32

import jupytext
import pytest
import torch
from collectives_wrong import WRONG

from mlsyslab.check import Wrong, inputs
from mlsyslab.check import collectives as check
from mlsyslab.check.contrast import contrast

SOURCE = Path(__file__).parents[2] / "solutions" / "collectives.py"
EXERCISES = ["mst_broadcast", "mst_scatter", "ring_all_gather", "ring_reduce_scatter", "short_all_reduce", "long_all_reduce",
             "cost", "crossover", "fast_all_reduce", "deadlock_cycle", "exchange"]
CELLS = [cell for cell in jupytext.read(SOURCE, fmt="py:percent").cells if cell.cell_type == "code"]


def nbgrader(cell) -> dict:
    return cell.metadata.get("nbgrader", {})


@pytest.fixture(scope="module")
def solved() -> dict:
    """What the solved lab defines, its checks and pictures included, run from top to bottom."""
    names: dict = {}
    for cell in CELLS:
        exec(compile(cell.source, nbgrader(cell).get("grade_id", "cell"), "exec"), names)
    return names


def message(exercise: str, fn, hidden: bool = False) -> str:
    with pytest.raises(Wrong) as caught:
        getattr(check, exercise)(fn, hidden=hidden)
    return str(caught.value)


# -- the lab ----------------------------------------------------------------------------------------------------------


def test_the_points_are_100_and_every_exercise_is_checked_in_sight_and_hidden():
    graded = [cell for cell in CELLS if nbgrader(cell).get("grade")]
    assert sum(nbgrader(cell)["points"] for cell in graded) == 100
    assert [nbgrader(cell)["grade_id"] for cell in graded] == [f"{name}_check" for name in EXERCISES]
    for cell, name in zip(graded, EXERCISES, strict=True):
        assert cell.source.splitlines() == [f"check.{name}({name})", "### BEGIN HIDDEN TESTS",
                                            f"check.{name}({name}, hidden=True)", "### END HIDDEN TESTS"]


def test_exercises_do_not_depend_on_one_another():
    answers = [cell for cell in CELLS if nbgrader(cell).get("solution")]
    assert [nbgrader(cell)["grade_id"] for cell in answers] == EXERCISES
    for cell in answers:
        own = nbgrader(cell)["grade_id"]
        called = [other for other in EXERCISES if other != own and re.search(rf"(?<![.\w]){other}\(", cell.source)]
        assert not called, f"{own} calls {called}"


# -- right solutions --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", ["1", "another", "3.14"])
@pytest.mark.parametrize("exercise", EXERCISES)
def test_the_reference_passes_whatever_the_seed(exercise, seed, solved, monkeypatch, capsys):
    monkeypatch.setenv(inputs.SEED, seed)
    getattr(check, exercise)(solved[exercise], hidden=True)
    assert capsys.readouterr().out.startswith(f"{exercise}: right in")


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


@pytest.mark.parametrize("exercise, fn", [
    ("ring_all_gather", to_the_left), ("ring_all_gather", without_waiting), ("ring_reduce_scatter", reduce_to_the_left),
    ("mst_broadcast", binomial), ("mst_broadcast", recursive), ("exchange", all_at_once), ("exchange", by_parity)])
def test_other_ways_that_are_as_good_pass_too(exercise, fn):
    getattr(check, exercise)(fn)
    getattr(check, exercise)(fn, hidden=True)


# -- wrong solutions --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("exercise", EXERCISES)
def test_the_empty_stub_is_told_so(exercise):
    def stub(*_):
        raise NotImplementedError

    for hidden in (False, True):
        assert message(exercise, stub, hidden).startswith(f"{exercise} is not written yet")


def test_every_exercise_has_at_least_five_known_wrong_solutions():
    assert set(WRONG) == set(EXERCISES)
    assert all(len(solutions) >= 5 for solutions in WRONG.values())


@pytest.mark.parametrize("exercise, fn, phrase", [(exercise, *pair) for exercise in WRONG for pair in WRONG[exercise]])
def test_a_wrong_solution_gets_the_message_that_names_its_mistake(exercise, fn, phrase, monkeypatch):
    monkeypatch.setattr(getattr(check, exercise), "timeout", 4.0)
    said = message(exercise, fn)
    assert phrase in said
    assert "world size" in said.splitlines()[0]


@pytest.mark.parametrize("exercise, fn", [(exercise, fn) for exercise in WRONG for fn, _ in WRONG[exercise]
                                          if "endless" not in fn.__name__])
def test_a_wrong_solution_fails_on_hidden_inputs_too(exercise, fn, monkeypatch):
    monkeypatch.setenv(inputs.SEED, "a secret")
    message(exercise, fn, hidden=True)


def test_what_is_no_function_is_said_to_be_none():
    assert "give the function itself" in message("mst_broadcast", None)


def test_no_thread_stays_behind_after_a_deadlock_or_an_endless_loop(monkeypatch):
    monkeypatch.setattr(check.mst_broadcast, "timeout", 2.0)
    before = threading.active_count()
    for fn, _ in WRONG["mst_broadcast"]:
        if fn.__name__ in ("broadcast_endless", "broadcast_root_kept"):
            message("mst_broadcast", fn)
    assert threading.active_count() == before


def test_only_the_message_is_shown_in_a_notebook():
    wrong = Wrong("one\ntwo")
    assert wrong._render_traceback_() == ["Wrong: one", "two"]


# -- inputs -----------------------------------------------------------------------------------------------------------


def test_hidden_inputs_come_from_the_seed(monkeypatch):
    draw = {}
    for seed in ("1", "2"):
        monkeypatch.setenv(inputs.SEED, seed)
        draw[seed] = inputs.source("cost", hidden=True).random()
        assert draw[seed] == inputs.source("cost", hidden=True).random()
        assert inputs.source("cost", hidden=False).random() == Random("cost").random()
    assert draw["1"] != draw["2"]


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


# -- which condition divides right from wrong -------------------------------------------------------------------------


GRID = [{"world size": p, "root": root, "length": length, "op": op, "dtype": dtype}
        for p in (2, 3, 4, 5, 8) for root in (0, 1) for length in (p, p + 1) for op in ("sum", "max")
        for dtype in ("float32", "int64")]


@pytest.mark.parametrize("right, said", [
    (lambda t: t["world size"] in (2, 4, 8), "a power of two is assumed"),
    (lambda t: t["world size"] % 2 == 0, "a power of two is assumed"),
    (lambda t: t["root"] == 0, "is `root` used?"),
    (lambda t: t["length"] % t["world size"] == 0, "parts of one length are assumed"),
    (lambda t: t["op"] == "sum", "is `op` used?"),
    (lambda t: t["dtype"] == "float32", "integers have to work too"),
    (lambda t: t["world size"] == 8, "right for world size 8 only"),
])
def test_contrast_names_the_condition(right, said):
    assert said in contrast([(traits, right(traits)) for traits in GRID])


@pytest.mark.parametrize("right", [lambda t: False, lambda t: t["world size"] == 2, lambda t: crc32(str(t).encode()) % 3])
def test_contrast_is_silent_where_no_condition_explains_it(right):
    assert contrast([(traits, bool(right(traits))) for traits in GRID]) is None


# -- pictures ---------------------------------------------------------------------------------------------------------


def test_a_run_is_drawn(solved):
    picture = check.mst_broadcast.show(solved["mst_broadcast"], p=5)
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


def test_a_picture_of_too_many_ranks_is_refused(solved):
    with pytest.raises(ValueError, match="1 … 32 ranks"):
        check.mst_broadcast.show(solved["mst_broadcast"], p=33)
