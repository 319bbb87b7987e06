"""How much of the communication goes on while a rank computes, read from the trace."""

from __future__ import annotations

from mlsyslab.comm import Trace


def overlap(trace: Trace, rank: int) -> float:
    """The share of the time of this rank's all-reduces in which it computes; 0 when all of it comes afterwards."""
    events = trace.of(rank)
    computing = [(e.start, e.end) for e in events if e.kind == "compute" and e.end > e.start]
    reducing = [(e.start, e.end) for e in events if e.kind == "all_reduce"]
    whole = sum(end - start for start, end in reducing)
    hidden = sum(max(0.0, min(end, stop) - max(start, begin)) for start, end in reducing for begin, stop in computing)
    return hidden / whole if whole else 0.0
