"""Data parallelism: every worker has the whole model and a part of the batch; their gradients meet on the way.

They meet in one of two places: on parameter servers, or in an all-reduce among the workers themselves.

**Consistency** (`consistency.py`): when may a worker begin clock c (its iteration c), if `slowest` is the least number of
clocks that any worker has completed?

    BSP()  ASP()  SSP(s)          .may_begin(clock, slowest) -> bool     .bound: 0, inf, s     .waits_for_all: True for BSP

**Stragglers** (`stragglers.py`): seconds that an iteration takes; a function of (seed, worker, clock) alone, so that all
models of consistency meet the same bad luck.

    Steady(seconds=1.0, jitter=0.0, seed=0)              even workers, up to a jitter
    Slow(factors={worker: factor}, seconds, jitter, seed)       some are always slower
    Transient(probability, factor, seconds, jitter, seed)       any worker, now and then
    HeavyTailed(shape, seconds, seed)                    Pareto: the mean is moderate, the longest isn't
    each is called as straggler(worker, clock) -> seconds

**Keys and shards** (`keys.py`): named tensors laid one after the other, and the row cut into a shard for each server.

    Keys(like: {name: tensor}, servers)    .lengths   .places(name) -> [(server, start, stop)]   .pack({…}) -> [shard…]
                                           .unpack([shard…]) -> {name: tensor}

**What a server does with a gradient** (`rules.py`):   SGD(rate, momentum=0.0)   Adam(rate, betas, eps)
    rate: a number, or a function (worker, clock) -> number

**The parameter server** (`setup.py`, `server.py`, `client.py`, `shard.py`, `replication.py`): ranks 0 … servers-1 serve,
the others work. `replicas=2` keeps every shard on two servers: an update is acknowledged when both have it.
With `elastic=True` a dead worker is left out until it comes back; else the others wait for it, as their model says.

    Setup(servers=1, consistency=BSP(), rule=SGD(0.1), replicas=1, elastic=False)
    serve(comm, setup, values: {name: tensor}) -> {number: Shard}       what a server rank runs, to its end
    client = Client(comm, setup, like: {name: tensor})                       what a worker rank has
    client.clock                             the clock to begin with (0, or where it was when this worker died)
    client.pull() -> {name: tensor}          waits until this worker may begin its clock
    client.push({name: gradient})            returns when the update is acknowledged; the next clock begins
    client.close()                           when it has done all its clocks

**A job, measured** (`job.py`, `log.py`, `measure.py`): everything below is read from the trace.

    Job(task, clocks=50, setup=Setup(), straggler=Steady())       task: see `Task` in `tasks.py`; its workers work
    play(job, link=Link(), failures=()) -> Record     the same job simulated (a `Record` is a `Run` with a `job`)
    run_rank(comm, job)                      what every rank runs: `launch(run_rank, [job] * job.ranks)`
    reads(trace), updates(trace), acknowledged(trace)      what happened at the servers, in order
    iteration_time(record), idle(record) -> share of the time that workers wait
    staleness(record) -> {updates of others between a read and the update made from it: how often}
    lead(record) -> [Lead(time, shard, worker, clock, slowest) .ahead]     check_bound(record) raises BoundBroken
    loss_curve(record) -> [(seconds, updates, loss)]
    lost_updates(record) -> acknowledged updates that the shards at the end don't have
    random_failures(seed, job, seconds, kills) -> [Failure…]      never both servers of a shard at once

**Tasks** (`tasks.py`): small and real.   logistic(workers, seed=0), spirals(workers, seed=0)
    Task: .start {name: tensor}   .gradient(values, worker, clock) -> (loss, {name: tensor})   .loss(values) -> float

**Regret** (`regret.py`; Ho et al. 2013, theorem 1: for the *sum* over all T updates)

    bound(T, s, P, F, L) = 4 F L sqrt(2 (s+1) P T)        rate(s, P, F, L) -> the theorem's rule of rates
    regret(s, workers, clocks, straggler, seed) -> Regret: .T .measured (sum, by update) .bounds (by update) .F .L .furthest

**Server against ring** (`cost.py`, `exchange.py`): n bytes, W workers, S servers, closed forms that `simulate` agrees with.

    server_time(n, workers, servers, link, colocated=False) = 2 max(W, S) (alpha + n/S beta) + (W-1) n/S gamma
    iteration_time_in_messages(n, workers, servers, link) = (max(W, S)/S + 1) n beta     of BSP's iterations, in the long run
    ring_time(n, p, link) = 2 (p-1) alpha + 2 (p-1)/p n beta + (p-1)/p n gamma
    through_servers(comm, tensor, servers, colocated=False)      push and pull of one sum, as plain messages

**All-reduce** (`ddp.py`, `buckets.py`):

    ddp = DistributedDataParallel(module, comm, *, first_bucket_bytes=1 MiB, bucket_bytes=25 MiB, gradient_dtype=None,
                                  find_unused_parameters=False, broadcast_buffers=True, algorithm="auto", seconds=None)
    ddp(x)                          the module's forward (buffers are rank 0's)
    loss.backward()                 when it returns, every .grad is the mean over the ranks
    ddp.weigh(loss, rows, total=None)    a rank's mean loss over `rows` rows, weighed so that the mean over ranks is the
                                    mean over all rows, however unequal the parts are
    with ddp.no_sync(): …           gradients add up here, no messages
    ddp.buckets                     list of Bucket: .names .elements .nbytes .dtype, in the order in which they are reduced
    seconds(name, parameter)        what the simulated clock charges for the backward of one parameter
    assign(sizes, first_bucket_bytes, bucket_bytes) -> [[index…]…]   which gradients go together
    bytes_sent(lengths, itemsize, p, rank) -> bytes that a rank sends in a step, exactly (ring)
"""

