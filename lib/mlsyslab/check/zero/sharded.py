"""What the exercises of sharded training have in common: how much a rank sends, and how much memory its tensors take."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import Any

import torch

from mlsyslab.check.exercise import Case, Exercise
from mlsyslab.check.messages import article, count, difference
from mlsyslab.check.runs import Outcome, run
from mlsyslab.comm import Link, Network

#: A message costs by its bytes alone, as the long ones of training do.
BY_BYTE = Link(beta=1e-9)
#: The largest share of a difference that counts as rounding.
CLOSE = 1e-9


class Sharded(Exercise):
    """An exercise that every rank runs, with its memory watched."""

    forbidden = ()

    def run(self, fn: Callable[..., Any], arguments: Sequence[tuple], link: Network = BY_BYTE) -> Outcome:
        return run(fn, arguments, link, self.forbidden, self.timeout, watch=True)

    def _comparable(self, case: Case, outcome: Outcome) -> bool:
        return True  # each exercise looks for itself


def normal(rng: Random, *shape: int) -> torch.Tensor:
    """Random numbers of mean 0 and variance 1, in float64."""
    numbers = torch.Generator().manual_seed(rng.getrandbits(32))
    return torch.randn(*shape, dtype=torch.float64, generator=numbers)


def sent_too_much(outcome: Outcome, times: int, vectors: Sequence[torch.Tensor], why: str) -> str | None:
    """Which rank sent more than its part of `times` rounds of each of `vectors`, and `why` it needn't."""
    p = outcome.trace.size
    due = times * sum(vector.nbytes - vector.flatten().tensor_split(p)[-1].nbytes for vector in vectors)
    for rank in range(p):
        if (sent := outcome.trace.bytes_sent(rank)) > due:
            return f"rank {rank} sent {sent:,} bytes, expected at most {due:,}, {times} (p-1)/p times the model: {why}"
    return None


def sent_too_little(outcome: Outcome, times: int, vector: torch.Tensor, why: str) -> str | None:
    """Whether all ranks together sent less than the least for `times` rounds of `vector`, and `why` so much is needed.

    The least is p-1 times the vector, for a reduce-scatter as for an all-gather, whatever the algorithm: each part has to
    come from, or to reach, p-1 others.
    """
    p = outcome.trace.size
    sent, due = sum(map(outcome.trace.bytes_sent, range(p))), times * (p - 1) * vector.nbytes
    if sent < due:
        return f"the ranks sent {sent:,} bytes in all, expected {due:,}, {times} (p-1) times the model: {why}"
    return None


def held_too_much(outcome: Outcome, allowed: Sequence[int], whole: int, noun: str, why: str) -> str | None:
    """Which rank's tensors took more memory at one time than `allowed`, and what was found there.

    allowed: bytes, by rank.  whole: the bytes of what should not lie about, and `noun` its name.
    """
    over = [rank for rank, live in enumerate(outcome.live) if live.peak > allowed[rank]]
    if not over:
        return None
    rank = max(over, key=lambda rank: outcome.live[rank].peak - allowed[rank])
    live = outcome.live[rank]
    large = sum(size >= whole for size in live.at_peak)
    return (f"rank {rank} held {live.peak:,} bytes at once in tensors that it made, among them {count(large, 'tensor')} as "
            f"large as {noun} ({whole:,} bytes); {allowed[rank]:,} bytes are plenty: {why}")


def wrong_list(rank: int, came: Any, length: int, of: str) -> str | None:
    """Why it is no list of so many tensors; None when it is one."""
    if came is None:
        return f"rank {rank} returned None: end with `return …` on every rank (printing a result does not return it)"
    if not isinstance(came, (list, tuple)) or not all(isinstance(one, torch.Tensor) for one in came):
        return f"rank {rank} returned {article(type(came).__name__)}; expected a list of tensors, {of}"
    if len(came) != length:
        return f"rank {rank} returned {count(len(came), 'tensor')}; expected {length}, {of}"
    return None


def close(rank: int, came: object, expected: torch.Tensor) -> str | None:
    """As `difference`, with values that may differ by rounding."""
    if isinstance(came, torch.Tensor) and near(came, expected):
        return None
    return difference(rank, came, expected)


def near(came: torch.Tensor, right: torch.Tensor) -> bool:
    return came.shape == right.shape and came.dtype == right.dtype and torch.allclose(came, right, CLOSE, CLOSE)


def slip(results: Sequence[Any], slips: Sequence[tuple[Sequence[Sequence[torch.Tensor]], str]]) -> str | None:
    """The words of the first mistake that would have given these lists of tensors, by rank."""
    if not all(isinstance(came, (list, tuple)) and all(isinstance(one, torch.Tensor) for one in came) for came in results):
        return None
    return next((words for mistaken, words in slips
                 if all(len(came) == len(own) and all(map(near, came, own))
                        for came, own in zip(results, mistaken, strict=True))), None)
