"""Every operation by every algorithm gives what its definition says, in the simulated world."""

import random

import pytest
import torch
from collective_cases import DTYPES, EVERY, REDUCING, WORLDS, Case, Grouped, call, counted, expected, grid, inputs, same

from mlsyslab import Link, collectives, simulate
from mlsyslab.collectives import Count, even_lengths


def layouts(p: int) -> list[list[int]]:
    """Nodes of two, nodes of three (the last may be smaller), and nodes at random."""
    draw = random.Random(p)
    return [[rank // 2 for rank in range(p)], [rank // 3 for rank in range(p)], [draw.randrange(3) for _ in range(p)]]


@pytest.mark.parametrize("p", WORLDS)
def test_every_algorithm_gives_what_the_definition_says(p):
    cases = grid(p)
    given = [inputs(case, seed) for seed, case in enumerate(cases)]
    kept = [[tensor if tensor is None else tensor.clone() for tensor in tensors] for tensors in given]
    run = simulate(lambda comm, mine: [call(comm, case, tensor) for case, tensor in zip(cases, mine, strict=True)],
                   [[tensors[rank] for tensors in given] for rank in range(p)])
    for i, case in enumerate(cases):
        want = expected(case, kept[i])
        for rank in range(p):
            assert same(run.results[rank][i], want[rank]), (case, rank, run.results[rank][i], want[rank])
            assert same(given[i][rank], kept[i][rank]), f"{case} changed the input of rank {rank}"


@pytest.mark.parametrize("p", WORLDS)
def test_two_levels_give_the_same_on_nodes_of_any_sizes(p):
    for nodes in layouts(p):
        cases = [case for case in grid(p, seed=1) if case.algorithm in ("hierarchical", "mst")]
        cases = [case._replace(algorithm="auto") if case.algorithm == "mst" else case for case in cases]
        given = [inputs(case, seed) for seed, case in enumerate(cases)]
        run = simulate(lambda comm, mine, cases=cases: [call(comm, *each) for each in zip(cases, mine, strict=True)],
                       [[tensors[rank] for tensors in given] for rank in range(p)], link=Grouped(nodes))
        for i, case in enumerate(cases):
            for rank, want in enumerate(expected(case, given[i])):
                assert same(run.results[rank][i], want), (case, nodes, rank, run.results[rank][i], want)


@pytest.mark.parametrize("p", WORLDS)
def test_messages_and_bytes_of_every_rank_are_the_closed_forms(p):
    for case in grid(p, seed=2):
        for nodes in layouts(p) if case.algorithm == "hierarchical" else [[0] * p]:
            trace = simulate(lambda comm, x, case=case: call(comm, case, x), inputs(case, 0), link=Grouped(nodes)).trace
            found = [Count(trace.messages(rank), trace.bytes_sent(rank), trace.bytes_combined(rank)) for rank in range(p)]
            assert found == counted(case, nodes), (case, nodes)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("reduction", collectives.OPS)
def test_every_dtype_reduces_by_every_op_that_it_has(dtype, reduction):
    p = 5
    if reduction == "mean" and not (dtype.is_floating_point or dtype.is_complex):
        unfit = "a mean of integers is no integer"
    elif reduction in ("min", "max") and dtype.is_complex:
        unfit = "complex numbers have no order"
    else:
        unfit = None
    for op, algorithm in EVERY:
        if op not in REDUCING:
            continue
        case = Case(op, algorithm, even_lengths(7, p), tail=(2,), dtype=dtype, reduction=reduction)
        given = inputs(case, 3)
        if unfit:
            with pytest.raises(Exception, match=unfit):
                simulate(lambda comm, x, case=case: call(comm, case, x), given)
        else:
            run = simulate(lambda comm, x, case=case: call(comm, case, x), given)
            assert all(map(same, run.results, expected(case, given))), case


def test_random_calls_of_many_kinds():
    """Seeded draws from the whole space of calls, nodes and worlds."""
    draw = random.Random(2026)
    for seed in range(150):
        p = draw.choice([2, 3, 5, 6, 7, 8, 11, 12, 13])
        case = draw.choice(grid(p, seed=seed))
        nodes = [draw.randrange(draw.choice([1, 2, 3, 4])) for _ in range(p)]
        given = inputs(case, seed)
        run = simulate(lambda comm, x, case=case: call(comm, case, x), given, link=Grouped(nodes))
        assert all(map(same, run.results, expected(case, given))), (seed, case, nodes)


def test_large_worlds_and_long_vectors():
    p = 37
    for op, algorithm in EVERY:
        case = Case(op, algorithm, [0] * p if op == "barrier" else even_lengths(1001, p), op in ("gather", "all_gather"),
                    root=0, dtype=torch.int64)
        given = inputs(case, 1)
        run = simulate(lambda comm, x, case=case: call(comm, case, x), given, link=Grouped([rank // 8 for rank in range(p)]))
        assert all(map(same, run.results, expected(case, given))), case


def test_scalars_go_where_nothing_is_cut():
    run = simulate(lambda comm, x: (collectives.all_reduce(comm, x), collectives.broadcast(comm, x, root=1)),
                   [torch.tensor(1.0), torch.tensor(2.0), torch.tensor(4.0)])
    assert run.results == [(torch.tensor(7.0), torch.tensor(2.0))] * 3


@pytest.mark.parametrize("algorithm", ["mst", "ring", "halving", "doubling", "hierarchical", "auto"])
def test_gradients_don_t_follow_and_results_are_new(algorithm):
    given = [torch.ones(4, requires_grad=True) for _ in range(3)]
    results = simulate(lambda comm, x: collectives.all_reduce(comm, x, algorithm=algorithm), given).results
    for tensor, result in zip(given, results, strict=True):
        assert not result.requires_grad
        assert result.data_ptr() != tensor.data_ptr()


def test_groups_work_apart():
    """Rows and columns of a 2 x 3 mesh reduce by themselves, the rows at the same time."""
    def rows_then_columns(comm, x):
        row, column = comm.split(comm.rank // 3), comm.split(comm.rank % 3)
        return collectives.all_reduce(row, x), collectives.all_reduce(column, x)

    run = simulate(rows_then_columns, [torch.tensor([2 ** rank]) for rank in range(6)], link=Link(1e-6, 1e-9))
    assert [tuple(map(int, result)) for result in run.results] == [(7, 9), (7, 18), (7, 36), (56, 9), (56, 18), (56, 36)]
