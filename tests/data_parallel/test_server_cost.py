"""Server against ring: the closed forms are the simulated times, and where the server's link is the bottleneck."""

import pytest
import torch

from mlsyslab import Link, RankFailed, launch, simulate
from mlsyslab.collectives import all_reduce
from mlsyslab.data_parallel import (
    BSP,
    Job,
    Setup,
    Steady,
    play,
    ring_time,
    server_time,
    spirals,
    through_servers,
)
from mlsyslab.data_parallel.cost import iteration_time_in_messages

LINKS = [Link(1e-5, 0, 0), Link(0, 1e-9, 0), Link(1e-5, 1e-9, 4e-9)]
WORLDS = [(w, s) for w in (1, 2, 3, 5, 8) for s in (1, 2, 3, 5, 8)]
LENGTH = 240  # float32, divided by every number of servers


def tensors(number):
    return [torch.arange(LENGTH, dtype=torch.float32).view(4, -1) * (rank + 1) for rank in range(number)]


@pytest.mark.parametrize("link", LINKS)
@pytest.mark.parametrize(("workers", "servers"), WORLDS)
def test_servers_of_their_own(workers, servers, link):
    given = tensors(servers + workers)
    run = simulate(lambda comm, tensor: through_servers(comm, tensor, servers), given, link)
    assert run.time == pytest.approx(server_time(4 * LENGTH, workers, servers, link))
    assert run.results[:servers] == [None] * servers
    for result in run.results[servers:]:
        assert torch.equal(result, sum(given[servers:]))
    for server in range(servers):  # all that workers push goes through the server's link, and comes back
        assert run.trace.bytes_sent(server) == workers * 4 * LENGTH // servers
    for worker in range(servers, servers + workers):
        assert run.trace.bytes_sent(worker) == 4 * LENGTH


@pytest.mark.parametrize("link", LINKS)
@pytest.mark.parametrize("p", [1, 2, 3, 4, 5, 8])
def test_with_a_server_on_every_worker_it_is_the_ring(p, link):
    given = tensors(p)
    ours = simulate(lambda comm, tensor: through_servers(comm, tensor, p, colocated=True), given, link)
    ring = simulate(lambda comm, tensor: all_reduce(comm, tensor, algorithm="ring"), given, link)
    assert ours.time == pytest.approx(ring.time) == pytest.approx(ring_time(4 * LENGTH, p, link))
    assert server_time(4 * LENGTH, p, p, link, colocated=True) == pytest.approx(ring_time(4 * LENGTH, p, link))
    for rank in range(p):
        assert torch.equal(ours.results[rank], sum(given))
        assert ours.trace.bytes_sent(rank) == ring.trace.bytes_sent(rank) == 2 * (p - 1) * 4 * LENGTH // p


def test_the_link_of_one_server_is_the_bottleneck():
    link, n = Link(0, 1e-9), 1e9
    for workers in (2, 4, 8, 64):
        assert server_time(n, workers, 1, link) == pytest.approx(workers * server_time(n, 1, 1, link))
        assert ring_time(n, workers, link) < 2
        assert server_time(n, workers, workers, link) == pytest.approx(2)  # sharded over as many, it is near the ring's


@pytest.mark.parametrize("length", [0, 1, 7])
@pytest.mark.parametrize(("servers", "colocated"), [(1, False), (3, False), (4, True)])
def test_lengths_that_do_not_divide(length, servers, colocated):
    given = [torch.full((length,), 1.0 + rank) for rank in range(4)]
    results = simulate(lambda comm, tensor: through_servers(comm, tensor, servers, colocated), given).results
    for result in results[0 if colocated else servers:]:
        assert torch.equal(result, sum(given[0 if colocated else servers:]))


def test_on_processes():
    given = tensors(4)
    for alone, all in launch(through_both, given, backend="gloo").results[1:]:
        assert torch.equal(alone, sum(given[1:])) and torch.equal(all, sum(given))


def through_both(comm, tensor):
    return through_servers(comm, tensor, 1), through_servers(comm, tensor, 4, colocated=True)


@pytest.mark.parametrize("servers", [1, 2, 4])
def test_an_iteration_of_the_key_value_server_costs_what_the_links_do(servers):
    """Out and in at the same time: (W/S + 1) n beta. Beside the values there are headers and acknowledgements."""
    beta, workers = 1e-6, 4
    task = spirals(workers, width=64)
    n = sum(value.nbytes for value in task.start.values())
    one, three = (play(Job(task, clocks, Setup(servers, BSP()), Steady(1e-9)), Link(0, beta)).time for clocks in (1, 3))
    assert (three - one) / 2 == pytest.approx(iteration_time_in_messages(n, workers, servers, Link(0, beta)), rel=0.02)


def test_of_no_bytes_there_remains_what_a_message_costs():
    assert server_time(0, 3, 2, Link(alpha=1.0, beta=1.0, gamma=1.0)) == 6


@pytest.mark.parametrize(("arguments", "words"), [
    ((-1, 2, 1), "0 bytes or more"), ((1, 0, 1), "at least one"), ((1, 1, 0), "at least one"),
    ((1, 2, 1, Link(), True), "as many")])
def test_costs_that_cannot_be(arguments, words):
    with pytest.raises(ValueError, match=words):
        server_time(*arguments, **({} if len(arguments) > 3 else {"link": Link()}))


@pytest.mark.parametrize(("servers", "colocated", "words"), [
    (0, False, "at least one serves"), (3, False, "at least one serves"), (2, True, "all 3 ranks serve")])
def test_worlds_that_cannot_be(servers, colocated, words):
    with pytest.raises(RankFailed, match=words):
        simulate(lambda comm, tensor: through_servers(comm, tensor, servers, colocated), tensors(3))
