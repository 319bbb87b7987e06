"""What runs beside a rank (`Communicator.start`), and waiting for the first of several messages, in every world."""

import pytest
import torch

from mlsyslab import CommError, Deadlock, Link, RankFailed, collectives, launch, simulate

LINK = Link(alpha=1.0, beta=0.25)


def worlds(fn, inputs):
    """The results of every world."""
    return [simulate(fn, inputs).results, launch(fn, inputs, backend="gloo").results]


# -- the simulated clock --------------------------------------------------------------------------------------------------


def test_what_runs_beside_overlaps_with_what_the_rank_does():
    """A message of 5 s beside 3 s of work, then one more of 5 s that waits for the first: 10 s, not 13."""
    def program(comm, x):
        tasks = [comm.start(exchange, x), comm.start(exchange, x)]
        comm.compute(3.0)
        there = comm.now()
        results = [task.wait() for task in tasks]
        return there, comm.now(), results

    def exchange(comm, x):
        comm.sendrecv(x, 1 - comm.rank, out := torch.empty_like(x), 1 - comm.rank)
        return out

    run = simulate(program, [torch.full((4,), float(r)) for r in range(2)], LINK)
    for rank, (there, end, results) in enumerate(run.results):
        assert (there, end) == (3.0, 10.0)
        assert all(torch.equal(result, torch.full((4,), 1.0 - rank)) for result in results)
    assert [(e.start, e.end) for e in run.trace if e.kind == "send" and e.rank == 0] == [(0, 5), (5, 10)]


def test_a_task_begins_when_it_is_started_and_a_late_wait_costs_nothing():
    def program(comm, _):
        comm.compute(2.0)
        task = comm.start(lambda side: side.compute(4.0) or side.now())
        comm.compute(10.0)
        return task.wait(), comm.now()

    assert simulate(program, [None] * 3, LINK).results == [(6.0, 12.0)] * 3


def test_the_first_of_several_messages_is_the_earliest_in_virtual_time():
    """Rank 0's own send (ready at 3, 1 s) ends before what rank 1 sends it (ready at 0, 11 s)."""
    def program(comm, _):
        big, small = torch.zeros(10), torch.zeros(0)
        if comm.rank == 0:
            receive = comm.irecv(big, 1)
            comm.compute(3.0)
            works = [receive, comm.isend(small, 2)]
            return comm.wait_any(works), comm.now(), comm.wait_any(works[:1]), comm.now()
        if comm.rank == 1:
            comm.send(big, 0)
        else:
            comm.recv(small, 0)
        return None

    assert simulate(program, [None] * 3, LINK).results[0] == (1, 4.0, 0, 11.0)


# -- every world ----------------------------------------------------------------------------------------------------------


def test_collectives_beside_and_in_the_rank_do_not_mix():
    def program(comm, x):
        tasks = [comm.start(collectives.all_reduce, x * k, "sum") for k in range(1, 5)]
        mine = [collectives.all_reduce(comm, x * 10 * k) for k in range(1, 4)]
        return [task.wait() for task in tasks] + mine

    p = 3
    inputs = [torch.arange(1000.0) + rank for rank in range(p)]
    total = sum(inputs)
    for results in worlds(program, inputs):
        for result in results:
            for k, reduced in zip([1, 2, 3, 4, 10, 20, 30], result, strict=True):
                assert torch.equal(reduced, total * k)


def test_groups_inside_of_what_runs_beside():
    def program(comm, x):
        def in_rows(side, x):
            return collectives.all_reduce(side.split(side.rank // 2), x)

        task = comm.start(in_rows, x)
        columns = collectives.all_reduce(comm.split(comm.rank % 2), x)
        comm.barrier()
        return task.wait().item(), columns.item()

    for results in worlds(program, [torch.tensor([float(10**rank)]) for rank in range(4)]):
        assert results == [(11, 101), (11, 1010), (1100, 101), (1100, 1010)]


def test_a_rank_waits_for_what_it_started_before_it_ends():
    def program(comm, x):
        comm.start(lambda side: side.sendrecv(torch.ones(3), 1 - side.rank, x, 1 - side.rank))
        return x

    for results in worlds(program, [torch.zeros(3)] * 2):
        assert torch.equal(results[0], torch.ones(3))


@pytest.mark.parametrize("waits", [True, False])
@pytest.mark.parametrize("run", [simulate, launch])
def test_an_error_beside_is_the_rank_s(run, waits):
    def program(comm, _):
        task = comm.start(broken)
        return task.wait() if waits else None

    def broken(side):
        if side.rank == 1:
            raise ValueError("odd length")
        collectives.barrier(side)

    with pytest.raises(RankFailed, match="rank 1 of 2 failed: ValueError: odd length"):
        run(program, [None] * 2)


@pytest.mark.parametrize("run", [simulate, launch])
def test_a_deadlock_beside_is_told(run):
    def program(comm, x):
        comm.start(lambda side: side.recv(x, 1 - side.rank)).wait()

    with pytest.raises(Deadlock, match="waits to receive 12 bytes from rank 1") as error:
        run(program, [torch.zeros(3)] * 2)
    assert error.value.cycle == [0, 1]


def test_a_start_inside_of_what_was_started_is_refused():
    def program(comm, _):
        with pytest.raises(CommError, match="call the function itself"):
            comm.start(lambda side: side.start(print)).wait()

    worlds(program, [None] * 2)


def test_a_server_hears_whoever_comes_first():
    """Each worker sends twenty numbers, at its own pace; the server takes them all, each worker's in order."""
    def program(comm, _):
        if comm.rank:
            for k in range(20):
                comm.send(torch.tensor([100 * comm.rank + k]), 0)
            return None
        rooms = [torch.empty(1, dtype=torch.int64) for _ in range(1, comm.size)]
        works = [comm.irecv(room, source + 1) for source, room in enumerate(rooms)]
        came = []
        for _ in range(20 * len(rooms)):
            i = comm.wait_any([work for work in works if work is not None])
            i = [k for k, work in enumerate(works) if work is not None][i]
            came.append(rooms[i].item())
            done = sum(number // 100 == i + 1 for number in came) == 20
            works[i] = None if done else comm.irecv(rooms[i], i + 1)
        return came

    for results in worlds(program, [None] * 4):
        for worker in (1, 2, 3):
            assert [k for k in results[0] if k // 100 == worker] == [100 * worker + k for k in range(20)]


def test_wait_any_needs_something_to_wait_for():
    with pytest.raises(RankFailed, match="at least one"):
        simulate(lambda comm, _: comm.wait_any([]), [None])
