"""Chimera: pipelines in both directions over the same ranks, each filling the other's bubbles (Li and Hoefler 2021)."""

from mlsyslab.pipeline.schedule import Action, Schedule
from mlsyslab.pipeline.schedules.registry import register


@register("Chimera")
def chimera(p: int, m: int, directions: int = 2) -> Schedule:
    """2f pipelines, f down and f up, each over all p ranks: bubble p/f - 2 slots a rank, in 2m + p/f - 2 (for F = B).

    Every rank holds 2f stages, 2f times the parameters, whose gradients the copies have to add up. Microbatches come in
    units of p, p/2f for each pipeline; units follow one another without a gap. Down pipeline d starts at rank d p/f, and up
    pipeline d is its mirror image (section 3.3 of the paper for f = 1, 3.6 for more).
    """
    f, rest = divmod(directions, 2)
    if p % 2 or rest or f < 1 or (p // 2) % f:
        raise ValueError(f"Chimera runs as many pipelines down as up, each starting at another rank: it needs an even "
                         f"number of stages, and directions=2f, f a divisor of stages/2; not {p} and {directions}")
    shift = p // f
    pipelines = []  # for each, the rank of stage 0, 1, …
    for d in range(f):
        down = [(s + d * shift) % p for s in range(p)]
        pipelines += [down, [p - 1 - rank for rank in down]]
    rows: list[list[tuple[int, Action]]] = [[] for _ in range(p)]  # of (slot, action)
    for i in range(m):
        unit, place = divmod(i, p)
        # of a unit that isn't full, every pipeline gets its share too
        turn, pipeline = divmod(place, directions)
        start = 2 * (unit * p + turn)
        for s, rank in enumerate(pipelines[pipeline]):
            rows[rank] += [(start + s, Action(s, "F", i)), (start + 2 * p - 1 - s, Action(s, "B", i))]
    placement = [tuple(sorted(ranks[s] for ranks in pipelines)) for s in range(p)]
    return Schedule("Chimera", [[action for _, action in sorted(row)] for row in rows], tuple(placement), m)
