"""What can go wrong between ranks, said so that it can be put right."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from mlsyslab.comm.trace import Trace

_IN_A_CELL = re.compile(r".*ipykernel_\d+/\d+\.py:(?=\d)")  # the file in which a notebook keeps a cell's code


class CommError(RuntimeError):
    """Every error that `mlsyslab.comm` raises for a run derives from this one.

    trace: what happened until then, where that is known.
    """

    trace: Trace | None = None


class RankFailed(CommError):
    """A rank raised, exited or was killed; the run ended there.

    rank, size: which rank of how many.
    reason: one line, `ValueError: odd length` or `killed by SIGKILL`.
    details: the traceback of that rank, or "" where there is none.
    """

    def __init__(self, rank: int, size: int, reason: str, details: str = ""):
        self.rank, self.size, self.reason, self.details = rank, size, reason, details
        text = f"rank {rank} of {size} failed: {reason}"
        super().__init__(f"{text}\n\n{details.rstrip()}" if details else text)

    def __reduce__(self):
        return type(self), (self.rank, self.size, self.reason, self.details)


class PeerLost(CommError):
    """The other rank of a send, a receive or a barrier died; raised where that was waited for, and the run goes on.

    rank: the rank that died.  work: the send or receive that is lost, as `isend` or `irecv` gave it; None where they didn't.
    """

    def __init__(self, rank: int, at: float, work: Any = None):
        self.rank, self.at, self.work = rank, at, work
        super().__init__(f"rank {rank} died at {at:g} s")

    def __reduce__(self):
        return type(self), (self.rank, self.at)


@dataclass(frozen=True)
class Wait:
    """One rank that cannot go on: what it waits for, and the line of code that waits.

    kind: "send", "recv" or "barrier"; peer: the other rank, None for a barrier.
    where: "file:line", code: that line's text.  hint: why it never comes, where that is known.
    """

    rank: int
    kind: str
    peer: int | None
    bytes: int = 0
    tag: int = 0
    where: str = ""
    code: str = ""
    hint: str = ""

    def __str__(self) -> str:
        if self.kind == "barrier":
            what = "waits at a barrier"
        elif self.kind == "send":
            what = f"waits to send {self.bytes} bytes to rank {self.peer}"
        elif self.kind == "recv":
            what = f"waits to receive {self.bytes} bytes from rank {self.peer}"
        else:
            what = f"is in {self.kind}"
        tag = f" (tag {self.tag})" if self.tag else ""
        line = f"rank {self.rank} {what}{tag}"
        if self.where:
            line += f"\n      at {_IN_A_CELL.sub('line ', self.where)}" + (f"    {self.code}" if self.code else "")
        return line + (f"\n      {self.hint}" if self.hint else "")


class Deadlock(CommError):
    """Ranks wait for one another, or for something that never comes.

    waits: one `Wait` for each rank that cannot go on.
    cycle: the ranks that wait in a circle, [] where the chain ends in a rank that has returned.
    """

    def __init__(self, waits: list[Wait], size: int, why: str = ""):
        self.waits, self.size, self.why = list(waits), size, why
        self.cycle = find_cycle(self.waits)
        super().__init__(self._text())

    def _text(self) -> str:
        head = self.why or f"no rank can go on: {len(self.waits)} of {self.size} wait"
        lines = [head] + [f"  {wait}" for wait in self.waits[:16]]
        if len(self.waits) > 16:
            lines.append(f"  … and {len(self.waits) - 16} more")
        if self.cycle:
            lines.append("  cycle: " + " → ".join(f"rank {r}" for r in [*self.cycle, self.cycle[0]]))
            if all(w.kind == "send" for w in self.waits if w.rank in self.cycle):
                lines.append("  Every rank in the cycle sends first. A send ends only when it is received: "
                             "let one of them receive first, or use sendrecv.")
        return "\n".join(lines)

    def __reduce__(self):
        return type(self), (self.waits, self.size, self.why)


def find_cycle(waits: list[Wait]) -> list[int]:
    """The ranks of one circle of "waits for", starting at its lowest rank; [] when there is none."""
    peer_of = {wait.rank: wait.peer for wait in waits}
    for start in sorted(peer_of):
        seen, rank = [], start
        while rank in peer_of and rank not in seen:
            seen.append(rank)
            rank = peer_of[rank]
        if rank in seen:
            circle = seen[seen.index(rank):]
            low = circle.index(min(circle))
            return circle[low:] + circle[:low]
    return []
