"""AMPNet: every rank works on whatever message has come, and updates its weights on its own (Gaunt et al. 2017)."""

from __future__ import annotations

from heapq import heappop, heappush

from mlsyslab.pipeline.schedule import Action, Schedule
from mlsyslab.pipeline.schedules.registry import register
from mlsyslab.pipeline.schedules.updates import with_updates


@register("AMPNet")
def ampnet(p: int, m: int, accumulate: int = 1, in_flight: int | None = None, forward: float = 1.0,
           backward: float = 2.0) -> Schedule:
    """One weight version, no order given beforehand: gradients go before activations, older microbatches before younger.

    The order is the one that comes about when a forward takes `forward` and a backward `backward` seconds.
    in_flight: how many microbatches may be under way at once (the paper's max_active_keys), p unless given.
    accumulate: backwards of a stage between two of its updates (min_update_frequency). Forward and backward use the weights
    that the stage has then, so that a gradient mixes versions, on each stage other ones.
    """
    in_flight = p if in_flight is None else in_flight
    if not isinstance(in_flight, int) or in_flight < 1 or not (forward > 0 and backward > 0):
        raise ValueError(f"in_flight={in_flight!r}, forward={forward!r}, backward={backward!r}: "
                         "a whole number, 1 or more, and two times above 0")
    seconds = {"F": forward, "B": backward}
    inbox: list[list[tuple[str, int]]] = [[] for _ in range(p)]  # (kind, microbatch); "B" sorts before "F"
    running: list[tuple[float, int, str, int]] = []  # (end, rank, kind, microbatch)
    busy = [False] * p
    rows: list[list[Action]] = [[] for _ in range(p)]
    for i in range(min(m, in_flight)):
        heappush(inbox[0], ("F", i))
    admitted, now = min(m, in_flight), 0.0
    while True:
        for r in range(p):
            if inbox[r] and not busy[r]:
                kind, i = heappop(inbox[r])
                rows[r].append(Action(r, kind, i))
                heappush(running, (now + seconds[kind], r, kind, i))
                busy[r] = True
        if not running:
            break
        now, r, kind, i = heappop(running)
        busy[r] = False
        following = r + 1 if kind == "F" else r - 1
        if following == p:
            heappush(inbox[r], ("B", i))
        elif following >= 0:
            heappush(inbox[following], (kind, i))
        elif admitted < m:  # a microbatch is through: the next may enter
            heappush(inbox[0], ("F", admitted))
            admitted += 1
    return Schedule("AMPNet", [with_updates(row, accumulate) for row in rows])
