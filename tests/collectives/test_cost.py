"""The closed forms are the simulated times, and no algorithm beats the lower bounds."""

from math import ceil, log2

import pytest
import torch
from collective_cases import EVERY, ROOTED, WORLDS, Case, call, inputs

from mlsyslab import Link, Nodes, collectives, simulate
from mlsyslab.collectives import ALGORITHMS, Cost, choose, cost, lower_bound, plan

LINKS = [Link(1, 0, 0), Link(0, 1, 0), Link(0, 0, 1), Link(3e-6, 2e-9, 5e-10)]
FLAT = [(op, algorithm) for op, algorithm in EVERY if algorithm != "hierarchical"]
TWO_LEVEL = [op for op, algorithm in EVERY if algorithm == "hierarchical"]


def simulated(op, algorithm, p, link, root=0, rows=4):
    """The time of one call on equal parts, and n."""
    case = Case(op, algorithm, [0 if op == "barrier" else rows] * p, root=root)
    run = simulate(lambda comm, x: call(comm, case, x), inputs(case, 0), link=link)
    return run.time, case.rows * case.dtype.itemsize


@pytest.mark.parametrize("p", [*WORLDS, 23, 32])
@pytest.mark.parametrize(("op", "algorithm"), FLAT)
def test_cost_is_the_simulated_time_for_every_p_and_root(op, algorithm, p):
    for root in range(p) if op in ROOTED and p < 10 else sorted({0, p // 3, p - 1}) if op in ROOTED else [0]:
        for link in LINKS:
            time, n = simulated(op, algorithm, p, link, root)
            assert cost(op, algorithm, p, n, root).time(link) == pytest.approx(time, rel=1e-9), (root, link)


@pytest.mark.parametrize("op", TWO_LEVEL)
@pytest.mark.parametrize(("nodes", "size"), [(1, 4), (4, 1), (2, 2), (2, 3), (3, 4), (5, 2), (4, 4)])
def test_cost_of_two_levels_is_the_simulated_time_with_a_card_a_rank(op, nodes, size):
    network = Nodes(size, Link(1e-6, 1e-9, 5e-10), Link(7e-6, 13e-9), nics=size)
    time, n = simulated(op, "hierarchical", nodes * size, network, rows=size * nodes * size)
    assert cost(op, "hierarchical", nodes * size, n, node=size).time(network) == pytest.approx(time, rel=1e-9)


@pytest.mark.parametrize("op", TWO_LEVEL)
def test_ranks_that_share_a_card_take_turns(op):
    for size, nics in [(2, 1), (4, 1), (4, 2), (4, 3), (6, 4)]:
        network = Nodes(size, Link(1e-6, 1e-9, 5e-10), Link(7e-6, 13e-9), nics=nics)
        time, n = simulated(op, "hierarchical", 3 * size, network, rows=3 * size * size)
        planned = cost(op, "hierarchical", 3 * size, n, node=size).time(network)
        assert 0.95 * planned <= time <= planned * (1 + 1e-9), (size, nics)


@pytest.mark.parametrize("p", [2, 4, 8, 16, 64, 1024])
def test_powers_of_two_cost_what_the_table_says(p):
    """Chan et al. 2007, with L rounds, n bytes and c = (p-1)/p."""
    n, L, c = 1 << 20, ceil(log2(p)), (p - 1) / p
    table = {
        ("broadcast", "mst"): (L, L * n, 0), ("broadcast", "ring"): (L + p - 1, 2 * c * n, 0),
        ("reduce", "mst"): (L, L * n, L * n), ("reduce", "ring"): (p - 1 + L, 2 * c * n, c * n),
        ("scatter", "mst"): (L, c * n, 0), ("gather", "mst"): (L, c * n, 0),
        ("all_gather", "mst"): (2 * L, (L + c) * n, 0), ("all_gather", "ring"): (p - 1, c * n, 0),
        ("reduce_scatter", "mst"): (2 * L, (L + c) * n, L * n), ("reduce_scatter", "ring"): (p - 1, c * n, c * n),
        ("all_reduce", "mst"): (2 * L, 2 * L * n, L * n), ("all_reduce", "ring"): (2 * (p - 1), 2 * c * n, c * n),
        ("all_gather", "halving"): (L, c * n, 0), ("reduce_scatter", "halving"): (L, c * n, c * n),
        ("all_reduce", "halving"): (2 * L, 2 * c * n, c * n), ("all_reduce", "doubling"): (L, L * n, L * n),
        ("all_to_all", "bruck"): (L, L * n / 2, 0), ("all_to_all", "pairwise"): (p - 1, c * n, 0),
    }
    for (op, algorithm), coefficients in table.items():
        found = cost(op, algorithm, p, n)
        assert (found.alpha, found.beta, found.gamma) == pytest.approx(coefficients), (op, algorithm)


@pytest.mark.parametrize(("op", "algorithm"), FLAT)
def test_no_algorithm_beats_a_lower_bound(op, algorithm):
    for p in range(1, 130):
        found, bound = cost(op, algorithm, p, 1 << 20), lower_bound(op, p, 1 << 20)
        for name in ("alpha", "beta", "gamma"):
            assert getattr(found, name) >= getattr(bound, name) * (1 - 1e-12), (p, name)


@pytest.mark.parametrize("p", range(2, 40))
def test_the_tree_meets_the_bound_in_rounds_and_the_ring_in_bytes(p):
    n = 1 << 20
    for op in ("broadcast", "reduce", "scatter", "gather"):
        assert cost(op, "mst", p, n).alpha == lower_bound(op, p, n).alpha
    for op in ("all_gather", "reduce_scatter", "all_reduce"):
        assert cost(op, "ring", p, n).beta == pytest.approx(lower_bound(op, p, n).beta)
        assert cost(op, "ring", p, n).gamma == pytest.approx(lower_bound(op, p, n).gamma)


@pytest.mark.parametrize("p", [2, 5, 8, 12])
@pytest.mark.parametrize(("network", "slack"), [
    (Link(1e-5, 1e-9, 1e-10), 1.0), (Link(1e-7, 1e-8, 1e-9), 1.0),
    (Nodes(4, Link(2e-6, 1e-11, 1e-12), Link(2e-5, 1e-9), nics=4), 2.0),  # flat closed forms know one kind of link
])
def test_auto_takes_what_is_fastest_when_simulated(p, network, slack):
    group = plan(network, range(p))
    for op, table in ALGORITHMS.items():
        for rows in [0] if op == "barrier" else [p, 64 * p, 1024 * p]:
            times = {algorithm: simulated(op, algorithm, p, network, rows=rows) for algorithm in (*table, "auto")}
            n = times["auto"][1]
            assert times["auto"] == times[choose(op, n, group)]
            assert times["auto"][0] <= slack * min(time for time, _ in times.values()) * (1 + 1e-9), (op, rows, times)


def test_auto_goes_from_few_rounds_to_little_traffic_as_vectors_grow():
    group = plan(Link(1e-5, 1e-9, 1e-10), range(12))
    names = [choose("all_reduce", 1 << k, group) for k in range(3, 28)]
    assert names[0] == "doubling"
    assert names[-1] == "ring"
    assert names == sorted(names, key=["doubling", "halving", "ring"].index)


def test_costs_add_up():
    assert Cost(1, 2, 3) + Cost(10, 20, 30) == Cost(11, 22, 33)
    assert Cost(2, 1000, 100).time(Link(1e-6, 1e-9, 1e-10)) == pytest.approx(2e-6 + 1e-6 + 1e-8)


def test_busbw_is_what_nccl_tests_report():
    """The factors of nccl-tests' doc/PERFORMANCE.md."""
    p, n, seconds = 8, 1e9, 0.01
    factors = {"all_reduce": 2 * 7 / 8, "all_gather": 7 / 8, "reduce_scatter": 7 / 8, "all_to_all": 7 / 8,
               "gather": 7 / 8, "scatter": 7 / 8, "broadcast": 1, "reduce": 1}
    assert collectives.algbw(n, seconds) == 1e11
    for op, factor in factors.items():
        assert collectives.busbw(op, p, n, seconds) == pytest.approx(1e11 * factor)


def test_a_ring_at_full_speed_has_the_busbw_of_its_link():
    link, p = Link(0, 1e-9, 0), 8
    for op in ("all_gather", "reduce_scatter", "all_reduce"):
        time, n = simulated(op, "ring", p, link)
        assert collectives.busbw(op, p, n, time) == pytest.approx(1 / link.beta)


def test_more_than_one_message_a_part_is_never_sent_on_the_tree():
    """Scatter moves every part once for each rank that it passes; no part passes a rank twice."""
    for p in range(1, 20):
        for root in range(p):
            sent = sum(count.sent for count in collectives.counts("scatter", "mst", [1] * p, root=root))
            assert p - 1 <= sent <= (p - 1) * max(1, ceil(log2(p)))
            assert sum(count.messages for count in collectives.counts("scatter", "mst", [1] * p, root=root)) == p - 1


def test_lengths_of_parts_are_those_of_tensor_split():
    for rows in range(20):
        for p in range(1, 9):
            assert collectives.even_lengths(rows, p) == [len(part) for part in torch.empty(rows).tensor_split(p)]
