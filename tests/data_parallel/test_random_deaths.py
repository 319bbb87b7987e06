"""Workers and servers die and come back: no acknowledged update is lost, no bound is broken, nothing hangs."""

import random
import re

import pytest
import torch

from mlsyslab import Failure, Link, RankFailed
from mlsyslab.data_parallel import (
    ASP,
    BSP,
    SGD,
    SSP,
    HeavyTailed,
    Job,
    Keys,
    Setup,
    Steady,
    acknowledged,
    check_bound,
    lost_updates,
    play,
    random_failures,
)

LINK = Link(alpha=0.01, beta=1e-6)


class Tally:
    """A task whose values count: every worker and clock has a number of its own, to which its gradient adds 1."""

    def __init__(self, workers, clocks):
        self.workers, self.clocks = workers, clocks
        self.start = {"counts": torch.zeros(workers, clocks)}

    def gradient(self, values, worker, clock):
        gradient = torch.zeros(self.workers, self.clocks)
        gradient[worker, clock] = 1
        return 0.0, {"counts": gradient}

    def loss(self, values):
        return 0.0


def tally(workers, clocks, servers, model, elastic, replicas=2, straggler=None):
    """Each update, or each clock's mean of all, adds 1: the rate makes up for the part that a worker is."""
    setup = Setup(servers, model, SGD(-workers), replicas, elastic)
    return Job(Tally(workers, clocks), clocks, setup, straggler or Steady())


def check(record):
    """What must hold after any deaths."""
    job = record.job
    assert check_bound(record) > 0
    assert lost_updates(record) == []
    keys = Keys(job.task.start, job.setup.servers)
    counts = keys.unpack([record.shards[i].values for i in range(job.setup.servers)])["counts"]
    shard_of = [server for server, start, stop in keys.places("counts") for _ in range(start, stop)]
    for entry in acknowledged(record.trace):
        place = entry.worker * job.clocks + entry.clock
        if shard_of[place] == entry.shard:
            count = counts[entry.worker, entry.clock].item()
            assert count == 1 or (job.setup.elastic and job.setup.consistency.waits_for_all and count > 0), entry
    assert counts.max() <= (job.workers if job.setup.elastic and job.setup.consistency.waits_for_all else 1)
    if not job.setup.elastic:
        assert counts.min() == 1  # everybody did all clocks, each once
    for result in record.results[:job.setup.servers]:  # both copies of a shard are the same
        for index, shard in (result or {}).items():
            assert torch.equal(shard.values, record.shards[index].values) and shard.clocks == record.shards[index].clocks


def shortest(job):
    """Less than any run of this job takes: what the quickest worker computes."""
    return min(sum(job.straggler(w, c) for c in range(job.clocks)) for w in range(job.workers))


@pytest.mark.parametrize("seed", range(36))
def test_random_deaths(seed):
    """Over a hundred in all: of servers, workers, or both, in worlds of all kinds."""
    draw = random.Random(seed)
    model = [BSP(), SSP(0), SSP(1), SSP(3), ASP()][seed % 5]
    job = tally(draw.randint(2, 4), 8, draw.choice([2, 3, 4]), model, elastic=seed % 2 == 1,
                straggler=HeavyTailed(shape=2.0, seed=seed))
    deaths = random_failures(seed, job, 0.7 * shortest(job), 3, for_good=0.3 if job.setup.elastic else 0.0, apart=0.05)
    assert len(deaths) == 3
    check(play(job, LINK, deaths))


@pytest.mark.parametrize(("model", "elastic"), [(SSP(2), True), (BSP(), False), (ASP(), True)])
def test_a_hundred_deaths_in_one_run(model, elastic):
    job = tally(5, 60, 4, model, elastic, straggler=Steady(jitter=0.5))
    deaths = random_failures(7, job, 0.9 * shortest(job), 100, down=(0.005, 0.03), apart=0.005)
    assert len(deaths) == 100 and {f.rank for f in deaths} == set(range(9))
    check(play(job, LINK, deaths))


