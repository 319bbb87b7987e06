"""The simulated world: its clock, its order, and what it says when ranks cannot go on."""

import os
import random
import signal
import threading

import pytest
import torch

from mlsyslab import CommError, Deadlock, Failing, Link, Mesh, Nodes, RankFailed, Uneven, launch, simulate

LINK = Link(alpha=2.0, beta=0.5, gamma=0.25)


def vector(n, dtype=torch.float32):
    return torch.arange(n).to(dtype)


@pytest.fixture(autouse=True)
def no_thread_is_left():
    yield
    left = [thread.name for thread in threading.enumerate() if thread.name.startswith("rank ")]
    assert not left


# -- the clock ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("world", [simulate, launch])
def test_the_same_work_may_be_waited_for_twice(world):
    def program(comm, x):
        work = comm.isend(x, 1) if comm.rank == 0 else comm.irecv(x, 0)
        comm.wait_all([work, work])
        work.wait()
        return comm.wait_any([work, work]), x.tolist()

    assert world(program, [torch.ones(2), torch.zeros(2)]).results == [(0, [1.0, 1.0])] * 2


@pytest.mark.parametrize("n", [0, 1, 7, 1000])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64, torch.bool, torch.complex64])
def test_a_message_takes_alpha_plus_n_beta(n, dtype):
    def one_message(comm, x):
        if comm.rank == 0:
            comm.send(x, to=1)
        else:
            return comm.recv(torch.empty_like(x), source=0)
        return comm.now()

    x = vector(n, dtype)
    run = simulate(one_message, [x, x], LINK)
    assert run.time == LINK.time(x.nbytes) == run.results[0]
    assert torch.equal(run.results[1], x)
    assert [(e.rank, e.kind, e.start, e.end, e.bytes, e.peer) for e in run.trace] == [
        (0, "send", 0.0, run.time, x.nbytes, 1), (1, "recv", 0.0, run.time, x.nbytes, 0)]


def test_random_blocking_programs_take_the_time_of_their_longest_chain():
    """Oracle: for messages (source, to, n) in one global order, clock[source] = clock[to] = max of both + alpha + n beta."""
    draw = random.Random(0)
    for _ in range(50):
        p = draw.randint(2, 7)
        messages = [(*draw.sample(range(p), 2), draw.randint(0, 9)) for _ in range(draw.randint(1, 60))]

        def program(comm, _, messages=messages):
            for source, to, n in messages:
                if comm.rank == source:
                    comm.send(torch.zeros(n), to)
                elif comm.rank == to:
                    comm.recv(torch.zeros(n), source)
            return comm.now()

        clock = [0.0] * p
        for source, to, n in messages:
            clock[source] = clock[to] = max(clock[source], clock[to]) + LINK.time(4 * n)
        run = simulate(program, [None] * p, LINK)
        assert run.results == clock
        assert run.time == max(clock)
        assert run.trace.messages() == len(messages)


def test_a_rank_sends_one_message_at_a_time_and_sends_while_it_receives():
    def fan_out(comm, x):
        if comm.rank == 0:
            comm.wait_all([comm.isend(x, to) for to in range(1, comm.size)])
        else:
            comm.recv(torch.empty_like(x), 0)

    def exchange(comm, x):
        other = 1 - comm.rank
        comm.sendrecv(x, other, torch.empty_like(x), other)

    x = vector(6)
    assert simulate(fan_out, [x] * 4, LINK).time == 3 * LINK.time(24)
    assert simulate(exchange, [x] * 2, LINK).time == LINK.time(24)


def test_the_message_that_was_ready_first_goes_first():
    """Rank 0 receives from 1 (ready at 5) and 2 (ready at 1); in whatever order it asks, rank 2's message comes first."""
    for order in [(1, 2), (2, 1)]:
        def program(comm, _, order=order):
            if comm.rank == 0:
                works = [comm.irecv(torch.empty(1), source) for source in order]
                comm.wait_all(works)
            else:
                comm.compute([5.0, 1.0][comm.rank - 1])
                comm.send(torch.ones(1), 0)
            return comm.now()

        assert simulate(program, [None] * 3, Link(10, 0)).results[1:] == [21.0, 11.0]


