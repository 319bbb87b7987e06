"""PipeDream-2BW: 1F1B that never drains, accumulating gradients so that two weight versions do (Narayanan et al. 2021)."""

from mlsyslab.pipeline.schedule import Schedule
from mlsyslab.pipeline.schedules.one_f_one_b import one_f_one_b
from mlsyslab.pipeline.schedules.registry import register
from mlsyslab.pipeline.schedules.updates import with_updates


@register("PipeDream-2BW")
def pipedream_2bw(p: int, m: int, accumulate: int | None = None) -> Schedule:
    """No bubble but at the start and the end of training, and 2 weight versions: W(t+1) = W(t) - lr grad(W(t-1)).

    accumulate: microbatches in a batch t, p unless given and no fewer (section 3.1 of the paper: with fewer, a version would
    still be in use when the one after the next is made). Forward and backward of batch t use version t-1, the first two
    batches version 0, on every stage alike.
    """
    a = p if accumulate is None else accumulate
    if isinstance(a, int) and 1 <= a < p:
        raise ValueError(f"PipeDream-2BW gets by with two weight versions only if it accumulates at least as many "
                         f"microbatches as there are stages: accumulate >= {p}, not {a}")

    def version(microbatch: int) -> int:
        return max(microbatch // a - 1, 0)

    rows = one_f_one_b(p, m).actions
    return Schedule("PipeDream-2BW", [with_updates(row, a, stash=True, version=version) for row in rows])