from mlsyslab.data_parallel.buckets import Bucket, assign, bytes_sent
from mlsyslab.data_parallel.client import Client
from mlsyslab.data_parallel.consistency import ASP, BSP, SSP, Consistency
from mlsyslab.data_parallel.cost import iteration_time_in_messages, ring_time, server_time
from mlsyslab.data_parallel.ddp import DistributedDataParallel
from mlsyslab.data_parallel.exchange import through_servers
from mlsyslab.data_parallel.job import Job, Record, play, run_rank
from mlsyslab.data_parallel.keys import Keys
from mlsyslab.data_parallel.kills import random_failures
from mlsyslab.data_parallel.log import acknowledged, reads, updates
from mlsyslab.data_parallel.measure import (
    BoundBroken,
    Lead,
    check_bound,
    idle,
    iteration_time,
    lead,
    loss_curve,
    lost_updates,
    staleness,
)
from mlsyslab.data_parallel.overlap import overlap
from mlsyslab.data_parallel.regret import Regret, bound, rate, regret
from mlsyslab.data_parallel.replication import ShardLost
from mlsyslab.data_parallel.rules import SGD, Adam
from mlsyslab.data_parallel.server import serve
from mlsyslab.data_parallel.setup import Setup
from mlsyslab.data_parallel.shard import Shard
from mlsyslab.data_parallel.stragglers import HeavyTailed, Slow, Steady, Transient
from mlsyslab.data_parallel.tasks import Task, logistic, spirals

__all__ = ["ASP", "Adam", "BSP", "BoundBroken", "Bucket", "Client", "Consistency", "DistributedDataParallel",
           "HeavyTailed", "Job", "Keys", "Lead", "Record", "Regret", "SGD", "SSP", "Setup", "Shard", "ShardLost", "Slow",
           "Steady", "Task", "Transient", "acknowledged", "assign", "bound", "bytes_sent", "check_bound", "idle",
           "iteration_time", "iteration_time_in_messages", "lead", "logistic", "loss_curve", "lost_updates", "overlap",
           "play", "random_failures", "rate", "reads", "regret", "ring_time", "run_rank", "serve", "server_time",
           "spirals", "staleness", "through_servers", "updates"]
