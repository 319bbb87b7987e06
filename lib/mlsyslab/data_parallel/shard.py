"""One shard of the values, and everything that happens to it.

A shard changes by a few operations only, and only in the order in which they come. So two servers that begin alike and take
the same operations stay alike: that is what replication rests on (state machines: Schneider 1990).
"""

from __future__ import annotations

import torch

from mlsyslab.data_parallel.consistency import Consistency
from mlsyslab.data_parallel.rules import Rule


class Shard:
    """The values of one shard and how far each worker is.

    values: (n,).  clocks: how many clocks each worker has completed here.  live: the workers that the others wait for.
    closed: the workers that have done all their clocks.  version: how many updates the values have had.
    applied: the pushes that are in the values, or wait for the rest of their clock, in order.
    """

    def __init__(self, values: torch.Tensor, workers: int, consistency: Consistency, rule: Rule):
        self.values, self.consistency, self.rule = values.clone(), consistency, rule
        self.state = rule.begin(self.values)
        self.workers = workers
        self.clocks = [0] * workers
        self.live = set(range(workers))
        self.closed: set[int] = set()
        self.version = 0
        self.applied: list[tuple[int, int]] = []
        self.sum: torch.Tensor | None = None  # of the gradients of a clock that not all have pushed (BSP)
        self.summed = 0

    # -- what is asked ------------------------------------------------------------------------------------------------

    @property
    def slowest(self) -> int:
        """The least clock of the workers that the others wait for."""
        return min((self.clocks[worker] for worker in self.live), default=max(self.clocks))

    def may_begin(self, clock: int) -> bool:
        return self.consistency.may_begin(clock, self.slowest)

    # -- what happens -------------------------------------------------------------------------------------------------

    def push(self, worker: int, clock: int, gradient: torch.Tensor) -> bool:
        """Take a worker's gradient of a clock; False when it is here already, and nothing changes.

        A worker that got no answer pushes again, perhaps to another server: (worker, clock) tells.
        """
        if clock < self.clocks[worker]:
            return False
        if clock > self.clocks[worker]:
            raise ValueError(f"worker {worker} pushes clock {clock}, and its clock {self.clocks[worker]} hasn't come")
        self.clocks[worker] += 1
        self.applied.append((worker, clock))
        if self.consistency.waits_for_all:
            self.sum = gradient.clone() if self.sum is None else self.sum.add_(gradient)
            self.summed += 1
            self._finish_clock()
        else:  # a worker's gradient is one of W parts of a clock's
            self._update(gradient / self.workers, worker, clock)
        return True

    def leave(self, worker: int) -> None:
        """The others don't wait for this worker any more."""
        self.live.discard(worker)
        self._finish_clock()

    def join(self, worker: int, clock: int | None = None) -> int:
        """A worker is back, at `clock`, or where the slowest is, but not before what it has done; returns the clock."""
        self.clocks[worker] = max(self.clocks[worker], self.slowest if clock is None else clock)
        self.live.add(worker)
        self._finish_clock()
        return self.clocks[worker]

    def close(self, worker: int) -> None:
        """A worker has done all its clocks, so nobody waits for it."""
        self.closed.add(worker)
        self.leave(worker)

    def _finish_clock(self) -> None:
        """Once nobody is missing, the mean of a clock's gradients is one update."""
        if self.summed and all(self.clocks[worker] > self._open_clock for worker in self.live):
            clock = self._open_clock
            mean, self.sum, self.summed = self.sum.div_(self.summed), None, 0
            self._update(mean, -1, clock)

    @property
    def _open_clock(self) -> int:
        """The clock whose gradients are being summed."""
        return self.applied[-1][1]

    def _update(self, gradient: torch.Tensor, worker: int, clock: int) -> None:
        self.rule.apply(self.values, self.state, gradient, worker, clock)
        self.version += 1

    # -- copies -------------------------------------------------------------------------------------------------------

    def snapshot(self) -> dict:
        """All of it, as plain data."""
        return {"values": self.values, "state": self.state, "clocks": self.clocks, "live": sorted(self.live),
                "closed": sorted(self.closed), "version": self.version, "applied": self.applied, "sum": self.sum,
                "summed": self.summed}

    def load(self, snapshot: dict) -> None:
        """Become what a snapshot holds."""
        vars(self).update(snapshot, live=set(snapshot["live"]), closed=set(snapshot["closed"]))
