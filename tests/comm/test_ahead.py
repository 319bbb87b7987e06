"""Ranks that run ahead inside of collectives: nobody can tell but by the time it takes."""

import gc
import random
from contextlib import contextmanager

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from mlsyslab import Communicator, Deadlock, Failing, Failure, Link, Mesh, Nodes, RankFailed, Uneven, collectives, simulate
from mlsyslab.collectives import ALGORITHMS
from mlsyslab.comm import ahead, garbage, kept
from mlsyslab.comm.simulate import SimulatedCommunicator
from mlsyslab.comm.virtual import VirtualWorld

LINK = Link(1.0, 0.5, 0.25)
NETWORKS = {"free": Link(), "link": LINK, "nodes": Nodes(3, LINK, Link(4.0, 1.0), nics=2),
            "torus": Mesh((4, 4), LINK, torus=True), "mesh": Mesh((16,), LINK),
            "uneven": Uneven(LINK, {1: Link(9.0, 2.0), (2, 3): Link(0.0, 0.0)})}
CASES = [(op, algorithm) for op, table in ALGORITHMS.items() for algorithm in table]
REDUCING = ("reduce", "reduce_scatter", "all_reduce")


@contextmanager
def in_step(monkeypatch):
    """No rank runs ahead."""
    with monkeypatch.context() as patch:
        patch.setattr(SimulatedCommunicator, "ahead", Communicator.ahead)
        yield


def call(comm, op, algorithm, x):
    collective = getattr(collectives, op)
    arguments = () if op == "barrier" else (x,) + (("sum",) if op in REDUCING[1:] else (0, "sum") if op == "reduce" else ())
    return collective(comm, *arguments, algorithm=algorithm)


def outcome(program, inputs, *args, **options):
    """What a run comes to: results and times, or its error; and the trace, event for event."""
    try:
        run = simulate(program, [x.clone() for x in inputs], *args, **options)
    except (Deadlock, RankFailed) as error:
        return type(error), str(error), list(error.trace)
    return [None if r is None else r.tolist() for r in run.results], run.time, list(run.trace)


def assert_same(monkeypatch, program, inputs, *args, **options):
    """The outcome, which is the same when no rank runs ahead."""
    came = outcome(program, inputs, *args, **options)
    with in_step(monkeypatch):
        assert came == outcome(program, inputs, *args, **options)
    return came


def vectors(p, n):
    return [torch.arange(n) * (rank + 1) for rank in range(p)]


# -- the same to the last event -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("network", NETWORKS)
@pytest.mark.parametrize("op, algorithm", CASES)
def test_every_collective_takes_the_same_time_and_leaves_the_same_trace(monkeypatch, op, algorithm, network):
    for p in (1, 2, 3, 5, 8, 16):
        for n in (1, 2 * p + 1):
            assert_same(monkeypatch, lambda comm, x: call(comm, op, algorithm, x), vectors(p, n), NETWORKS[network])


@pytest.mark.parametrize("steps", [0, 1, 2, 5, 128])
def test_however_far_ranks_run_ahead(monkeypatch, steps):
    monkeypatch.setattr(ahead, "STEPS", steps)
    for case in CASES:
        assert_same(monkeypatch, lambda comm, x: call(comm, *case, x), vectors(7, 9), NETWORKS["nodes"])  # noqa: B023


