"""Judging all-gather and reduce-scatter round a ring."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from random import Random

import torch

from mlsyslab.check import inputs
from mlsyslab.check.collectives.reductions import Reduction, contributions, marked, miscounted, reduced
from mlsyslab.check.exercise import Case, Exercise
from mlsyslab.check.messages import count, listing
from mlsyslab.check.runs import Outcome, which
from mlsyslab.comm import CommError, Deadlock


class Ring(Exercise):
    """What the two rings have in common: p-1 steps, in each a message from every rank to the same neighbour."""

    @abstractmethod
    def parts(self, case: Case) -> list[torch.Tensor]:
        """What the tensor is cut into."""

    @abstractmethod
    def bytes_of(self, parts: Sequence[torch.Tensor], rank: int, step: int) -> int:
        """What `rank` should send, where messages go to the right (step 1) or to the left (step -1)."""

    @abstractmethod
    def judge_steps(self, case: Case, outcome: Outcome, step: int) -> str | None:
        """Whether each step did what it should."""

    def judge(self, case, outcome):
        p, parts = case.p, self.parts(case)
        step = self.direction(outcome, p)
        if step is None:
            return self.stranger(outcome, p)
        for rank in range(p):
            sent = len(outcome.by(rank))
            if case.traits["length"] >= p and sent != p - 1:  # else some parts are empty, and may be left out
                return f"rank {rank} sent {count(sent, 'message')}; round a ring of {p} ranks it is p-1 = {p - 1}"
        if wrong := self.judge_steps(case, outcome, step):
            return wrong
        for rank in range(p):
            sent, right = outcome.trace.bytes_sent(rank), self.bytes_of(parts, rank, step)
            if sent != right:
                return f"rank {rank} sent {sent} bytes, expected {right}: one part a step, and none further than it must go"
        if outcome.trace.rounds > p - 1:
            return (f"it took {outcome.trace.rounds} rounds instead of p-1 = {p - 1}: in each step every rank sends and "
                    "receives at the same time (comm.sendrecv), so that all links are busy")
        return None

    def direction(self, outcome: Outcome, p: int) -> int | None:
        """1 if all messages go from r to r+1, -1 if all go to r-1, None otherwise."""
        for step in (1, -1):
            if all(message.to == (message.rank + step) % p for message in outcome.sent):
                return step
        return None

    def stranger(self, outcome: Outcome, p: int) -> str:
        """A message that doesn't belong to a ring."""
        for message in outcome.sent:
            if (message.to - message.rank) % p not in (1, p - 1):
                return (f"rank {message.rank} sent to rank {message.to}, which is not its neighbour: in a ring rank r sends "
                        "only to rank (r+1) mod p, and receives only from rank (r-1) mod p")
        return "some messages went to the right and some to the left; in this ring all go from rank r to rank (r+1) mod p"

    def advise(self, error):
        if isinstance(error, Deadlock) and not error.why:
            return ("In a ring every rank sends to the right and receives from the left in each step: "
                    "comm.sendrecv(tensor, to, out, source) does both at once, with `to` and `source` on its two sides.")
        if isinstance(error.__cause__, CommError):
            return ("The part that rank r sends in a step has to be the one that rank r+1 expects then. "
                    "Parts can differ in length by one.")
        return None


