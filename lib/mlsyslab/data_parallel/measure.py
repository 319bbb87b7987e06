"""What a run of servers and workers was like, read from its trace."""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

from mlsyslab.data_parallel.job import Record
from mlsyslab.data_parallel.log import Entry, acknowledged, read, updates

PROGRESS = ("update", "copy", "join", "leave", "close", "read")


def iteration_time(record: Record) -> float:
    """Seconds that an iteration takes from one reading of the values to the next: the mean over workers and clocks."""
    took = [later.time - earlier.time for began in _began(record).values()
            for earlier, later in zip(began, began[1:], strict=False) if later.clock == earlier.clock + 1]
    return sum(took) / len(took) if took else record.time


def idle(record: Record) -> float:
    """The share of their time in which workers don't compute: they wait for others, or for messages."""
    computed = whole = 0.0
    for worker in range(record.job.workers):
        rank = record.job.setup.servers + worker
        events = [event for event in record.trace.of(rank) if event.kind == "compute"]
        computed += sum(event.end - event.start for event in events)
        whole += max((event.end for event in events), default=0.0)
    return 1 - computed / whole if whole else 0.0


def staleness(record: Record) -> Counter[int]:
    """How many updates the values had between a worker's reading and its own update, and how often that happened.

    Counted at every shard. With BSP it is always 0, as the gradients of a clock are one update.
    """
    version_read: dict[tuple[int, int, int], int] = {}
    found: Counter[int] = Counter()
    at_once = not record.job.setup.consistency.waits_for_all
    for entry in read(record.trace, "read", "update"):
        of = entry.shard, entry.worker, entry.clock
        if entry.kind == "read":
            version_read[of] = entry.version
        elif of in version_read:
            found[entry.version - 1 - version_read[of] if at_once else 0] += 1
    return found


class Lead(NamedTuple):
    """At this time a worker was given the values of `shard` for `clock`, and the slowest had completed `slowest` clocks."""

    time: float
    shard: int
    worker: int
    clock: int
    slowest: int

    @property
    def ahead(self) -> int:
        return self.clock - self.slowest


def lead(record: Record) -> list[Lead]:
    """How far ahead of the slowest each worker was whenever it was given values.

    Counted again from what the shards took up, not from what the servers thought. Workers that are dead and left out, or
    have done all their clocks, are not counted.
    """
    shards = range(record.job.setup.servers)
    done = {shard: [0] * record.job.workers for shard in shards}
    live = {shard: set(range(record.job.workers)) for shard in shards}
    found = []
    for entry in read(record.trace, *PROGRESS):
        clocks, counted = done[entry.shard], live[entry.shard]
        if entry.kind in ("update", "copy"):
            clocks[entry.worker] = max(clocks[entry.worker], entry.clock + 1)
        elif entry.kind == "join":
            clocks[entry.worker] = max(clocks[entry.worker], entry.clock)
            counted.add(entry.worker)
        elif entry.kind in ("leave", "close"):
            counted.discard(entry.worker)
        else:
            slowest = min((clocks[worker] for worker in counted), default=entry.clock)
            found.append(Lead(entry.time, entry.shard, entry.worker, entry.clock, slowest))
    return found


class BoundBroken(AssertionError):
    """A worker was further ahead than its model of consistency allows."""


def check_bound(record: Record) -> int:
    """Check at every reading that nobody is more clocks ahead than allowed; returns how many readings there were."""
    bound, leads = record.job.setup.consistency.bound, lead(record)
    for step in leads:
        if step.ahead > bound:
            raise BoundBroken(f"at {step.time:g} s worker {step.worker} had shard {step.shard} for clock {step.clock}, "
                              f"when the slowest had completed {step.slowest}: {step.ahead} ahead, and {bound} are allowed")
    return len(leads)


def loss_curve(record: Record) -> list[tuple[float, int, float]]:
    """(seconds, updates, loss on all points) of the values that workers were given, in order of time."""
    versions = {(e.worker, e.clock): e.version for e in read(record.trace, "began")}
    return [(e.time, versions[e.worker, e.clock], e.value) for e in read(record.trace, "loss")]


def lost_updates(record: Record) -> list[Entry]:
    """The acknowledgements of updates that the shards at the end don't have, or have twice; [] is as it should be."""
    applied = {index: Counter(shard.applied) for index, shard in record.shards.items()}
    return [entry for entry in acknowledged(record.trace) if applied[entry.shard][entry.worker, entry.clock] != 1]


def _began(record: Record) -> dict[int, list[Entry]]:
    """When each worker had the values for each of its iterations."""
    by_worker: dict[int, list[Entry]] = {}
    for entry in read(record.trace, "began"):
        by_worker.setdefault(entry.worker, []).append(entry)
    return by_worker


__all__ = ["BoundBroken", "Lead", "check_bound", "idle", "iteration_time", "lead", "loss_curve", "lost_updates", "staleness",
           "updates"]
