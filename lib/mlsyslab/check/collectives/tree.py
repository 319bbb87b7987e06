"""Judging broadcast and scatter along a minimum spanning tree."""

from __future__ import annotations

from abc import abstractmethod
from random import Random

import torch

from mlsyslab.check import inputs
from mlsyslab.check.exercise import Case, Exercise
from mlsyslab.check.messages import count, listing
from mlsyslab.check.runs import Outcome, which
from mlsyslab.comm import Deadlock, RankFailed


def depth(p: int) -> int:
    """L = ceil(log2 p): the rounds of a tree over p ranks."""
    return (p - 1).bit_length()


def roots(rng: Random, p: int) -> tuple[int, int]:
    """The first rank and another."""
    return 0, rng.randrange(1, p) if p > 1 else 0


class FromRoot(Exercise):
    """What broadcast and scatter have in common: one rank's tensor goes out, every other rank gets one message."""

    def cases(self, rng: Random) -> list[Case]:
        cases = []
        for p in inputs.SIZES:
            first, another = roots(rng, p)
            for number, shape in enumerate(inputs.shapes(rng, p)):
                root = another if (number + p) % 2 else first  # so each number of rows has both, in one dimension or two
                cases.append(self.case(rng, p, root, shape, inputs.dtype(number + p)))
        return cases

    def example(self, p):
        return self.case(Random(0), p, 0, (4 * p,), torch.float32)

    def case(self, rng: Random, p: int, root: int, shape: tuple[int, ...], dtype: torch.dtype) -> Case:
        """Every rank brings a tensor of one shape; the root's counts."""
        given = [inputs.distinct(rng, shape, dtype) for _ in range(p)]
        about = inputs.about(p, given[0], root=root)
        return Case([(tensor, root) for tensor in given], self.expected(given[root], p), about)

    @abstractmethod
    def expected(self, tensor: torch.Tensor, p: int) -> list[torch.Tensor]:
        """What each rank should return when the root brings `tensor`."""

    def judge(self, case, outcome):
        p, root = case.p, case.traits["root"]
        if case.traits["length"] >= p:  # else some messages are empty, and may be left out
            for rank in range(p):
                came = len(outcome.to(rank))
                if rank == root and came:
                    return f"{count(came, 'message')} went to the root, rank {root}, which had everything from the start"
                if rank != root and came != 1:
                    return f"rank {rank} was sent {count(came, 'message')}; in a tree each rank but the root gets just one"
        return self.judge_rounds(case, outcome)

    def judge_rounds(self, case: Case, outcome: Outcome) -> str | None:
        """No more rounds than a tree has."""
        p, root, rounds = case.p, case.traits["root"], outcome.trace.rounds
        if rounds <= depth(p):
            return None
        senders = {message.rank for message in outcome.sent}
        if senders == {root}:
            how = (f"rank {root} sent all {p - 1} messages itself, one after the other, while the others waited. "
                   "In a tree every rank that has been reached sends on to others")
        elif all(len(outcome.by(rank)) <= 1 for rank in range(p)):
            how = "every rank passed it on to one other, in a chain. In a tree a rank that has been reached goes on sending"
        else:
            how = ("the two halves of a cut must go on at the same time, and the root must first send to the half "
                   "that it is not in, then go on in its own")
        return f"it took {rounds} rounds; a tree over {p} ranks takes ceil(log2 {p}) = {depth(p)}: {how}."

    def advise(self, error):
        if isinstance(error, Deadlock) and not error.why:
            return ("In every cut the half without the root gets a new root, the rank that was just sent to. All ranks have "
                    "to agree on it, or one waits for a message that another doesn't send.")
        if isinstance(error, RankFailed) and "itself" in error.reason:
            return "Who sends, who receives? In each cut only the segment's root and the one rank it sends to do anything."
        return None


class MstBroadcast(FromRoot):
    name = "mst_broadcast"

    def expected(self, tensor, p):
        return [tensor] * p

    def diagnose(self, case, outcome, fn):
        root = case.traits["root"]
        tensors = [tensor for tensor, _ in case.arguments]
        for rank, came in enumerate(outcome.results):
            if not torch.equal(came, tensors[root]):
                if torch.equal(came, tensors[rank]):
                    return f"That is the tensor that rank {rank} was given itself. Is what it receives what it returns?"
                others = [other for other in range(case.p) if torch.equal(came, tensors[other])]
                return f"That is rank {others[0]}'s tensor; the root is rank {root}." if others else None
        return None

    def judge(self, case, outcome):
        n = case.arguments[0][0].nbytes
        for message in outcome.sent:
            if message.tensor.nbytes != n:
                return (f"rank {message.rank} sent {message.tensor.nbytes} bytes to rank {message.to}; "
                        f"every message of this tree is the whole tensor, {n} bytes")
        return super().judge(case, outcome)


class MstScatter(FromRoot):
    name = "mst_scatter"

    def expected(self, tensor, p):
        return list(tensor.tensor_split(p))

    def diagnose(self, case, outcome, fn):
        p, root = case.p, case.traits["root"]
        tensors = [tensor for tensor, _ in case.arguments]
        rows = [len(came) for came in outcome.results if came.dim()]
        chunks = [len(chunk) for chunk in tensors[root].chunk(p)]
        if rows == chunks + [0] * (p - len(chunks)) != [len(part) for part in case.expected]:
            return f"Those are the parts that torch.chunk makes ({listing(rows)} rows); cut with torch.tensor_split."
        for rank, (came, expected) in enumerate(zip(outcome.results, case.expected, strict=True)):
            if torch.equal(came, expected):
                continue
            own = tensors[rank].tensor_split(p)[rank]
            if rank != root and own.numel() and torch.equal(came, own):
                return f"That is a part of rank {rank}'s own tensor; it should be of the root's, rank {root}'s."
            other = which(came, case.expected)
            if other is not None:
                return f"That is the part of rank {other}. Which parts belong to which half?"
        return None

    def judge(self, case, outcome):
        root, parts = case.traits["root"], case.expected
        for rank in range(case.p):
            came = sum(message.tensor.nbytes for message in outcome.to(rank))
            went, own = outcome.trace.bytes_sent(rank), parts[rank].nbytes
            whole = case.arguments[0][0].nbytes
            if rank == root and went != whole - own:
                return (f"the root, rank {root}, sent {went} bytes; the others' parts are {whole - own} bytes in all, "
                        "and each leaves the root once: send a half only its own ranks' parts, not the whole tensor")
            if rank != root and came != went + own:
                return (f"rank {rank} was sent {came} bytes and sent on {went}, but keeps only {own}: "
                        "send a half only its own ranks' parts, not the whole tensor")
        return super().judge(case, outcome)