def test_random_programs_of_collectives_messages_and_work(monkeypatch):
    """One collective after another, in groups and beside, with work, messages and the time asked for in between."""
    def program(comm, x, seed):
        draw, seen = random.Random(seed), []
        half = comm.split(comm.rank % 2)
        for k in range(12):
            op, algorithm = draw.choice(CASES)
            where = draw.choice(["all", "half", "beside", "ring"])
            comm.compute(draw.random() * (comm.rank + k) % 3)
            if where == "ring":
                right, left = (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size
                result = comm.sendrecv(x, right, torch.empty_like(x), left, tag=k)
            elif where == "beside":
                task = comm.start(call, op, algorithm, x)
                comm.compute(2.0)
                result = task.wait()
            else:
                result = call(comm if where == "all" else half, op, algorithm, x)
            seen += [comm.now(), 0.0 if result is None else result.sum().item()]
        return torch.tensor(seen)

    for seed in range(30):
        p = 2 + seed % 7
        network = NETWORKS[random.Random(seed).choice(list(NETWORKS))]
        came = assert_same(monkeypatch, lambda comm, x: program(comm, x, seed), vectors(p, 11), network)  # noqa: B023
        assert came[0] not in (Deadlock, RankFailed)


@pytest.mark.parametrize("options", [{"buffered": True}, {"failures": [Failure(2, 6.0)]},
                                     {"failures": [Failure(1, 9.0, 12.0)]}])
def test_ranks_that_die_and_buffered_sends(monkeypatch, options):
    def program(comm, x, case):
        call(comm, *case, x)  # its result is what an unfinished message leaves, so only times are compared

    for case in CASES:
        assert_same(monkeypatch, lambda comm, x: program(comm, x, case), vectors(5, 7), LINK, **options)  # noqa: B023


def test_what_ranks_do_between_collectives_happens_in_the_same_order(monkeypatch):
    def program(comm, x):
        for k in range(5):
            x = collectives.broadcast(comm, x, root=k % comm.size, algorithm="mst")
            said.append((comm.rank, k))
        return x

    said = []
    assert_same(monkeypatch, program, vectors(6, 4), LINK)
    assert said[:30] == said[30:]


# -- what cannot go on ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("absent", range(4))
@pytest.mark.parametrize("op, algorithm", [case for case in CASES if case[1] != "hierarchical"])
def test_a_deadlock_names_the_line_at_which_virtual_time_stands(monkeypatch, op, algorithm, absent):
    """One rank doesn't come, so others wait: each at the send or receive at which it would wait in step."""
    def program(comm, x):
        return x if comm.rank == absent else call(comm, op, algorithm, x)

    kind, text, _ = assert_same(monkeypatch, program, vectors(4, 8), LINK)
    assert kind is Deadlock and f"rank {absent} has already returned" in text and "/collectives/" in text


def test_what_comes_after_a_collective_that_never_ends_does_not_happen(monkeypatch):
    """The root's sends are short, so it could run to its end; but nobody receives them."""
    def program(comm, x):
        if comm.rank == 0:
            collectives.broadcast(comm, x, algorithm="mst")
            said.append("done")
            raise ValueError("never")
        return x

    said = []
    kind, text, _ = assert_same(monkeypatch, program, vectors(2, 2), LINK)
    assert kind is Deadlock and "rank 0 waits to send 16 bytes to rank 1" in text and not said


@pytest.mark.parametrize("late", [0, 1, 2, 3])
@pytest.mark.parametrize("op, algorithm", [("all_reduce", "ring"), ("broadcast", "mst"), ("all_gather", "ring"),
                                           ("all_to_all", "pairwise")])
def test_what_does_not_fit_is_the_error_of_the_same_rank(monkeypatch, op, algorithm, late):
    def program(comm, x):
        comm.compute(5.0 * (comm.rank == late))
        return call(comm, op, algorithm, x.float() if comm.rank == 1 else x)

    kind, text, _ = assert_same(monkeypatch, program, vectors(4, 8), LINK)
    assert kind is RankFailed and "which expects" in text


def test_a_rank_that_raises_inside_does_so_when_its_time_has_come(monkeypatch):
    """Rank 1 raises at 3 s, rank 2 inside of a collective, after a message that takes longer."""
    def program(comm, x):
        if comm.rank == 1:
            comm.compute(3.0)
            raise KeyError("first")
        with comm.ahead():
            if comm.rank == 0:
                comm.send(x, 2)
            else:
                comm.recv(x, 0)
                raise KeyError("second")
        return x

    kind, text, _ = assert_same(monkeypatch, program, vectors(3, 4), Link(alpha=9.0))
    assert kind is RankFailed and "rank 1 of 3" in text


@pytest.mark.parametrize("when", [0.5, 3.0, 8.0, 20.0])
def test_a_link_that_breaks(monkeypatch, when):
    for case in CASES:
        assert_same(monkeypatch, lambda comm, x: call(comm, *case, x), vectors(5, 7), Failing(LINK, {(0, 1): when}))  # noqa: B023


# -- how far --------------------------------------------------------------------------------------------------------------


def hand_overs(monkeypatch, program, inputs):
    """How often a rank waited for its turn, for each message."""
    waited = []
    await_baton = VirtualWorld._await_baton
    with monkeypatch.context() as patch:
        patch.setattr(VirtualWorld, "_await_baton", lambda world, lane: waited.append(lane) or await_baton(world, lane))
        run = simulate(program, inputs, LINK)
    return len(waited) / run.trace.messages()


def test_most_messages_of_a_ring_need_no_change_of_rank(monkeypatch):
    def program(comm, x):
        return collectives.all_reduce(comm, x, algorithm="ring")

    p = 64
    assert hand_overs(monkeypatch, program, [torch.ones(p)] * p) < 0.2


def test_a_long_message_is_not_kept(monkeypatch):
    def program(comm, x):
        return collectives.all_reduce(comm, x, algorithm="ring")

    for elements, few in [(kept.LONGEST // 4, True), (kept.LONGEST // 4 + 1, False)]:
        assert (hand_overs(monkeypatch, program, [torch.ones(4 * elements)] * 4) < 0.6) is few


def test_a_rank_runs_ahead_only_so_far():
    """A thousand sends to a rank that is busy for long: no more than STEPS are kept."""
    def program(comm, x):
        if comm.rank == 1:
            comm.compute(1e6)
        with comm.ahead():
            for k in range(1000):
                if comm.rank == 0:
                    comm.send(x + k, 1)
                    furthest.append(len(comm.lane.script))
                else:
                    comm.recv(x, 0)
                    assert x.tolist() == [k]
        return x

    furthest = []
    simulate(program, [torch.zeros(1), torch.zeros(1)], LINK)
    assert ahead.STEPS <= max(furthest) <= ahead.STEPS + 2


def test_a_sent_tensor_may_change_as_soon_as_the_send_has_ended(monkeypatch):
    """Whether it has been received by then, or is kept."""
    def program(comm, x):
        with comm.ahead():
            for _ in range(50):
                if comm.rank == 0:
                    comm.send(x, 1)
                    x += 1
                else:
                    x = torch.cat([x, comm.recv(torch.empty(1), 0)])
        return x

    results, _, _ = assert_same(monkeypatch, program, [torch.zeros(1), torch.zeros(0)], LINK)
    assert results[1] == list(range(50))


GUISES = {"plain": lambda x: x, "a part": lambda x: x[2:5], "with gaps": lambda x: x[::2],
          "turned round": lambda x: x.view(2, 3).T, "empty": lambda x: x[:0], "scalar": lambda x: x[3],
          "negated": torch._neg_view, "parameter": torch.nn.Parameter,
          "with a gradient": lambda x: x * torch.ones(1, requires_grad=True)}


@pytest.mark.parametrize("guise", GUISES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16, torch.complex64, torch.int64,
                                   torch.int8, torch.uint8, torch.bool])
def test_a_tensor_is_kept_as_it_is(monkeypatch, dtype, guise):
    """Tensors in any guise, sent to one that lies close and to one with gaps, and added."""
    if guise in ("parameter", "with a gradient") and not (dtype.is_floating_point or dtype.is_complex):
        return
    if guise == "negated" and dtype is torch.bool:
        return

    def program(comm, x):
        sent = GUISES[guise](x)
        close = torch.empty_like(sent, memory_format=torch.contiguous_format).detach()
        gaps = torch.zeros(*sent.shape, 2, dtype=dtype)[..., 1]
        added = torch.ones_like(close)
        seen = []
        with comm.ahead():
            for k in range(4):
                right, left = (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size
                for out in (close, gaps):
                    comm.sendrecv(sent, right, out, left)
                    seen.append(out.clone())
                comm.sendrecv_combine(sent.detach(), right, added, left)
                seen.append(added.clone())
                with torch.no_grad():
                    x[k] = x[k + 1]  # what has been sent may change
        return torch.stack(seen)

    inputs = [torch.tensor([1, 0, 3, 1, 0, rank]).to(dtype) for rank in range(4)]
    assert_same(monkeypatch, program, inputs, LINK)


def test_python_looks_for_garbage_as_often_as_before(monkeypatch):
    """After a run, after one that fails, and after runs within one another; but not meanwhile."""
    def program(comm, x):
        seen.append(gc.get_threshold()[0])
        if comm.rank == 1:
            simulate(lambda comm, x: None, [None])
            seen.append(gc.get_threshold()[0])
            raise ValueError("no")

    before, seen = gc.get_threshold(), []
    with pytest.raises(RankFailed):
        simulate(program, [0, 0], LINK)
    assert gc.get_threshold() == before and seen == [2 * garbage.EACH] * 3


def test_a_mode_of_torch_sees_the_same_operations(monkeypatch):
    class Seen(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            seen.append(str(func))
            return func(*args, **(kwargs or {}))

    def program(comm, x):
        with Seen():
            return collectives.all_reduce(comm, x, algorithm="ring")

    seen = []
    assert_same(monkeypatch, program, vectors(4, 8), LINK)
    half = len(seen) // 2
    assert seen[:half] == seen[half:]
