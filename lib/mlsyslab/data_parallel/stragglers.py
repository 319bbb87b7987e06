"""How long iterations take, on workers that are not alike.

A straggler is a function of worker and clock, drawn from its seed for each pair alone. So every model of consistency meets
the same bad luck, and a worker that comes back to a clock finds it as long as before.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np


def _draw(seed: int, worker: int, clock: int) -> np.random.Generator:
    return np.random.default_rng((seed, worker, clock))


@dataclass(frozen=True)
class Steady:
    """Every iteration takes `seconds`, up to a share `jitter` more or less.

    Also the base of those below, which make some iterations longer.
    """

    seconds: float = 1.0
    jitter: float = 0.0
    seed: int = 0

    def __post_init__(self):
        if not self.seconds > 0 or not 0 <= self.jitter <= 1:
            raise ValueError(f"{type(self).__name__}(seconds={self.seconds}, jitter={self.jitter}): seconds are above 0, "
                             "the jitter is a share, 0 to 1")

    def __call__(self, worker: int, clock: int) -> float:
        """Seconds that `worker` takes for its iteration `clock`."""
        draw = _draw(self.seed, worker, clock)
        even = self.seconds * (1 + self.jitter * draw.uniform(-1, 1))
        return even * self.longer(worker, draw)

    def longer(self, worker: int, draw: np.random.Generator) -> float:
        """How many times as long this iteration takes."""
        return 1.0


@dataclass(frozen=True)
class Slow(Steady):
    """Some workers are always slower: an older machine, a neighbour that never sleeps.  factors: {worker: times as long}."""

    factors: Mapping[int, float] = field(default_factory=lambda: {0: 2.0})

    def __post_init__(self):
        super().__post_init__()
        if any(not factor > 0 for factor in self.factors.values()):
            raise ValueError(f"Slow(factors={dict(self.factors)}): every factor is more than 0")

    def longer(self, worker, draw):
        return self.factors.get(worker, 1.0)


@dataclass(frozen=True)
class Transient(Steady):
    """Now and then some worker is slow for one iteration, `factor` times as long: a backup job, a full disk cache."""

    probability: float = 0.05
    factor: float = 10.0

    def __post_init__(self):
        super().__post_init__()
        if not 0 <= self.probability <= 1 or not self.factor > 0:
            raise ValueError(f"Transient(probability={self.probability}, factor={self.factor}): the probability is 0 to 1, "
                             "the factor more than 0")

    def longer(self, worker, draw):
        return self.factor if draw.random() < self.probability else 1.0


@dataclass(frozen=True)
class HeavyTailed(Steady):
    """Iterations take a Pareto time of mean `seconds`: P(longer than x) falls as x^-shape only.

    The smaller the shape (more than 1), the more of all time is in a few long iterations.
    """

    shape: float = 2.0

    def __post_init__(self):
        super().__post_init__()
        if not self.shape > 1:
            raise ValueError(f"HeavyTailed(shape={self.shape}): the shape is more than 1, else the mean is infinite")

    def longer(self, worker, draw):
        return (self.shape - 1) / self.shape * (1 + draw.pareto(self.shape))
