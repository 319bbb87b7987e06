"""Networks with structure: what embeds where, what two levels save, what one bad link does."""

import pytest
import torch

from mlsyslab import Deadlock, Failing, Link, Mesh, Nodes, Uneven, collectives, simulate
from mlsyslab.collectives import cost

WIRE = Link(1e-6, 1e-9, 1e-10)


def time(op, algorithm, p, network, rows=64, order=None):
    """Seconds of one call on p ranks, which stand in the group in the given order."""
    def fn(comm, x):
        group = comm if order is None else comm.split(0, order.index(comm.rank))
        return getattr(collectives, op)(group, x, algorithm=algorithm)

    return simulate(fn, [torch.ones(rows * p, dtype=torch.int64)] * p, link=network).time


def snake(rows, columns):
    """The ranks of a mesh row by row, every second row backwards: neighbours all the way."""
    return [r * columns + c for r in range(rows) for c in (range(columns) if r % 2 == 0 else reversed(range(columns)))]


@pytest.mark.parametrize("op", ["all_gather", "reduce_scatter", "all_reduce"])
@pytest.mark.parametrize("p", [3, 4, 7])
def test_a_ring_embeds_in_a_line_for_the_way_back_is_free(op, p):
    """The message that wraps around goes against all others, and wires carry both directions."""
    n = 64 * p * 8 * (p if op == "all_gather" else 1)
    assert time(op, "ring", p, Mesh((p,), WIRE)) == pytest.approx(cost(op, "ring", p, n).time(WIRE))


@pytest.mark.parametrize("torus", [False, True])
@pytest.mark.parametrize("shape", [(2, 2), (3, 4), (4, 4), (2, 3, 4)])
def test_rings_of_rows_and_columns_go_side_by_side(shape, torus):
    """All rows of a mesh at once take as long as one row; so do all columns."""
    p = len(torch.empty(shape).reshape(-1))
    columns = shape[-1]
    for color, k in ((lambda rank: rank // columns, columns), (lambda rank: rank % (p // shape[0]), shape[0])):
        def fn(comm, x, color=color):
            return collectives.all_reduce(comm.split(color(comm.rank)), x, algorithm="ring")

        rows = 12 * k
        run = simulate(fn, [torch.ones(rows, dtype=torch.int64)] * p, link=Mesh(shape, WIRE, torus))
        assert run.time == pytest.approx(cost("all_reduce", "ring", k, 8 * rows).time(WIRE))


@pytest.mark.parametrize("shape", [(2, 3), (4, 4), (4, 5)])
def test_a_snake_is_a_ring_of_all_ranks_of_a_mesh(shape):
    p = shape[0] * shape[1]
    ring = cost("all_reduce", "ring", p, 64 * p * 8).time(WIRE)
    assert time("all_reduce", "ring", p, Mesh(shape, WIRE), order=snake(*shape)) == pytest.approx(ring)


def test_a_ring_in_a_careless_order_waits_for_its_own_messages():
    shape, p = (4, 4), 16
    careless = [rank * 7 % p for rank in range(p)]
    assert time("all_reduce", "ring", p, Mesh(shape, WIRE), order=careless) > 1.5 * time(
        "all_reduce", "ring", p, Mesh(shape, WIRE), order=snake(*shape))


def test_halving_is_fast_on_a_switch_and_shares_wires_on_a_line():
    p = 16
    assert time("all_reduce", "halving", p, WIRE) < time("all_reduce", "ring", p, WIRE)
    assert time("all_reduce", "halving", p, Mesh((p,), WIRE), 4096) > time("all_reduce", "ring", p, Mesh((p,), WIRE), 4096)
    assert "halving" not in collectives.plan(Mesh((p,), WIRE), range(p)).candidates("all_reduce")


@pytest.mark.parametrize("op", ["broadcast", "reduce", "scatter", "gather"])
@pytest.mark.parametrize("p", [5, 8, 13])
def test_a_tree_embeds_in_a_line_for_its_halves_are_apart(op, p):
    n = 64 * p * 8 * (p if op == "gather" else 1)
    assert time(op, "mst", p, Mesh((p,), WIRE)) == pytest.approx(cost(op, "mst", p, n).time(WIRE))


def test_two_levels_beat_one_ring_where_the_network_between_is_slow():
    """8 nodes of 4: long vectors cross the slow network in four lanes, short ones in fewer slow rounds."""
    network = Nodes(4, Link(2e-6, 1e-11, 1e-12), Link(2e-5, 1e-9), nics=4)
    for rows in (1, 1024, 16384):
        assert time("all_reduce", "hierarchical", 32, network, rows) < 0.5 * time("all_reduce", "ring", 32, network, rows)
    equal = Nodes(4, WIRE, WIRE, nics=4)
    long = 16384
    assert time("all_reduce", "ring", 32, equal, long) == pytest.approx(
        time("all_reduce", "hierarchical", 32, equal, long), rel=0.05)


def test_two_levels_send_less_between_nodes():
    """Of an all-reduce of n bytes a node of g sends 2 (k-1)/k n out in both, but a tree's all-gather sends more."""
    network, p, g = Nodes(4, WIRE, Link(1e-5, 1e-8), nics=4), 12, 4

    def crossing(algorithm):
        trace = simulate(lambda comm, x: collectives.all_gather(comm, x, algorithm=algorithm), [torch.ones(16)] * p,
                         link=network).trace
        return sum(event.bytes for event in trace if event.kind == "send" and event.rank // g != event.peer // g)

    assert crossing("hierarchical") < crossing("halving")


@pytest.mark.parametrize("slow", [(2, 3), 5])
def test_one_slow_link_slows_every_step_of_a_ring(slow):
    """A ring is as fast as its slowest link: a link 10 times slower makes the all-reduce about 10 times slower."""
    tenth = Link(10 * WIRE.alpha, 10 * WIRE.beta, WIRE.gamma)
    rows, p = 4096, 8
    n = rows * p * 8
    whole, hurt = (time("all_reduce", "ring", p, network, rows) for network in (WIRE, Uneven(WIRE, {slow: tenth})))
    assert hurt > 0.9 * cost("all_reduce", "ring", p, n).time(tenth)
    assert hurt > 8 * whole


def test_a_tree_that_the_slow_link_is_no_part_of_does_not_mind():
    tenth = Link(10 * WIRE.alpha, 10 * WIRE.beta, WIRE.gamma)
    assert time("broadcast", "mst", 8, Uneven(WIRE, {(1, 2): tenth})) == time("broadcast", "mst", 8, WIRE)


@pytest.mark.parametrize("algorithm", ["ring", "halving", "mst", "hierarchical"])
def test_one_broken_link_ends_everything(algorithm):
    """No collective goes on without a rank: all wait, and the picture names the link."""
    network = Failing(WIRE, {3: 20e-6})
    with pytest.raises(Deadlock) as caught:
        time("all_reduce", algorithm, 8, network, rows=512)
    text = str(caught.value)
    assert "failed at 2e-05 s" in text
    assert "rank 3" in text
    assert len(caught.value.waits) >= 2


def test_a_link_that_breaks_after_the_end_does_no_harm():
    run_time = time("all_reduce", "ring", 8, WIRE)
    assert time("all_reduce", "ring", 8, Failing(WIRE, {(0, 1): 2 * run_time})) == run_time