@pytest.mark.parametrize("op, expected", [("sum", [11, 22, 33]), ("max", [10, 20, 30])])
@pytest.mark.parametrize("same", ["memory", "part", "strides", "nothing"])
def test_what_is_sent_may_share_memory_with_what_is_combined(op, expected, same):
    """Two ranks exchange what they have and combine it into the same place: each gets the other's as it was."""
    def program(comm, x):
        whole = torch.cat([x, x])
        mine, acc = {"memory": (x, x), "part": (whole[:3], whole[2:5]), "strides": (whole[:6:2], whole[1:6:2]),
                     "nothing": (x, x.clone())}[same]
        sent, before = mine.clone(), acc.clone()
        comm.sendrecv_combine(mine, 1 - comm.rank, acc, 1 - comm.rank, op)
        return sent, before, acc.clone()

    for run in (simulate, launch):
        (sent0, before0, acc0), (sent1, before1, acc1) = run(program, [torch.tensor([1.0, 2, 3]),
                                                                       torch.tensor([10.0, 20, 30])]).results
        combine = {"sum": torch.add, "max": torch.maximum}[op]
        assert torch.equal(acc0, combine(before0, sent1))
        assert torch.equal(acc1, combine(before1, sent0))
        if same in ("memory", "nothing"):
            assert acc0.tolist() == acc1.tolist() == expected


def test_a_reduction_that_the_dtype_lacks_is_the_error_of_the_rank_that_asked():
    def program(comm, x):
        if comm.rank == 1:
            comm.sendrecv_combine(x, 0, x.clone(), 0, "max")
        else:
            comm.sendrecv(x, 1, x.clone(), 1)

    with pytest.raises(RankFailed, match="rank 1 of 2 failed"):
        simulate(program, [torch.ones(3, dtype=torch.complex64)] * 2)


def test_combining_costs_gamma_a_byte_and_modelled_work_its_seconds():
    def program(comm, x):
        comm.combine(x, torch.ones_like(x))
        comm.compute(3.0, "thinking")
        with comm.work("more", seconds=1.5):
            pass
        return x

    run = simulate(program, [vector(8)], LINK)
    assert run.time == 8 * 4 * LINK.gamma + 4.5
    assert torch.equal(run.results[0], vector(8) + 1)
    assert [(e.kind, e.label) for e in run.trace] == [("combine", ""), ("compute", "thinking"), ("compute", "more")]
    assert run.trace.bytes_combined(0) == 32


@pytest.mark.parametrize("op, expected", [("sum", [5, 7]), ("product", [6, 12]), ("min", [2, 3]), ("max", [3, 4]),
                                          ("mean", [5, 7])])  # a mean is summed here, and divided once by who asked
@pytest.mark.parametrize("dtype", [torch.float64, torch.int32, torch.bfloat16])
def test_combine_is_in_place(op, expected, dtype):
    def program(comm, _):
        acc = torch.tensor([2, 4], dtype=dtype)
        back = comm.combine(acc, torch.tensor([3, 3], dtype=dtype), op)
        assert back is acc
        return acc

    assert simulate(program, [None]).results[0].tolist() == expected


def test_two_runs_are_the_same_to_the_last_event():
    def program(comm, seed):
        draw = random.Random(seed)
        for k in range(20):
            comm.compute(draw.random())
            to, source = (comm.rank + 1 + k % 3) % comm.size, (comm.rank - 1 - k % 3) % comm.size
            comm.sendrecv(torch.zeros(k), to, torch.empty(k), source, tag=k)
        return comm.now()

    first, second = (simulate(program, range(5), LINK) for _ in range(2))
    assert first.trace == second.trace and first.results == second.results


# -- messages -------------------------------------------------------------------------------------------------------------


def test_messages_keep_their_order_within_a_tag_and_not_between_tags():
    def program(comm, _):
        if comm.rank == 0:
            works = [comm.isend(torch.tensor([k]), 1, tag=k % 2) for k in range(6)]
            comm.wait_all(works)
            return None
        return [comm.recv(torch.empty(1, dtype=torch.int64), 0, tag).item() for tag in (1, 1, 0, 1, 0, 0)]

    assert simulate(program, [None] * 2).results[1] == [1, 3, 0, 5, 2, 4]


