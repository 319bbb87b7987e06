"""Judging all-reduce: put together for short vectors, for long vectors, and chosen between the two."""

from __future__ import annotations

from random import Random

import torch

from mlsyslab import collectives
from mlsyslab.check import inputs
from mlsyslab.check.collectives.costs import crossing
from mlsyslab.check.collectives.reductions import OPS, Reduction, marked, miscounted, reduced, vectors
from mlsyslab.check.collectives.tree import depth
from mlsyslab.check.exercise import ROUNDS, Case
from mlsyslab.check.messages import Forbidden
from mlsyslab.comm import CommError, Link, RankFailed, simulate


class AllReduce(Reduction):
    """What all three have in common: every rank brings a tensor, and gets the reduction of all."""

    forbidden = ("all_reduce", "all_reduce_short", "all_reduce_long")

    def case(self, given: list[torch.Tensor], op: str, link: Link = ROUNDS, **traits: str) -> Case:
        """A tensor from each rank."""
        p = len(given)
        about = inputs.about(p, given[0], op=op, **traits)
        return Case([(tensor, op) for tensor in given], [reduced(given, op)] * p, about, link)

    def diagnose(self, case, outcome, fn):
        p, length = case.p, case.traits["length"]
        if [came.shape for came in outcome.results] == [part.shape for part in case.expected[0].tensor_split(p)]:
            return "That is this rank's part only. Which collective brings all parts to all ranks?"
        try:
            sums = self.run(fn, [(tensor, "sum") for tensor in marked(p, length)], case.link)
        except CommError:
            return None
        for rank, result in enumerate(sums.results):
            if isinstance(result, torch.Tensor) and torch.equal(result, marked(p, length)[rank]):
                return (f"Rank {rank} returned the tensor that it was given. Does the second collective begin with what the "
                        "first one gave, on the rank that has it?")
            if isinstance(result, torch.Tensor) and (wrong := miscounted(result, p)):
                return f"What rank {rank} returned {wrong}."
        return None

    def advise(self, error):
        if not isinstance(error, RankFailed):
            return "Every rank has to call the same collectives in the same order, the ranks that aren't the root too."
        if "NoneType" in error.reason:
            return ("reduce gives the root its result and the others None; broadcast takes a tensor of the right shape "
                    "from every rank. What can the others pass?")
        if "expects" in error.reason and "sends" in error.reason:
            return ("Do all ranks agree on the lengths of the parts? all_gather takes them as lengths=[…]: without it, "
                    "every part is taken to be as long as one's own.")
        return None


class ShortAllReduce(AllReduce):
    name = "short_all_reduce"

    def judge(self, case, outcome):
        p, n = case.p, case.arguments[0][0].nbytes
        for message in outcome.sent:
            if message.tensor.nbytes != n:
                return (f"rank {message.rank} sent {message.tensor.nbytes} bytes to rank {message.to}. For short vectors "
                        f"whole tensors travel ({n} bytes): a reduce to one rank and a broadcast from it, both with "
                        'algorithm="mst"')
        if outcome.trace.rounds > 2 * depth(p):
            return (f"it took {outcome.trace.rounds} rounds; a reduce and a broadcast along a tree over {p} ranks take "
                    f"2 ceil(log2 {p}) = {2 * depth(p)}")
        if len(outcome.sent) != 2 * (p - 1):
            return (f"there were {len(outcome.sent)} messages; a reduce and a broadcast along a tree over {p} ranks take "
                    f"2 (p-1) = {2 * (p - 1)}")
        return None


class LongAllReduce(AllReduce):
    name = "long_all_reduce"

    def judge(self, case, outcome):
        p, n = case.p, case.arguments[0][0].nbytes
        parts = case.expected[0].tensor_split(p)
        whole = [message for message in outcome.sent if message.tensor.nbytes == n]
        if whole and case.traits["length"] >= p:
            return (f"rank {whole[0].rank} sent the whole tensor ({n} bytes) to rank {whole[0].to}: that is the way for "
                    f"short vectors. For long ones no rank should send more than 2 (p-1)/p n bytes: {RINGS}")
        if any((message.to - message.rank) % p not in (1, p - 1) for message in outcome.sent):
            message = next(m for m in outcome.sent if (m.to - m.rank) % p not in (1, p - 1))
            return f"rank {message.rank} sent to rank {message.to}, which is not its neighbour in a ring: {RINGS}"
        for rank in range(p):
            sent = outcome.trace.bytes_sent(rank)
            due = 2 * n - parts[rank].nbytes - min(parts[(rank + 1) % p].nbytes, parts[(rank - 1) % p].nbytes)
            if sent > due:
                return f"rank {rank} sent {sent} bytes, expected {due}, which is about 2 (p-1)/p n: {RINGS}"
        if outcome.trace.rounds > 2 * (p - 1):
            return f"it took {outcome.trace.rounds} rounds instead of 2 (p-1) = {2 * (p - 1)}: {RINGS}"
        return None


RINGS = 'a reduce-scatter and an all-gather, both with algorithm="ring"'


class FastAllReduce(AllReduce):
    """Judged by its time: never slower than the better of the two."""

    name = "fast_all_reduce"
    forbidden = ("choose_for",)  # with which algorithm="auto" chooses

    def cases(self, rng: Random) -> list[Case]:
        cases = []
        for p in (8, 5, 4, 3, 2, 1):
            kinds = (1 / 3, torch.float64), (3, torch.bfloat16), (1 / 3, torch.bfloat16), (3, torch.float64)
            for number, (share, dtype) in enumerate(kinds):
                op = "sum" if (number + p) % 2 else rng.choice(OPS[1:])
                link = Link(alpha=rng.uniform(1, 9) * 1e-6, beta=rng.uniform(1, 9) * 1e-9, gamma=rng.uniform(0, 40) * 1e-9)
                n = share * crossing(p, link) or 64
                length = max(p, round(n / dtype.itemsize / p) * p)
                vector = "short" if length * dtype.itemsize < crossing(p, link) else "long"
                cases.append(self.case(vectors(rng, p, (length,), dtype, op), op, link, vector=vector))
        return cases

    def advise(self, error):
        if isinstance(error.__cause__, Forbidden):
            return 'algorithm="auto" chooses for you: say which, "mst" or "ring".'
        if not isinstance(error, RankFailed):
            return ("Every rank has to come to the same choice: it can depend on comm.link, comm.size and tensor.nbytes, "
                    "which are the same everywhere, and on nothing else.")
        return None

    def judge(self, case, outcome):
        times = {way: simulate(lambda comm, own, way=way: collectives.all_reduce(comm, *own, algorithm=way), case.arguments,
                               case.link).time for way in ("mst", "ring")}
        best = min(times, key=times.get)
        if outcome.trace.time <= times[best] * (1 + 1e-9):
            return None
        n, link = case.arguments[0][0].nbytes, case.link
        return (f"it took {outcome.trace.time:.3g} s; with algorithm={best!r} it would have taken {times[best]:.3g} s for "
                f"these n = {n} bytes (alpha = {link.alpha:.3g} s, beta = {link.beta:.3g} s/byte, gamma = {link.gamma:.3g} "
                "s/byte). Below the crossover the tree is faster, above it the ring; n is in bytes (tensor.nbytes)")
