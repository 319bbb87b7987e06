"""A job for servers and workers, and its record."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from mlsyslab.comm import Communicator, Failure, Link, Network, Run, simulate
from mlsyslab.data_parallel import log
from mlsyslab.data_parallel.client import Client
from mlsyslab.data_parallel.server import serve
from mlsyslab.data_parallel.setup import Setup
from mlsyslab.data_parallel.shard import Shard
from mlsyslab.data_parallel.stragglers import Steady
from mlsyslab.data_parallel.tasks import Task


@dataclass(frozen=True)
class Job:
    """What is to be learned, by whom.

    task: see `tasks`; its `workers` work.  clocks: the iterations of each.  straggler: how long they take.
    """

    task: Task
    clocks: int = 50
    setup: Setup = field(default_factory=Setup)
    straggler: Steady = field(default_factory=Steady)

    def __post_init__(self):
        if type(self.clocks) is not int or self.clocks < 1:
            raise ValueError(f"Job(clocks={self.clocks!r}): a number of iterations, 1 or more")

    @property
    def workers(self) -> int:
        return self.task.workers

    @property
    def ranks(self) -> int:
        return self.setup.servers + self.workers


@dataclass
class Record(Run):
    """A run, and the job that it was.  failures: the deaths that it lived through."""

    job: Job
    failures: tuple[Failure, ...] = ()

    @property
    def shards(self) -> dict[int, Shard]:
        """The shards at the end, from the servers that have them."""
        servers = self.results[:self.job.setup.servers]
        return {index: shard for kept in servers if kept is not None for index, shard in kept.items()}


def play(job: Job, link: Network | None = None, failures: Sequence[Failure] = ()) -> Record:
    """Do a job on simulated ranks.  link: what messages cost; by default 1 ms each."""
    link = Link(alpha=1e-3) if link is None else link
    run = simulate(run_rank, [job] * job.ranks, link, failures=failures)
    return Record(run.results, run.trace, run.time, job, tuple(failures))


def run_rank(comm: Communicator, job: Job) -> dict[int, Shard] | None:
    """What every rank of a job runs."""
    if comm.size != job.ranks:
        raise ValueError(f"this job is for {job.setup.servers} servers and {job.workers} workers, and there are {comm.size} "
                         "ranks")
    if comm.rank < job.setup.servers:
        return serve(comm, job.setup, job.task.start)
    return _work(comm, job)


def _work(comm: Communicator, job: Job) -> None:
    """A worker: pull, compute, push, as often as there are clocks."""
    client = Client(comm, job.setup, job.task.start)
    while client.clock < job.clocks:
        values = client.pull()
        log.write(comm, "loss", -1, client.worker, client.clock, value=job.task.loss(values))
        loss, gradients = job.task.gradient(values, client.worker, client.clock)
        log.write(comm, "own loss", -1, client.worker, client.clock, value=loss)
        comm.compute(job.straggler(client.worker, client.clock), label=f"clock {client.clock}")
        client.push(gradients)
    client.close()
