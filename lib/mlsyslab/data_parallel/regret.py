"""The regret of stale updates: what they cost in the convex case, measured and bounded (Ho et al. 2013, theorem 1).

Number the updates t = 1 … T by clock and then by worker, let f_t be the loss on the points of update t and x~_t the stale
values that its gradient was taken at. Regret is what was lost against the best fixed values x*:

    R = sum of f_t(x~_t) - f_t(x*)  <=  4 F L sqrt(2 (s+1) P T)

for steps eta_t = sigma / sqrt(t), sigma = F / (L sqrt(2 (s+1) P)), when gradients are no longer than L and |x - x*|^2 / 2 is
no more than F^2 on the way. The bound is for the sum. Divided by T it goes to zero, so on average the updates are as good as
those at x*; staleness s and P workers make it longer by sqrt(s+1) and sqrt(P).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

from mlsyslab.comm import Network
from mlsyslab.data_parallel import log
from mlsyslab.data_parallel.consistency import SSP
from mlsyslab.data_parallel.job import Job, play
from mlsyslab.data_parallel.rules import SGD, Rate
from mlsyslab.data_parallel.setup import Setup
from mlsyslab.data_parallel.stragglers import Steady
from mlsyslab.data_parallel.tasks import Task, logistic

L = 1.0  #: how long the gradients of `logistic` are at most: its points are no further than 1 from zero


def bound(T: int, s: int, P: int, F: float, L: float = L) -> float:
    """4 F L sqrt(2 (s+1) P T): the most that T updates of P workers, at most s clocks apart, lose in sum."""
    return 4 * F * L * math.sqrt(2 * (s + 1) * P * T)


def rate(s: int, P: int, F: float, L: float = L) -> Rate:
    """The theorem's eta_t, times P, since a shard takes 1/P of every gradient."""
    sigma = F / (L * math.sqrt(2 * (s + 1) * P))
    return lambda worker, clock: P * sigma / math.sqrt(clock * P + worker + 1)


@dataclass(frozen=True)
class Regret:
    """measured, bounds: of the first t updates, for t = 1 … T.  F, L: as in the theorem.

    furthest: the largest |x~_t - x*|^2 / 2 of the run. The theorem holds while it is no more than F^2.
    """

    s: int
    P: int
    measured: tuple[float, ...]
    bounds: tuple[float, ...]
    F: float
    L: float
    furthest: float

    @property
    def T(self) -> int:
        return len(self.measured)


def regret(s: int, workers: int = 4, clocks: int = 128, straggler: Steady | None = None, seed: int = 0,
           link: Network | None = None) -> Regret:
    """Train logistic regression under SSP(s), and measure what was lost to the best fixed values."""
    task = logistic(workers, seed=seed)
    best = minimizer(task, clocks)
    F = float(best.norm())  # the way begins at zero, at half of F^2 from the best
    setup = Setup(1, SSP(s), SGD(rate(s, workers, F)))
    read: dict[tuple[int, int], torch.Tensor] = {}
    run = play(Job(_Watched(**vars(task), read=read), clocks, setup, Steady() if straggler is None else straggler), link)
    own = {(e.clock, e.worker): e.value for e in log.read(run.trace, "own loss")}
    lost, measured = 0.0, []
    for clock, worker in sorted(own):
        lost += own[clock, worker] - task.mean_loss({"w": best}, *task.batch(worker, clock)).item()
        measured.append(lost)
    bounds = tuple(bound(t, s, workers, F) for t in range(1, len(measured) + 1))
    furthest = max(float((values - best).square().sum()) / 2 for values in read.values())
    return Regret(s, workers, tuple(measured), bounds, F, L, furthest)


def minimizer(task: Task, clocks: int) -> torch.Tensor:
    """The values that are best for all updates together, by Newton's method."""
    batches = [task.batch(worker, clock) for worker in range(task.workers) for clock in range(clocks)]
    x, y = (torch.cat(all) for all in zip(*batches, strict=True))
    w = torch.zeros(x.shape[1], dtype=x.dtype)
    for _ in range(50):
        p = torch.sigmoid(x @ w)
        gradient, hessian = x.T @ (p - y), x.T @ (x * (p * (1 - p))[:, None])
        step, singular = torch.linalg.solve_ex(hessian, gradient)
        if singular:
            break
        w = w - step
        if step.norm() < 1e-12 * w.norm():
            return w
    raise ValueError("the points can be told apart without an error, so no values are best: take more of them")


@dataclass(frozen=True)
class _Watched(Task):
    """A task that keeps the values at which gradients were taken."""

    read: dict

    def gradient(self, values, worker, clock):
        self.read[worker, clock] = values["w"]
        return super().gradient(values, worker, clock)
