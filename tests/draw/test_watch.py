"""Watching a collective: what is seen is what the collective does, and what its definition says."""

from collections import Counter

import pytest
import torch

from mlsyslab import collectives, simulate
from mlsyslab.collectives import ALGORITHMS
from mlsyslab.collectives.cost import cost
from mlsyslab.draw.watch import ONE_CHUNK, Cost, Piece, decode, vector, watch, watch_function

CASES = [(op, algorithm) for op, algorithms in ALGORITHMS.items() if op != "barrier" for algorithm in algorithms]
RANKS = range(1, 9)


def node(algorithm):
    return 2 if algorithm == "hierarchical" else None


def definition(op, p, root=0):
    """What each rank has after an operation, from the operation's definition alone; None for nothing."""
    everyone, chunks = frozenset(range(p)), range(p)
    whole = {
        "broadcast": lambda r: {Piece(c, frozenset({root})) for c in chunks},
        "reduce": lambda r: {Piece(c, everyone) for c in chunks} if r == root else None,
        "scatter": lambda r: {Piece(r, frozenset({root}))},
        "gather": lambda r: {Piece(c, frozenset({c})) for c in chunks} if r == root else None,
        "all_gather": lambda r: {Piece(c, frozenset({c})) for c in chunks},
        "reduce_scatter": lambda r: {Piece(r, everyone)},
        "all_reduce": lambda r: {Piece(c, everyone) for c in chunks},
        "all_to_all": lambda r: {Piece(r, frozenset({s})) for s in range(p)},
    }
    return [whole[op](rank) for rank in range(p)]


@pytest.mark.parametrize("p", RANKS)
@pytest.mark.parametrize(("op", "algorithm"), CASES)
def test_ranks_end_with_what_the_definition_says(op, algorithm, p):
    watched = watch(op, algorithm, p, node=node(algorithm))
    assert [None if r is None else set(r) for r in watched.results] == definition(op, p)
    for rank, pieces in enumerate(definition(op, p)):
        assert {piece for piece in watched.returned[rank] if piece} == (pieces or set())


@pytest.mark.parametrize("p", [2, 5, 8])
@pytest.mark.parametrize(("op", "algorithm"), CASES)
def test_every_message_of_the_run_is_seen_with_all_its_bytes(op, algorithm, p):
    watched = watch(op, algorithm, p)
    inputs = [torch.zeros(1 if op in ONE_CHUNK else p, dtype=torch.int64) for _ in range(p)]
    trace = simulate(lambda comm, mine: getattr(collectives, op)(comm, mine, algorithm=algorithm), inputs).trace
    sent = Counter((event.rank, event.peer) for event in trace if event.kind == "send")
    assert Counter((message.source, message.to) for message in watched.messages) == sent
    assert 8 * sum(len(m.pieces) for m in watched.messages) == trace.bytes_sent()


@pytest.mark.parametrize("p", [2, 4, 8])
@pytest.mark.parametrize(("op", "algorithm"), [case for case in CASES if case[1] != "hierarchical"])
def test_the_time_so_far_ends_at_the_closed_form(op, algorithm, p):
    watched, formula = watch(op, algorithm, p), cost(op, algorithm, p, 1.0)
    assert tuple(map(float, watched.costs[-1])) == (formula.alpha, formula.beta, formula.gamma)
    assert watched.costs[0] == (0, 0, 0)
    assert watched.costs == sorted(watched.costs)
    assert watched.steps == formula.alpha


@pytest.mark.parametrize("p", [3, 4, 8])
@pytest.mark.parametrize(("op", "algorithm"), [case for case in CASES if case[0] != "all_to_all"])
def test_what_is_sent_was_held_and_needed_until_then(op, algorithm, p):
    watched = watch(op, algorithm, p, node=node(algorithm))
    for message in watched.messages:
        for piece in message.pieces:
            assert watched.states[message.step - 1][message.source][piece.chunk] == piece
            assert piece.chunk in watched.live[message.step - 1][message.source]


@pytest.mark.parametrize(("op", "algorithm"), CASES)
def test_at_the_end_only_the_result_is_needed(op, algorithm):
    watched = watch(op, algorithm, 6)
    for rank in range(6):
        assert watched.live[-1][rank] == {slot for slot, piece in enumerate(watched.returned[rank]) if piece}


@pytest.mark.parametrize("root", range(5))
@pytest.mark.parametrize("op", ["broadcast", "scatter", "reduce", "gather"])
def test_any_root(op, root):
    watched = watch(op, "mst", 5, root=root)
    assert [None if r is None else set(r) for r in watched.results] == definition(op, 5, root)


def test_a_tree_doubles_those_who_know_in_every_round():
    watched = watch("broadcast", "mst", 8, chunks=1)
    assert [sum(holding[0] is not None for holding in state) for state in watched.states] == [1, 2, 4, 8]


def test_any_function_can_be_watched():
    def pass_on(comm, mine):
        return comm.sendrecv(mine, (comm.rank + 1) % comm.size, torch.empty_like(mine), (comm.rank - 1) % comm.size)

    watched = watch_function(pass_on, [vector(rank, 2) for rank in range(3)], chunks=2)
    assert watched.steps == 1
    assert watched.results[0] == (Piece(0, frozenset({2})), Piece(1, frozenset({2})))


def test_marks_survive_sums_in_every_chunk_of_every_rank():
    total = sum(vector(rank, 8) for rank in range(8))
    assert decode(total) == tuple(Piece(chunk, frozenset(range(8))) for chunk in range(8))
    assert decode(torch.zeros(3, dtype=torch.int64)) == ()


def test_costs_read_as_people_write_them():
    assert str(Cost(1, 1, 0)) == "α + nβ"
    assert str(watch("reduce_scatter", "ring", 4).costs[-1]) == "3α + 3/4 nβ + 3/4 nγ"
    assert str(Cost(0, 0, 0)) == "0"


@pytest.mark.parametrize("p", [0, 9])
def test_more_ranks_than_a_picture_holds(p):
    with pytest.raises(ValueError, match=f"p={p}.*1 … 8 ranks"):
        watch("broadcast", "mst", p)
