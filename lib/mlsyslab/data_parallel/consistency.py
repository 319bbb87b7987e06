"""When a worker may go on: bulk synchronous, asynchronous and stale synchronous parallel.

A worker's clock counts the iterations that it has completed; while it works at iteration c its clock is c. A model of
consistency is one question, asked whenever a worker wants to read the values for its next iteration.
"""

from __future__ import annotations

import math
from dataclasses import dataclass


class Consistency:
    """Base of the three models.

    bound: the most clocks that a worker may be ahead of another.
    waits_for_all: whether the gradients of a clock are gathered and applied as one update.
    """

    bound: float
    waits_for_all = False

    def may_begin(self, clock: int, slowest: int) -> bool:
        """Whether a worker may begin iteration `clock` when some worker has completed only `slowest` of them."""
        return clock - slowest <= self.bound


@dataclass(frozen=True)
class BSP(Consistency):
    """Bulk synchronous parallel (Valiant 1990): everybody waits for everybody.

    The gradients of a clock become one update, by their mean, so W workers do what one does with the whole batch.
    """

    bound = 0
    waits_for_all = True


@dataclass(frozen=True)
class ASP(Consistency):
    """Asynchronous parallel: nobody waits (Downpour SGD, Dean et al. 2012). A gradient is applied as it comes."""

    bound = math.inf


@dataclass(frozen=True)
class SSP(Consistency):
    """Stale synchronous parallel (Ho et al. 2013): the fastest worker is at most `s` clocks ahead of the slowest.

    Whoever reads at clock c sees every update of clocks up to c - s - 1, and some newer ones. SSP(0) waits as often as BSP,
    but applies a gradient as it comes: a worker that is late may see what the others have made of the same clock.
    """

    s: int

    def __post_init__(self):
        if type(self.s) is not int or self.s < 0:
            raise ValueError(f"SSP(s={self.s!r}): s is a number of clocks, 0 or more; without a bound use ASP()")

    @property
    def bound(self) -> int:
        return self.s