def test_tensors_of_any_layout_travel():
    x = torch.arange(24.0).reshape(4, 6)

    def program(comm, _):
        if comm.rank == 0:
            comm.send(x.t()[1:5:2], 1)
            return None
        out = torch.zeros(8, 4)
        comm.recv(out[2:6:2], 0)
        return out

    out = simulate(program, [None] * 2).results[1]
    assert torch.equal(out[2:6:2], x.t()[1:5:2]) and out.count_nonzero() == 8 - (x.t()[1:5:2] == 0).sum()


def test_every_rank_has_its_own_grad_mode():
    def program(comm, x):
        if comm.rank == 0:
            with torch.no_grad():
                comm.send(x, 1)
            return torch.is_grad_enabled()
        comm.recv(torch.empty(1), 0)
        return torch.is_grad_enabled()

    assert simulate(program, [torch.ones(1, requires_grad=True)] * 2).results == [True, True]


def test_split_makes_rows_and_columns():
    def program(comm, _):
        row, column = comm.split(comm.rank // 3), comm.split(comm.rank % 3, key=-comm.rank)
        out = torch.empty(1, dtype=torch.int64)
        row.sendrecv(torch.tensor([comm.rank]), (row.rank + 1) % row.size, out, (row.rank - 1) % row.size)
        return row.ranks, column.ranks, out.item()

    results = simulate(program, [None] * 6).results
    assert results[4] == ([3, 4, 5], [4, 1], 3)
    assert [result[2] for result in results] == [2, 0, 1, 5, 3, 4]


def test_groups_do_not_take_each_others_messages():
    def program(comm, _):
        pair = comm.split(0)
        out = torch.empty(1)
        if comm.rank == 0:
            comm.wait_all([comm.isend(torch.tensor([1.0]), 1), pair.isend(torch.tensor([2.0]), 1)])
            return None
        return pair.recv(out, 0).item(), comm.recv(out, 0).item()

    assert simulate(program, [None] * 2).results[1] == (2.0, 1.0)


def test_a_barrier_brings_all_clocks_to_the_latest():
    def program(comm, seconds):
        comm.compute(seconds)
        comm.barrier()
        return comm.now()

    assert simulate(program, [3.0, 1.0, 2.0]).results == [3.0] * 3


# -- networks with structure ----------------------------------------------------------------------------------------------


def pairwise(pairs):
    """Every pair (source, to) exchanges one message at the same time."""
    def program(comm, x):
        comm.wait_all([comm.isend(x, to) for source, to in pairs if source == comm.rank]
                      + [comm.irecv(torch.empty_like(x), source) for source, to in pairs if to == comm.rank])
    return program


@pytest.mark.parametrize("nics, waves", [(1, 4), (2, 2), (4, 1)])
def test_ranks_of_a_node_share_its_network_cards(nics, waves):
    fast, slow = Link(1, 0.125), Link(4, 1)
    network = Nodes(4, inside=fast, between=slow, nics=nics)
    across = pairwise([(r, r + 4) for r in range(4)])
    within = pairwise([(0, 1), (2, 3), (4, 5), (6, 7)])
    x = vector(8)
    assert simulate(across, [x] * 8, network).time == waves * slow.time(32)
    assert simulate(within, [x] * 8, network).time == fast.time(32)


@pytest.mark.parametrize("torus, hops", [(False, 3), (True, 1)])
def test_a_message_holds_every_wire_of_its_way(torus, hops):
    mesh = Mesh((2, 4), LINK, torus=torus)
    assert len(mesh.way(0, 3)) == hops
    x = vector(2)
    crossing = pairwise([(0, 3), (1, 2)])  # on the mesh both want the wire from 1 to 2
    assert simulate(crossing, [x] * 8, mesh).time == (1 if torus else 2) * LINK.time(8)


def test_a_ring_in_a_row_of_a_mesh_has_no_conflict():
    """The wrap-around message takes the wires the other way, which no other message wants (Chan et al. 2007)."""
    row = Mesh((1, 5), LINK)
    assert simulate(pairwise([(r, (r + 1) % 5) for r in range(5)]), [vector(3)] * 5, row).time == LINK.time(12)


@pytest.mark.parametrize("shape", [(7,), (2, 3), (2, 3, 4), (3, 1, 2, 2)])
@pytest.mark.parametrize("torus", [False, True])
def test_ways_through_a_mesh_are_shortest_and_connected(shape, torus):
    mesh = Mesh(shape, LINK, torus)
    size = torch.Size(shape).numel()
    for source in range(size):
        for to in range(size):
            way, here = mesh.way(source, to), mesh.coordinates(source)
            for before, after in way:
                assert before == here
                assert sum(b != a for b, a in zip(before, after, strict=True)) == 1
                here = after
            assert here == mesh.coordinates(to)
            steps = [abs(a - b) for a, b in zip(mesh.coordinates(source), here, strict=True)]
            assert len(way) == sum(min(d, n - d) if torus else d for d, n in zip(steps, shape, strict=True))


def test_one_slow_link_and_one_slow_rank():
    slow = Link(100, 0)
    x = vector(1)
    assert simulate(pairwise([(0, 1), (2, 3)]), [x] * 4, Uneven(LINK, {(0, 1): slow})).time == 100
    assert simulate(pairwise([(1, 0)]), [x] * 4, Uneven(LINK, {(0, 1): slow})).time == LINK.time(4)
    assert simulate(pairwise([(3, 2)]), [x] * 4, Uneven(LINK, {2: slow})).time == 100


def test_a_link_that_fails_ends_the_run_and_is_named():
    network = Failing(Nodes(2, Link(1), Link(3)), {(0, 2): 2.0})
    with pytest.raises(Deadlock, match="the link between rank 0 and rank 2 failed at 2 s") as caught:
        simulate(pairwise([(0, 2), (1, 3)]), [vector(1)] * 4, network)
    assert {wait.rank for wait in caught.value.waits} == {0, 2}
    assert simulate(pairwise([(0, 1), (1, 3)]), [vector(1)] * 4, network).time == 3.0


def test_a_network_says_what_it_cannot_hold():
    with pytest.raises(ValueError, match="9 ranks don't fit a mesh of 2 x 4 = 8 places"):
        simulate(pairwise([]), [None] * 9, Mesh((2, 4), LINK))
    for make, message in [(lambda: Link(-1), "alpha is a finite number of seconds"),
                          (lambda: Link(beta=float("nan")), "beta is a finite number of seconds"),
                          (lambda: Nodes(0, LINK, LINK), "both are 1 or more"),
                          (lambda: Mesh((), LINK), "every dimension"),
                          (lambda: Mesh((2, 0), LINK), "every dimension")]:
        with pytest.raises(ValueError, match=message):
            make()


# -- what cannot go on ----------------------------------------------------------------------------------------------------


def send_right(comm, x):
    comm.send(x, (comm.rank + 1) % comm.size)
    comm.recv(torch.empty_like(x), (comm.rank - 1) % comm.size)
    return comm.now()


@pytest.mark.parametrize("p", [2, 3, 8, 40])
def test_everyone_sends_first(p):
    with pytest.raises(Deadlock) as caught:
        simulate(send_right, [vector(3)] * p)
    error = caught.value
    assert error.cycle == list(range(p)) and len(error.waits) == p
    assert error.waits[0].code == "comm.send(x, (comm.rank + 1) % comm.size)"
    assert "test_simulate.py" in error.waits[0].where
    assert "rank 0 waits to send 12 bytes to rank 1" in str(error) and "use sendrecv" in str(error)
    assert simulate(send_right, [vector(3)] * p, LINK, buffered=True).time == LINK.time(12)


def test_only_the_ranks_that_wait_in_a_circle_are_the_cycle():
    def program(comm, x):
        comm.recv(x, {0: 1, 1: 2, 2: 1, 3: 0}[comm.rank])

    with pytest.raises(Deadlock) as caught:
        simulate(program, [vector(1)] * 4)
    assert caught.value.cycle == [1, 2]


@pytest.mark.parametrize("program, message", [
    (lambda comm, x: comm.recv(x, 1) if comm.rank == 0 else None, "rank 1 has already returned"),
    (lambda comm, x: comm.recv(x, 1, tag=3) if comm.rank == 0 else comm.send(x, 0, tag=4), "a send, but with tag 4"),
    (lambda comm, x: comm.recv(x, 1) if comm.rank == 0 else comm.split(0) and None, "rank 1 waits at a barrier"),
    (lambda comm, x: comm.barrier() if comm.rank == 0 else None, "not there: rank 1"),
    (lambda comm, x: comm.split(0).recv(x, 1 - comm.rank) if comm.rank == 0 else comm.split(0) and comm.send(x, 0),
     "in another group"),
])
def test_a_wait_that_never_ends_says_why(program, message):
    with pytest.raises(Deadlock, match=message):
        simulate(program, [vector(1)] * 2)


def test_a_rank_that_raises_ends_the_run_with_its_own_error():
    def program(comm, x):
        if comm.rank == 2:
            raise KeyError("lost")
        comm.recv(x, 2)

    with pytest.raises(RankFailed, match="rank 2 of 4 failed: KeyError: 'lost'") as caught:
        simulate(program, [vector(1)] * 4)
    assert isinstance(caught.value.__cause__, KeyError) and caught.value.rank == 2


def test_an_endless_loop_ends_at_the_timeout():
    def program(comm, x):
        if comm.rank == 1:
            while True:
                pass
        comm.recv(x, 1)

    with pytest.raises(Deadlock, match="still going on after 0.2 s(.|\n)*rank 1 is in a part that doesn't end"):
        simulate(program, [vector(1)] * 3, timeout=0.2)


def test_an_interrupt_ends_the_run():
    def program(comm, x):
        os.kill(os.getpid(), signal.SIGINT)
        while True:
            pass

    with pytest.raises(KeyboardInterrupt):
        simulate(program, [None] * 2)


@pytest.mark.parametrize("buffered", [False, True])
def test_what_is_sent_must_fit_what_is_expected(buffered):
    for sent, expected in [(vector(3), vector(4)), (vector(3), vector(3, torch.int32)), (torch.ones(2, 2), torch.ones(4))]:
        def program(comm, _, sent=sent, expected=expected):
            if comm.rank == 0:
                comm.send(sent, 1)
            else:
                comm.recv(expected, 0)

        with pytest.raises(RankFailed, match="rank 0 sends .* to rank 1, which expects") as caught:
            simulate(program, [None] * 2, buffered=buffered)
        assert isinstance(caught.value.__cause__, CommError)


@pytest.mark.parametrize("call, error, message", [
    (lambda c, x: c.send(x, 5), ValueError, r"send\(to=5\): there is no rank 5; ranks are 0 … 2"),
    (lambda c, x: c.send(x, -1), ValueError, "there is no rank -1"),
    (lambda c, x: c.recv(x, c.rank), ValueError, "cannot send to or receive from itself"),
    (lambda c, x: c.send(x, 1.0), TypeError, "a rank is an int, not float"),
    (lambda c, x: c.send([1, 2], 1), TypeError, "send takes a tensor, not list"),
    (lambda c, x: c.sendrecv(x, 1, x, "0"), TypeError, "a rank is an int, not str"),
    (lambda c, x: c.isend(x, 1, tag=-1), ValueError, "a tag is an int, 0 …"),
    (lambda c, x: c.irecv(x, 1, tag=1 << 15), ValueError, "a tag is an int, 0 …"),
    (lambda c, x: c.combine(x, x, "avg"), ValueError, "op='avg': a reduction is one of sum, product, min, max, mean"),
    (lambda c, x: c.combine(x, x.double()), ValueError, "float32 of shape .*and float64 of shape|float32 of shape"),
    (lambda c, x: c.combine(x, x[:1]), ValueError, "one shape and dtype"),
    (lambda c, x: c.compute(-1), ValueError, "0 seconds or more"),
])
def test_wrong_arguments_are_refused_by_name(call, error, message):
    def program(comm, x):
        if comm.rank == 0:
            call(comm, x)

    with pytest.raises(RankFailed, match=message) as caught:
        simulate(program, [vector(2)] * 3)
    assert type(caught.value.__cause__) is error


def test_wrong_worlds_are_refused():
    with pytest.raises(ValueError, match="inputs is empty"):
        simulate(send_right, [])
    with pytest.raises(TypeError, match="give a Link"):
        simulate(send_right, [1], link=(1, 2))
