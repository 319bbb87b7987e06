"""Weight versions written into a rank's row, for schedules that update weights without draining the pipeline."""

from collections.abc import Callable, Iterable

from mlsyslab.pipeline.schedule import Action


def with_updates(row: Iterable[Action], accumulate: int, stash: bool = False,
                 version: Callable[[int], int] | None = None) -> list[Action]:
    """`row` with an update U after every `accumulate` backwards (the last one takes what is left), and versions.

    A forward uses the newest version that its stage has, or `version(microbatch)`. A backward uses the newest one too, or,
    with `stash`, the one that its forward used.
    """
    if not isinstance(accumulate, int) or accumulate < 1:
        raise ValueError(f"accumulate={accumulate!r}: microbatches for each update, a whole number, 1 or more")
    row = list(row)
    left = sum(a.kind == "B" for a in row)
    newest = gathered = 0
    used: dict[int, int] = {}
    versioned = []
    for a in row:
        if a.kind == "F":
            used[a.microbatch] = newest if version is None else version(a.microbatch)
            versioned.append(a._replace(version=used[a.microbatch]))
            continue
        versioned.append(a._replace(version=used[a.microbatch] if stash else newest))
        gathered, left = gathered + 1, left - 1
        if gathered == accumulate or not left:
            newest, gathered = newest + 1, 0
            versioned.append(Action(a.stage, "U", a.microbatch, version=newest))
    return versioned
