"""Push, pull and update: what servers make of gradients is what the definitions say."""

import dataclasses
import itertools

import pytest
import torch

from mlsyslab import RankFailed, launch, simulate
from mlsyslab.data_parallel import (
    ASP,
    BSP,
    SGD,
    SSP,
    Adam,
    Client,
    HeavyTailed,
    Job,
    Keys,
    Setup,
    Shard,
    Steady,
    messages,
    play,
    run_rank,
    serve,
    spirals,
    updates,
)
from mlsyslab.data_parallel.log import reads

CLOCKS = 6
RULES = {"SGD": SGD(0.3), "momentum": SGD(0.1, momentum=0.9), "Adam": Adam(0.01)}
THEIRS = {"SGD": lambda ps: torch.optim.SGD(ps, lr=0.3), "momentum": lambda ps: torch.optim.SGD(ps, lr=0.1, momentum=0.9),
          "Adam": lambda ps: torch.optim.Adam(ps, lr=0.01)}


def task(workers):
    """The spirals in float64."""
    found = spirals(workers, width=5)
    return dataclasses.replace(found, start={k: v.double() for k, v in found.start.items()}, x=found.x.double())


def at_the_end(record):
    keys = Keys(record.job.task.start, record.job.setup.servers)
    return keys.unpack([record.shards[i].values for i in range(record.job.setup.servers)])


def whole_batches(task, optimizer):
    """One process: each step has the mean gradient of all workers' points of a clock."""
    values = {name: value.clone().requires_grad_() for name, value in task.start.items()}
    update = THEIRS[optimizer](list(values.values()))
    for clock in range(CLOCKS):
        x, y = (torch.cat(all) for all in zip(*(task.batch(w, clock) for w in range(task.workers)), strict=True))
        task.mean_loss(values, x, y).backward()
        update.step()
        update.zero_grad()
    return values


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize(("servers", "replicas"), [(1, 1), (2, 1), (3, 1), (2, 2), (3, 2)])
@pytest.mark.parametrize("workers", [1, 2, 3])
def test_bulk_synchronous_workers_take_the_steps_of_one_process(workers, servers, replicas, rule):
    job = Job(task(workers), CLOCKS, Setup(servers, BSP(), RULES[rule], replicas), HeavyTailed())
    ours, theirs = at_the_end(play(job)), whole_batches(job.task, rule)
    for name in theirs:
        assert (ours[name] - theirs[name]).abs().max() < 1e-10, name


@pytest.mark.parametrize("model", [ASP(), SSP(0), SSP(2)], ids=repr)
@pytest.mark.parametrize("rule", ["SGD", "Adam"])
def test_asynchronous_updates_are_those_of_the_log(model, rule):
    """Replayed in one process: every gradient at the version that was read, applied in the order of arrival."""
    workers = 3
    job = Job(task(workers), 10, Setup(1, model, RULES[rule]), HeavyTailed(shape=1.5))
    record, keys = play(job), Keys(job.task.start, 1)
    version_read = {(e.worker, e.clock): e.version for e in reads(record.trace)}
    [row] = keys.pack(job.task.start)
    state, versions = job.setup.rule.begin(row), [row.clone()]
    for entry in updates(record.trace):
        values = keys.unpack([versions[version_read[entry.worker, entry.clock]]])
        [gradient] = keys.pack(job.task.gradient(values, entry.worker, entry.clock)[1])
        row = versions[-1].clone()
        job.setup.rule.apply(row, state, gradient / workers, entry.worker, entry.clock)
        versions.append(row)
    assert len(versions) == 1 + workers * 10
    assert (record.shards[0].values - versions[-1]).abs().max() < 1e-10


def test_processes_do_the_same():
    """Servers and workers as processes, through shared memory and pipes."""
    job = Job(task(2), CLOCKS, Setup(2, BSP(), Adam(0.01), replicas=2), Steady(0.001))
    run = launch(run_rank, [job] * job.ranks, backend="gloo")
    theirs, keys = whole_batches(job.task, "Adam"), Keys(job.task.start, 2)
    for server in range(2):  # each has both shards, one as the backup
        ours = keys.unpack([run.results[server][shard].values for shard in range(2)])
        for name in theirs:
            assert (ours[name] - theirs[name]).abs().max() < 1e-10, name


def test_a_rate_may_depend_on_worker_and_clock():
    def one(comm, _):
        setup = Setup(1, ASP(), SGD(lambda worker, clock: 10.0**-clock * (1 + worker)))
        if comm.rank == 0:
            return serve(comm, setup, {"x": torch.zeros(1)})[0].values.item()
        client = Client(comm, setup, {"x": torch.zeros(1)})
        for _ in range(2):
            client.pull()
            client.push({"x": torch.full((1,), -2.0)})
        return client.close()

    assert simulate(one, [None] * 3).results[0] == pytest.approx((1 + 2) * 1.1)


# -- keys and shards --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("servers", [1, 2, 3, 5])
def test_keys_are_cut_evenly_and_come_back(servers):
    like = {"a": torch.randn(3, 4), "b": torch.randn(()), "empty": torch.randn(0), "c": torch.randn(7)}
    keys = Keys(like, servers)
    shards = keys.pack(like)
    assert [len(shard) for shard in shards] == keys.lengths and max(keys.lengths) - min(keys.lengths) <= 1
    for name, tensor in keys.unpack(shards).items():
        assert torch.equal(tensor, like[name])
    for name, tensor in like.items():
        pieces = [shards[server][start:stop] for server, start, stop in keys.places(name)]
        assert torch.equal(torch.cat([*pieces, torch.empty(0)]), tensor.reshape(-1))


