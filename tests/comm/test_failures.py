"""Ranks that die and come back in the simulated world: what is lost, and who is told when."""

import random
import threading
from contextlib import suppress

import pytest
import torch

from mlsyslab import Deadlock, Failure, Link, PeerLost, RankFailed, simulate

LINK = Link(alpha=1.0)


@pytest.fixture(autouse=True)
def no_thread_is_left():
    yield
    assert not [thread.name for thread in threading.enumerate() if thread.name.startswith("rank ")]


def told(comm, work):
    """How waiting for `work` ends, and when."""
    try:
        work.wait()
    except PeerLost as lost:
        assert lost.work is work
        return f"rank {lost.rank} lost", comm.now()
    return "done", comm.now()


def test_a_rank_dies_in_the_middle_of_its_work():
    def program(comm, reached):
        for k in range(10):
            comm.compute(1.0)
            reached.append(k)
        return "done"

    inputs = [[], []]
    run = simulate(program, inputs, LINK, failures=[Failure(1, at=3.5)])
    assert run.results == ["done", None]
    assert inputs == [list(range(10)), [0, 1, 2]]
    assert run.trace.of(1)[-1].end == 3.5


@pytest.mark.parametrize("kind", ["send", "recv"])
@pytest.mark.parametrize("at, ends", [(0.5, ("rank 1 lost", 0.5)), (1.5, ("rank 1 lost", 1.5)), (2.5, ("done", 2.0))])
def test_a_message_that_has_not_arrived_is_lost(kind, at, ends):
    """Rank 1 joins the message at 1 s, which then takes 1 s."""
    def program(comm, x):
        mine, its = (comm.isend, comm.irecv) if kind == "send" else (comm.irecv, comm.isend)
        if comm.rank == 0:
            return told(comm, mine(x, 1))
        comm.compute(1.0)
        return its(x, 0).wait()

    x = torch.ones(2)
    assert simulate(program, [x, x.clone()], LINK, failures=[Failure(1, at)]).results[0] == ends


