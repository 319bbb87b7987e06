"""Judging who waits for whom in a program that hangs, and the program when it is mended."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

import torch

from mlsyslab.check import inputs
from mlsyslab.check.exercise import Case, Exercise, Formula
from mlsyslab.check.messages import article, is_whole, listing
from mlsyslab.check.waiting import OnlyWaiting
from mlsyslab.comm import Communicator, Deadlock, simulate


def hanging_exchange(comm: Communicator, row: torch.Tensor) -> torch.Tensor:
    """The lab's program, as it is handed out."""
    left, right = torch.zeros_like(row), torch.zeros_like(row)
    if comm.rank < comm.size - 1:
        comm.send(row, comm.rank + 1)
        comm.recv(right, comm.rank + 1)
    if comm.rank > 0:
        comm.send(row, comm.rank - 1)
        comm.recv(left, comm.rank - 1)
    return torch.stack([left, row, right])


def circle(p: int) -> list[int]:
    """The ranks that wait in a circle when p ranks run the program: read off the run."""
    try:
        simulate(hanging_exchange, [torch.zeros(1)] * p)
    except Deadlock as deadlock:
        return sorted(deadlock.cycle)
    return []


class DeadlockCycle(Formula):
    name = "deadlock_cycle"

    def cases(self, rng: Random) -> list[Case]:
        return [Case((p,), circle(p), {"world size": p}) for p in (4, 3, 5, 8, 2, rng.randint(9, 20), 1)]

    def compare(self, came, case):
        p, right = case.p, case.expected
        if not isinstance(came, (Sequence, set)) or not all(map(is_whole, came)):
            return f"deadlock_cycle({p}) returned {article(type(came).__name__)}, {came!r}; expected a list of ranks"
        came = list(map(int, came))
        if sorted(came) == right:
            return None
        waits = f"ranks {listing(right)} wait for one another" if right else "no rank waits in a circle, so []"
        text = f"deadlock_cycle({p}) returned {came!r}; where p = {p}, {waits}"
        if sorted(came) == list(range(p)) and right:
            return (f"{text}\n  All ranks wait, but not all wait in the circle: rank 0 waits for rank 1, and nobody "
                    "waits for rank 0. Follow the waits from any rank until one comes twice.")
        if right and any(not 0 <= rank < p for rank in came):
            return f"{text}\n  With {p} ranks the last one is rank {p - 1}."
        if right and len(came) == 1:
            return f"{text}\n  One rank can't wait for itself: who is it waiting for, and who for it?"
        return text


class Exchange(Exercise):
    name = "exchange"
    forbidden = None
    #: Rounds in which an exchange with both neighbours can be done by sends and receives that wait for one another.
    ROUNDS = 4

    def cases(self, rng: Random) -> list[Case]:
        cases = []
        for p in (4, 3, 2, 5, 8, 13, 1):
            for number in range(2):
                shape = (rng.randint(1, 6),) if number == 0 else (rng.randint(1, 4), 2)
                cases.append(self.case([inputs.distinct(rng, shape, inputs.dtype(p + number)) for _ in range(p)]))
        return cases

    def example(self, p):
        return self.case([torch.full((4,), float(rank)) for rank in range(p)])

    def case(self, rows: list[torch.Tensor]) -> Case:
        """A row on each rank."""
        p, edge = len(rows), torch.zeros_like(rows[0])
        line = [edge, *rows, edge]
        expected = [torch.stack(line[rank:rank + 3]) for rank in range(p)]
        return Case([(row,) for row in rows], expected, inputs.about(p, rows[0]), OnlyWaiting())

    def diagnose(self, case, outcome, fn):
        rows = [row for (row,) in case.arguments]
        for rank, came in enumerate(outcome.results):
            left, own, right = case.expected[rank]
            if came.shape != case.expected[rank].shape:
                return "torch.stack puts tensors side by side along a new first dimension."
            if torch.equal(came, torch.stack([right, own, left])):
                return "The two neighbours have changed places: the result is [row of rank-1, own row, row of rank+1]."
            if rank == 0 and case.p > 1 and torch.equal(came[0], rows[-1]):
                return "Rank 0 got the last rank's row: the ranks stand on a line, not in a ring; beyond its ends are zeros."
            if torch.equal(came, torch.stack([left, own, own])) or torch.equal(came, torch.stack([own, own, right])):
                return "A neighbour's place holds the rank's own row."
            missing = [name for name, slot, came_slot in (("left", left, came[0]), ("right", right, came[2]))
                       if slot.any() and not came_slot.any()]
            if missing:
                return f"Rank {rank} never got the row of its {listing(missing)} neighbour."
        return None

    def judge(self, case, outcome):
        p = case.p
        for rank in range(p):
            due = sorted(peer for peer in (rank - 1, rank + 1) if 0 <= peer < p)
            sent = sorted(message.to for message in outcome.by(rank))
            if sent != due:
                return (f"rank {rank} sent to {listing(sent) if sent else 'nobody'}; "
                        f"expected one message to each neighbour: {listing(due) if due else 'none'}")
        if outcome.trace.rounds > self.ROUNDS:
            return (f"it took {outcome.trace.rounds} rounds: the exchanges go on one after the other along the line, and "
                    "the time grows with p. Let all ranks send to the right at the same time, then all to the left")
        return None

    def advise(self, error):
        if isinstance(error, Deadlock) and not error.why:
            if all(wait.kind == "recv" for wait in error.waits):
                return "All that wait here wait to receive: does every rank send to both its neighbours?"
            return ("A send ends when it has been received. Let the receiver be there at the same time: comm.sendrecv, "
                    "comm.irecv before comm.send, or let every second rank receive first.")
        return None