def test_wrong_keys_are_told():
    keys = Keys({"a": torch.zeros(2), "b": torch.zeros(3)}, 2)
    with pytest.raises(ValueError, match="missing b; unknown c"):
        keys.pack({"a": torch.zeros(2), "c": torch.zeros(3)})
    with pytest.raises(ValueError, match=r"b is float32 of shape \(4,\); the servers keep float32 of shape \(3,\)"):
        keys.pack({"a": torch.zeros(2), "b": torch.zeros(4)})
    with pytest.raises(KeyError, match="there is no key 'c'; there are a, b"):
        keys.places("c")
    with pytest.raises(TypeError, match="one floating-point dtype, not a: float32 .*, b: int64"):
        Keys({"a": torch.zeros(2), "b": torch.zeros(3, dtype=torch.int64)}, 2)
    with pytest.raises(ValueError, match="at least one named tensor"):
        Keys({}, 1)


def test_a_push_that_comes_again_changes_nothing():
    for model in (BSP(), SSP(1), ASP()):
        shard, g = Shard(torch.zeros(2), 2, model, SGD(1.0)), torch.ones(2)
        assert shard.push(0, 0, g)
        before = shard.values.clone()
        assert not shard.push(0, 0, 5 * g)
        assert torch.equal(shard.values, before) and shard.clocks == [1, 0] and shard.applied == [(0, 0)]
        assert shard.push(1, 0, 3 * g)
        assert shard.values.tolist() == [-2, -2]  # the mean of 1 and 3, in one update or in two
        with pytest.raises(ValueError, match="worker 1 pushes clock 5, and its clock 1 hasn't come"):
            shard.push(1, 5, g)


def test_a_copy_of_a_shard_goes_on_alike():
    shard = Shard(torch.zeros(3), 3, BSP(), Adam(0.1))
    for worker, clock in [(0, 0), (1, 0), (2, 0), (2, 1)]:
        shard.push(worker, clock, torch.full((3,), 1.0 + worker))
    copy = Shard(torch.zeros(3), 3, BSP(), Adam(0.1))
    copy.load(torch.utils._pytree.tree_map(lambda x: x.clone() if isinstance(x, torch.Tensor) else x, shard.snapshot()))
    for each in (shard, copy):
        each.push(0, 1, torch.ones(3))
        each.leave(1)
    assert torch.equal(shard.values, copy.values) and shard.version == copy.version == 2


# -- wrong use --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("options", "words"), [
    ({"servers": 0}, "1 or more"), ({"replicas": 3}, "1 or 2 servers"), ({"replicas": 2}, "two servers"),
    ({"consistency": "BSP"}, r"one of BSP\(\), ASP\(\), SSP\(s\)")])
def test_setups_that_cannot_be(options, words):
    with pytest.raises((ValueError, TypeError), match=words):
        Setup(**options)


def work(calls):
    def one(comm, _):
        setup = Setup()
        if comm.rank == 0:
            return serve(comm, setup, {"x": torch.zeros(1)})
        client = Client(comm, setup, {"x": torch.zeros(1)})
        return [getattr(client, name)(*given) for name, *given in calls]
    return one


@pytest.mark.parametrize(("calls", "words"), [
    ([("push", {"x": torch.zeros(1)})], "worker 0 pushes for clock 0 before it has pulled"),
    ([("pull",), ("pull",)], "worker 0 has pulled for clock 0 already"),
    ([("pull",), ("push", {"y": torch.zeros(1)})], "missing x; unknown y")])
def test_a_client_says_what_is_wrong(calls, words):
    with pytest.raises(RankFailed, match=words):
        simulate(work(calls), [None] * 2)


def test_an_answer_to_another_question_is_put_aside():
    """To one of an earlier clock, or of an earlier life: a slow server's, that came when the worker had asked again."""
    def one(comm, _):
        if comm.rank == 1:
            return Client(comm, Setup(), {"x": torch.zeros(1)}).pull()["x"].item()
        asked = messages.unpack(comm.recv(messages.room(), 1, messages.tag(messages.REQUEST)))
        for earlier_clock, earlier_life, value in ((1, 0, 1.0), (0, 1, 2.0), (0, 0, 3.0)):
            answer = asked._replace(clock=asked.clock - earlier_clock, life=asked.life - earlier_life,
                                    values=torch.tensor([value]))
            comm.send(answer.pack(1), 1, messages.tag(messages.VALUES))
        return None

    assert simulate(one, [None] * 2).results[1] == 3.0


def test_roles_are_told_apart():
    with pytest.raises(RankFailed, match="rank 0 is one of the 1 servers"):
        simulate(lambda comm, _: Client(comm, Setup(), {"x": torch.zeros(1)}), [None] * 2)
    with pytest.raises(RankFailed, match="2 ranks with 2 of them servers leave no worker"):
        simulate(lambda comm, _: serve(comm, Setup(2), {"x": torch.zeros(2)}), [None] * 2)
    job = Job(task(2), 1, Setup(1))
    with pytest.raises(RankFailed, match="for 1 servers and 2 workers, and there are 2 ranks"):
        simulate(run_rank, [job] * 2)
    with pytest.raises(ValueError, match="a number of iterations, 1 or more"):
        Job(task(2), 0)


def test_the_same_job_gives_the_same_record():
    job = Job(task(3), 5, Setup(2, SSP(1), SGD(0.5), 2), HeavyTailed())
    first, second = play(job), play(job)
    assert first.trace == second.trace
    for a, b in itertools.starmap(lambda i, s: (s.values, second.shards[i].values), first.shards.items()):
        assert torch.equal(a, b)