def test_two_ranks_that_die_are_each_lost_at_their_own_time():
    """Round a ring, every message takes 10 s; rank 2 dies at 5 s. Rank 1 hears of that, and dies at 8 s itself."""
    def program(comm, heard):
        right, left = (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size
        with suppress(PeerLost):
            try:
                comm.sendrecv(torch.ones(1), right, torch.ones(1), left)
            except PeerLost as lost:
                heard.append((lost.rank, comm.now(), lost.work))
                comm.compute(100.0)
                raise

    heard = [[], [], [], []]
    simulate(program, heard, Link(alpha=10.0), failures=[Failure(2, at=5.0), Failure(1, at=8.0)])
    assert heard == [[(1, 8.0, None)], [(2, 5.0, None)], [], [(2, 5.0, None)]]


def test_a_send_to_the_dead_is_refused_and_a_receive_waits_for_the_next_life():
    def program(comm, x):
        if comm.rank == 1:
            if comm.life:
                comm.send(x + comm.life, 0)
            else:
                comm.compute(100.0)
            return comm.life
        comm.compute(3.0)
        return told(comm, comm.isend(x, 1)), told(comm, comm.irecv(x, 1)), x.item()

    failures = [Failure(1, at=2.0, back=5.0)]
    assert simulate(program, [torch.zeros(1), torch.zeros(1)], LINK, failures=failures).results == [
        (("rank 1 lost", 3.0), ("done", 6.0), 1.0), 1]
    gone = simulate(program, [torch.zeros(1), torch.zeros(1)], LINK, failures=[Failure(1, at=2.0)]).results
    assert gone == [(("rank 1 lost", 3.0), ("rank 1 lost", 3.0), 0.0), None]


def test_one_of_several_is_lost_and_the_others_go_on():
    def program(comm, x):
        if comm.rank:
            comm.compute(10.0 * comm.rank)
            comm.send(x, 0)
            return None
        works = {source: comm.irecv(torch.empty(1), source) for source in (1, 2, 3)}
        story = []
        while works:
            sources = list(works)
            try:
                source = sources[comm.wait_any(list(works.values()))]
                story.append((source, "came", comm.now()))
            except PeerLost as lost:
                source = lost.rank
                story.append((source, "lost", comm.now()))
            del works[source]
        return story

    run = simulate(program, [torch.ones(1)] * 4, LINK, failures=[Failure(2, at=15.0)])
    assert run.results[0] == [(1, "came", 11.0), (2, "lost", 15.0), (3, "came", 31.0)]


@pytest.mark.parametrize("lost", [1, 2, 3])
def test_a_loss_among_several_that_are_awaited_is_told_at_once_and_once(lost):
    """Rank 1 dies at 2 s, and with it `lost` messages. Rank 2's comes at 11 s; rank 3 sends once it knows of each loss."""
    def program(comm, x):
        if comm.rank:
            comm.compute([0, 50.0, 10.0, 0.0][comm.rank])
            for _ in range(lost if comm.rank == 3 else 0):
                comm.recv(torch.zeros(1), 0)
            return comm.send(x, 0)
        rooms = [torch.zeros(1) for _ in range(lost + 2)]
        works = [comm.irecv(room, 1, tag) for tag, room in enumerate(rooms[:lost])]
        works.insert(1, comm.irecv(rooms[-2], 2))
        works.append(comm.irecv(rooms[-1], 3))
        story = []
        while works:
            try:
                comm.wait_all(works)
                works = []
            except PeerLost as loss:
                works.remove(loss.work)
                story.append((loss.rank, comm.now()))
                comm.send(x, 3)
        return story, comm.now(), [room.item() for room in rooms]

    story, end, values = simulate(program, [torch.ones(1)] * 4, LINK, failures=[Failure(1, at=2.0)]).results[0]
    assert story == [(1, 2.0 + k) for k in range(lost)]
    assert end == 11.0 and values == [0.0] * lost + [1.0, 1.0]


def test_those_who_meet_a_dead_rank_are_told():
    def program(comm, _):
        comm.compute(1.0 + comm.rank)
        try:
            comm.barrier()
        except PeerLost as lost:
            return lost.rank, comm.now()

    assert simulate(program, [None] * 3, LINK, failures=[Failure(2, at=1.5)]).results == [(2, 1.5), (2, 2.0), None]


def test_a_rank_that_comes_back_to_a_meeting_that_is_over_waits_for_ever():
    """All meet at 3 s, but rank 1 has died before that time. In its next life it comes alone, and wakes nobody."""
    def program(comm, x):
        comm.compute(3.0 if comm.rank == 0 else 0.5)
        with suppress(PeerLost):
            comm.barrier()
        if comm.rank == 2:
            comm.recv(x, 3)

    with pytest.raises(Deadlock, match="rank 1 waits at a barrier"):
        simulate(program, [torch.ones(1)] * 4, LINK, failures=[Failure(1, 1.0, back=2.0)], timeout=20.0)


def test_ranks_that_die_one_after_the_other_at_a_meeting():
    """Rank 3 never comes. Those who wait are told of the first death, and it concerns nobody that the dead had waited."""
    def program(comm, _):
        if comm.rank == 3:
            return comm.compute(9.0)
        try:
            comm.barrier()
        except PeerLost as lost:
            return lost.rank, comm.now()

    failures = [Failure(1, 1.0), Failure(2, 2.0), Failure(3, 4.0)]
    assert simulate(program, [None] * 4, LINK, failures=failures, timeout=20.0).results == [(1, 1.0), None, (1, 1.0), None]


def test_what_a_rank_has_started_dies_with_it():
    def program(comm, log):
        task = comm.start(lambda side: [side.compute(1.0) or log.append(side.now()) for _ in range(9)])
        comm.compute(2.0)
        task.wait()

    log = []
    simulate(program, [log, []], LINK, failures=[Failure(0, at=4.5)])
    assert log == [1.0, 2.0, 3.0, 4.0]


def test_a_rank_that_has_returned_does_not_die():
    run = simulate(lambda comm, _: comm.compute(1.0) or comm.life, [None] * 2, LINK, failures=[Failure(0, at=2.0, back=3.0)])
    assert run.results == [0, 0]
    assert run.time == 1.0


def test_an_uncaught_loss_fails_the_run():
    with pytest.raises(RankFailed, match="rank 0 of 2 failed: .*PeerLost: rank 1 died at 2 s"):
        simulate(lambda comm, x: comm.compute(5.0) if comm.rank else comm.recv(x, 1), [torch.ones(1)] * 2, LINK,
                 failures=[Failure(1, 2.0)])


def test_waiting_for_a_rank_that_came_back_and_returned_is_a_deadlock():
    def program(comm, x):
        if comm.rank:
            return comm.compute(1.0) if comm.life else comm.compute(9.0)
        comm.compute(3.0)
        return comm.recv(x, 1)

    with pytest.raises(Deadlock, match="rank 1 has already returned"):
        simulate(program, [torch.ones(1)] * 2, LINK, failures=[Failure(1, 2.0, 4.0)])


def test_random_deaths_never_hang_and_are_the_same_each_time():
    """Workers send numbers to rank 0, which counts what came; everything that it counted had been sent."""
    def program(comm, sent):
        if comm.rank:
            for k in range(30):
                comm.compute(0.7)
                sent.append((comm.life, k))
                comm.send(torch.tensor([comm.life, k]), 0)
            return None
        came, rooms = [], {w: torch.empty(2, dtype=torch.int64) for w in range(1, comm.size)}
        works, left = {w: comm.irecv(room, w) for w, room in rooms.items()}, set(rooms)
        while left:
            order = sorted(left)
            try:
                w = order[comm.wait_any([works[w] for w in order])]
            except PeerLost as lost:
                if lost.rank in finals:
                    left.discard(lost.rank)
                else:
                    works[lost.rank] = comm.irecv(rooms[lost.rank], lost.rank)
                continue
            came.append((w, *rooms[w].tolist()))
            if rooms[w][1] == 29:
                left.discard(w)
            else:
                works[w] = comm.irecv(rooms[w], w)
        return came

    for seed in range(40):
        draw = random.Random(seed)
        failures, finals = [], set()
        for worker in (1, 2, 3):
            time = 0.0
            for _ in range(draw.randint(0, 3)):
                time += draw.uniform(0.1, 25)
                back = None if draw.random() < 0.2 else time + draw.uniform(0.1, 10)
                failures.append(Failure(worker, time, back))
                if back is None:
                    finals.add(worker)
                    break
                time = back
        runs = []
        for _ in range(2):
            inputs = [[] for _ in range(4)]
            runs.append(simulate(program, inputs, LINK, failures=failures))
            for worker, life, k in runs[-1].results[0]:
                assert (life, k) in inputs[worker]
        assert runs[0].trace == runs[1].trace
        assert runs[0].results[0] == runs[1].results[0]


@pytest.mark.parametrize("failures, message", [
    ([Failure(5, 1.0)], "there is no rank 5; ranks are 0 … 1"),
    ([Failure(0, 1.0), Failure(0, 2.0)], "rank 0 is dead then"),
    ([Failure(0, 1.0, 3.0), Failure(0, 2.0)], "rank 0 is dead then"),
])
def test_failures_that_cannot_be(failures, message):
    with pytest.raises(ValueError, match=message):
        simulate(lambda comm, _: None, [None] * 2, LINK, failures=failures)


@pytest.mark.parametrize("rank, at, back", [(-1, 1.0, None), (1.5, 1.0, None), (0, -1.0, None), (0, float("nan"), None),
                                            (0, 2.0, 2.0)])
def test_a_failure_that_makes_no_sense(rank, at, back):
    with pytest.raises(ValueError, match="Failure"):
        Failure(rank, at, back)


def test_failures_and_buffered_sends_do_not_go_together():
    with pytest.raises(ValueError, match="buffered"):
        simulate(lambda comm, _: None, [None], LINK, failures=[Failure(0, 1.0)], buffered=True)
