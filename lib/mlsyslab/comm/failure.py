"""The death of a rank, planned: what a simulated run is to live through."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Failure:
    """Rank `rank` dies at virtual second `at`, and comes back at virtual second `back` (None: never).

    It dies in the middle of whatever it does; what it had posted or had under way is lost. When it comes back, its function
    is called anew, with the same input and `comm.life` one higher.
    """

    rank: int
    at: float
    back: float | None = None

    def __post_init__(self):
        if type(self.rank) is not int or self.rank < 0:
            raise ValueError(f"Failure(rank={self.rank!r}): a rank is a whole number, 0 or more")
        if not self.at >= 0:
            raise ValueError(f"Failure(at={self.at!r}): a rank dies at a number of seconds, 0 or more")
        if self.back is not None and not self.back > self.at:
            raise ValueError(f"Failure(at={self.at!r}, back={self.back!r}): a rank comes back after it has died")
