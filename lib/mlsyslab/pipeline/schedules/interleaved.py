"""Interleaved 1F1B: each rank holds v chunks of the model and goes from one to the next (Narayanan et al. 2021, 2.2)."""

from mlsyslab.pipeline.schedule import Action, Schedule
from mlsyslab.pipeline.schedules.one_f_one_b import one_f_one_b
from mlsyslab.pipeline.schedules.registry import register


@register("interleaved")
def interleaved(p: int, m: int, chunks: int = 2) -> Schedule:
    """Bubble (p-1)(F+B) in chunk time, a v-th of 1F1B's, where m >= p; v times the messages.

    Rank r keeps min(m v, (v-1)p + 2(p-1-r) + 1) chunks of activations, where m is a multiple of p.

    Microbatches go in rounds of p, or of as even a size as m allows: a round passes through the rank's first chunk, then
    its second, and so on, and backwards in reverse. Rank r holds stages r, p + r, 2p + r, … . With one chunk it is 1F1B.
    """
    if chunks == 1:
        return one_f_one_b(p, m)
    v, rounds = chunks, even_rounds(m, max(1, m // p))
    forwards = [(c, i) for round in rounds for c in range(v) for i in round]
    backwards = [(c, i) for round in rounds for c in reversed(range(v)) for i in round]

    def rank(r: int) -> list[Action]:
        warmup = min(m * v, (v - 1) * len(rounds[0]) + 2 * (p - 1 - r))
        steady = m * v - warmup
        F = [Action(c * p + r, "F", i) for c, i in forwards]
        B = [Action(c * p + r, "B", i) for c, i in backwards]
        row = F[:warmup]
        for k in range(steady):
            row += [F[warmup + k], B[k]]
        return row + B[steady:]

    return Schedule("interleaved", [rank(r) for r in range(p)])


def even_rounds(m: int, rounds: int) -> list[range]:
    """Microbatches 0 to m - 1 in so many runs, the first ones longer by one where they don't divide."""
    size, longer = divmod(m, rounds)
    starts = [k * size + min(k, longer) for k in range(rounds + 1)]
    return [range(a, b) for a, b in zip(starts, starts[1:], strict=False)]