class RingAllGather(Ring):
    name = "ring_all_gather"

    def cases(self, rng: Random) -> list[Case]:
        cases = []
        for p in inputs.SIZES:
            for number, shape in enumerate(inputs.shapes(rng, p)):
                cases.append(self.case(inputs.distinct(rng, shape, inputs.dtype(number + p)), p))
        return cases

    def example(self, p):
        return self.case(torch.arange(4.0 * p), p)

    def case(self, whole: torch.Tensor, p: int) -> Case:
        """`whole`, cut into a part for each rank."""
        parts = whole.tensor_split(p)
        lengths = [len(part) for part in parts]
        return Case([(part, lengths) for part in parts], [whole] * p, inputs.about(p, whole))

    def parts(self, case):
        return [part for part, _ in case.arguments]

    def bytes_of(self, parts, rank, step):
        """Every part but the one that the neighbour began with."""
        return sum(part.nbytes for part in parts) - parts[(rank + step) % len(parts)].nbytes

    def diagnose(self, case, outcome, fn):
        if again := self.same_again(case, outcome):
            return again
        p, parts, lengths = case.p, self.parts(case), case.arguments[0][1]
        for rank, came in enumerate(outcome.results):
            if came.shape != case.expected[rank].shape or torch.equal(came, case.expected[rank]):
                continue
            found = [which(slot, parts) for slot in came.split(lengths)]
            if len(set(lengths)) == 1 and None not in found and len(set(found)) == p:
                return (f"All the parts are there, but in the order {listing(found)}: the part that rank i began with "
                        "belongs in slot i. In step k (from 0) the part that arrives at rank r began at rank (r-k-1) mod p.")
            empty = [slot for slot, (index, rows) in enumerate(zip(found, lengths, strict=True)) if rows and index != slot]
            if empty:
                return (f"On rank {rank} slot {empty[0]} does not hold part {empty[0]}. In step k (from 0) the part that "
                        "arrives at rank r began at rank (r-k-1) mod p, and that is the slot it belongs in.")
        return None

    def same_again(self, case: Case, outcome: Outcome) -> str | None:
        """A rank that sends the part it began with again and again."""
        parts = self.parts(case)
        for message in outcome.sent:
            if message.step and which(message.tensor, parts) == message.rank:
                return (f"rank {message.rank} sent the part it started with again in step {message.step}: "
                        "in step k pass on the part received in step k-1 (steps count from 0).")
        return None

    def judge_steps(self, case, outcome, step):
        whole = case.expected[0].nbytes
        for message in outcome.sent:
            if case.traits["length"] >= case.p and message.tensor.nbytes == whole:
                return f"rank {message.rank} sent the whole tensor in step {message.step}; in each step one part travels"
        return self.same_again(case, outcome)


class RingReduceScatter(Reduction, Ring):
    name = "ring_reduce_scatter"

    def case(self, given: list[torch.Tensor], op: str) -> Case:
        """A tensor from each rank."""
        p = len(given)
        expected = reduced(given, op).tensor_split(p)
        return Case([(tensor, op) for tensor in given], expected, inputs.about(p, given[0], op=op))

    def parts(self, case):
        return list(case.expected)

    def bytes_of(self, parts, rank, step):
        """Every part but its own, which it keeps."""
        return sum(part.nbytes for part in parts) - parts[rank].nbytes

    def judge_steps(self, case, outcome, step):
        parts = self.parts(case)
        for rank in range(case.p):
            done, due = outcome.trace.bytes_combined(rank), self.bytes_of(parts, (rank - step) % case.p, step)
            if done == 0 and due:
                return (f"rank {rank} combined nothing with comm.combine, so the clock charges no gamma for its reductions: "
                        "use comm.combine(acc, incoming, op) in place of + or torch.add")
            if done != due and case.traits["length"] >= case.p:
                return f"rank {rank} combined {done} bytes, expected {due}: one part a step, and each only once"
        return None

    def diagnose(self, case, outcome, fn):
        p, length = case.p, case.traits["length"]
        if all(len(came) == length for came in outcome.results if came.dim()):
            return "That is as long as the whole tensor: rank r returns part r only."
        try:
            sums = self.run(fn, [(tensor, "sum") for tensor in marked(p, length)])
            places = self.run(fn, [(torch.arange(length), "max")] * p)
        except CommError:
            return None
        for message in sums.sent:
            if message.step and message.tensor.numel() and self.alone(message.tensor, message.rank, p):
                return (f"rank {message.rank} sent only its own contribution in step {message.step} (steps count from 0): "
                        "combine what came in step k-1 with your own part, and send that on in step k.")
        for rank, result in enumerate(sums.results):
            if isinstance(result, torch.Tensor) and (wrong := miscounted(result, p)):
                return f"What rank {rank} returned {wrong}. {HOW}"
        parts = torch.arange(length).tensor_split(p)
        for rank, result in enumerate(places.results):
            found = which(result, parts) if isinstance(result, torch.Tensor) else None
            if found not in (None, rank):
                return f"Rank {rank} returned part {found}; it is complete, but belongs on rank {found}: off by one. {HOW}"
        return None

    def alone(self, tensor: torch.Tensor, rank: int, p: int) -> bool:
        """Whether a message of `marked` contributions holds its sender's only."""
        counts = contributions(int(tensor.flatten()[0]), p)
        return counts[rank] == 1 and sum(counts) == 1


#: the steps, in the words of a message
HOW = ("In step k (from 0) rank r sends part (r-k-1) mod p and receives part (r-k-2) mod p, "
       "which it combines with its own; so part r comes home to rank r in the last step.")