@pytest.mark.parametrize("when", [0.0, 0.005, 0.01, 0.02, 0.5, *(1.01 + 0.005 * step for step in range(11))])
@pytest.mark.parametrize("victim", [0, 1, 2, 3])
def test_death_at_every_stage_of_a_push(victim, when):
    """A clock is pull, compute for 1 s, push, copy to the backup, answer; messages take 0.01 s."""
    for model in (BSP(), ASP()):
        check(play(tally(2, 3, 2, model, elastic=False), LINK, [Failure(victim, when, when + 0.7)]))


@pytest.mark.parametrize("model", [BSP(), SSP(1), ASP()], ids=repr)
def test_a_server_that_never_comes_back(model):
    for server in range(3):
        check(play(tally(3, 5, 3, model, elastic=False), LINK, [Failure(server, 2.2)]))


def test_the_dead_are_waited_for_or_left_out():
    """With BSP a death of 50 s costs 50 s, or, where the dead are left out, the dead worker's clocks."""
    death = [Failure(3, 2.5, 52.5)]
    waited, left_out = (play(tally(3, 6, 1, BSP(), elastic, replicas=1), LINK, death) for elastic in (False, True))
    check(waited)
    check(left_out)
    assert 56 < waited.time < 58
    assert {(e.worker, e.clock) for e in acknowledged(waited.trace)} == {(w, c) for w in range(3) for c in range(6)}
    others = [e.time for e in acknowledged(left_out.trace) if e.worker != 2]
    assert max(others) < 8


def test_a_worker_that_comes_back_goes_on_where_the_slowest_is():
    record = play(tally(3, 12, 1, SSP(1), True, replicas=1), LINK, [Failure(2, 2.5, 6.2)])
    check(record)
    clocks = [e.clock for e in acknowledged(record.trace) if e.worker == 1]
    assert clocks[:2] == [0, 1] and clocks[2] in (5, 6) and clocks[2:] == list(range(clocks[2], 12))


def test_a_new_primary_leaves_out_whom_the_old_one_could_not():
    """Worker 1 and the primary of shard 0 die at once, so that the backup is never told to leave out the worker."""
    record = play(tally(2, 6, 2, BSP(), True), LINK, [Failure(3, 1.5, 60.0), Failure(0, 1.505, 5.0)])
    check(record)
    assert max(e.time for e in acknowledged(record.trace) if e.worker == 0) < 10


def test_what_cannot_be_survived_is_told():
    with pytest.raises(RankFailed, match="shard 0 is lost: its only server, rank 0, died. Setup.replicas=2. keeps a copy"):
        play(tally(2, 4, 2, BSP(), False, replicas=1), LINK, [Failure(0, 1.5, 2.5)])
    for back in (None, 9.0):
        with pytest.raises(RankFailed, match="shard 0 is lost: both of its servers, ranks 0 and 1, at once, died"):
            play(tally(2, 4, 2, BSP(), False), LINK, [Failure(0, 1.5, back), Failure(1, 1.5001, back)])
    with pytest.raises(RankFailed, match=re.escape("worker 1 (rank 2) died for good at clock 1")):
        play(tally(2, 4, 1, BSP(), False, replicas=1), LINK, [Failure(2, 1.5)])


def test_random_deaths_leave_a_copy_of_every_shard():
    for seed in range(20):
        job = tally(3, 5, 2 + seed % 4, BSP(), elastic=True)
        deaths = random_failures(seed, job, 100.0, 30, for_good=0.3)
        assert deaths == random_failures(seed, job, 100.0, 30, for_good=0.3)
        assert sum(f.back is None and f.rank >= job.setup.servers for f in deaths) < job.workers
        for f in deaths:
            neighbours = {(f.rank + d) % job.setup.servers for d in (-1, 1)} if f.rank < job.setup.servers else set()
            for g in deaths:
                if g is not f and g.rank in neighbours | {f.rank} and g.at >= f.at:
                    assert f.back is not None and g.at > f.back
    assert all(f.rank >= 2 for f in random_failures(0, tally(3, 5, 2, BSP(), False, replicas=1), 100.0, 20))
