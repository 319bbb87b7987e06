"""Whether a schedule can be run, and gives the right gradients: if not, on which rank, at which action, and why."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from mlsyslab.comm.errors import Wait, find_cycle
from mlsyslab.pipeline.columns import B, Columns, F, I, U, W
from mlsyslab.pipeline.schedule import KINDS, Action, Schedule

_SHOWN = 12


class Problem(NamedTuple):
    """What is wrong with one action: the rank that has it (-1: no rank has), the action, and the reason."""

    rank: int
    action: Action
    reason: str

    def __str__(self) -> str:
        where = f"rank {self.rank}" if self.rank >= 0 else "no rank"
        return f"{where}, {self.action}: {self.reason}"


class InvalidSchedule(ValueError):
    """A schedule that cannot be run. problems: everything that was found."""

    def __init__(self, schedule: Schedule, problems: list[Problem]):
        self.problems = problems
        lines = [f"{schedule.name} on {schedule.ranks} ranks with {schedule.microbatches} microbatches is not valid"]
        lines += [f"  {problem}" for problem in problems[:_SHOWN]]
        if len(problems) > _SHOWN:
            lines.append(f"  … and {len(problems) - _SHOWN} more")
        super().__init__("\n".join(lines))


def validate(schedule: Schedule) -> None:
    """Raise InvalidSchedule unless every action is there once, in an order that can be carried out, and no ranks deadlock.

    Ranks receive what an action takes in just before it and send what it gives out just after, without waiting for the
    receiver; a schedule that blocks then blocks whatever the buffers.
    """
    columns = Columns(schedule)
    check(columns)
    if problems := list(deadlock(columns)):
        raise InvalidSchedule(schedule, problems)


def check(columns: Columns) -> None:
    """Raise InvalidSchedule for whatever can be seen without carrying the schedule out: all but deadlock between ranks."""
    for find in (_impossible, _duplicates, _incomplete, _misplaced, _disorder, _pairs, _versions):
        # each check takes for granted what the ones before have made sure of
        if problems := list(find(columns)):
            raise InvalidSchedule(columns.schedule, problems)


def _at(columns: Columns, numbers: np.ndarray, reason: str) -> Iterator[Problem]:
    for i in numbers:
        yield Problem(int(columns.rank[i]), columns.action(i), reason)


def _impossible(columns: Columns) -> Iterator[Problem]:
    """Kinds, stages, microbatches and slices that there are not."""
    yield from _at(columns, np.flatnonzero(columns.kind < 0), f"no such kind; there are {', '.join(KINDS)}")
    for name, size in zip(("stage", "microbatch", "slice"), columns.shape, strict=True):
        field = getattr(columns, name)
        yield from _at(columns, np.flatnonzero((field < 0) | (field >= size)),
                       f"no such {name}; there are {size}, numbered from 0")


def _duplicates(columns: Columns) -> Iterator[Problem]:
    """Actions that occur twice, on one rank or on two; of a replicated stage's update, each copy has its own."""
    shape = len(KINDS), *columns.shape, columns.schedule.ranks
    copy = np.where(columns.kind == U, columns.rank, 0)
    keys = np.ravel_multi_index((columns.kind, columns.stage, columns.microbatch, columns.slice, copy), shape)
    if not (np.diff(np.sort(keys)) == 0).any():
        return
    _, first, which = np.unique(keys, return_index=True, return_inverse=True)
    for i in np.flatnonzero(first[which] != np.arange(len(keys))):
        yield Problem(int(columns.rank[i]), columns.action(i),
                      f"occurs twice; the first time is on rank {columns.rank[first[which[i]]]}")


def _incomplete(columns: Columns) -> Iterator[Problem]:
    """Microbatches that miss a forward, a backward or half of one on some stage, or have a backward twice over."""
    forward, full, inputs, weights = (columns.find(kind) >= 0 for kind in (F, B, I, W))
    trains = columns.schedule.trains

    def missing(where: np.ndarray, kind: int, reason: str) -> Iterator[Problem]:
        for stage, microbatch, slice in np.argwhere(where):
            yield Problem(-1, Action(int(stage), KINDS[kind], int(microbatch), int(slice)), reason)

    yield from missing(~forward, F, "this forward is missing")
    yield from missing(trains & ~full & ~inputs, B, "this backward is missing, and there is no I instead")
    yield from missing(inputs & ~weights & ~full, W, "this weight gradient is missing, though its I is there")
    found = {kind: columns.find(kind) for kind in (I, W)}
    yield from _at(columns, found[I][full & inputs], "the microbatch has a full backward on this stage as well")
    yield from _at(columns, found[W][full & weights & ~inputs], "B already computes this weight gradient")
    yield from _at(columns, found[W][~full & weights & ~inputs], "there is no I that would compute what W needs")


def _misplaced(columns: Columns) -> Iterator[Problem]:
    """Actions on ranks that don't hold the stage, or on another copy of the stage than their forward."""
    schedule = columns.schedule
    holds = np.zeros((schedule.stages, schedule.ranks), dtype=bool)
    for stage, ranks in enumerate(schedule.placement):
        holds[stage, list(ranks)] = True
    for i in np.flatnonzero(~holds[columns.stage, columns.rank]):
        stage = int(columns.stage[i])
        ranks = " and ".join(map(str, schedule.placement[stage]))
        yield Problem(int(columns.rank[i]), columns.action(i), f"stage {stage} is on rank {ranks}")
    own = columns.needs["own"]
    for i in np.flatnonzero((own >= 0) & (columns.rank[own] != columns.rank)):
        yield Problem(int(columns.rank[i]), columns.action(i),
                      f"{columns.action(own[i])}, whose results it needs, is on rank {columns.rank[own[i]]}")


def _disorder(columns: Columns) -> Iterator[Problem]:
    """Actions before what they need, on one rank."""
    for need in columns.needs.values():
        here = np.arange(len(need))
        for i in np.flatnonzero((need >= 0) & (columns.rank[need] == columns.rank) & (need > here)):
            yield Problem(int(columns.rank[i]), columns.action(i), f"comes before {columns.action(need[i])}, which it needs")


def _pairs(columns: Columns) -> Iterator[Problem]:
    """Joined actions that cannot run at the same time."""
    n = len(columns.kind)
    last = np.zeros(n + 1, dtype=bool)
    last[columns.first[1:]] = True  # marks the action after a rank's last
    joined = np.flatnonzero(columns.joined)
    alone = joined[last[joined + 1]]
    yield from _at(columns, alone, "is joined with the action after it, and there is none")
    joined = joined[~last[joined + 1]]
    yield from _at(columns, joined[columns.joined[joined + 1]], "joins more than two actions")
    forwards = (columns.kind[joined] == F).astype(int) + (columns.kind[joined + 1] == F)
    backwards = sum(np.isin(columns.kind[joined + more], (B, I)).astype(int) for more in (0, 1))
    yield from _at(columns, joined[(forwards != 1) | (backwards != 1)], "a forward can be joined with a backward only")
    for need in columns.needs.values():
        yield from _at(columns, joined[need[joined + 1] == joined], "the action joined with it needs its result")


def _versions(columns: Columns) -> Iterator[Problem]:
    """Weight versions that aren't there (any more), and gradients that no update takes in."""
    for rank, row in enumerate(columns.schedule.actions):
        made: dict[int, int] = {}  # stage: newest version
        pending: dict[int, Action] = {}  # stage: the last gradient since its update
        stashed: dict[tuple[int, int, int], int] = {}  # version that a forward computed with
        if not columns.schedule.asynchronous and not any(a.version for a in row):
            continue
        for a in row:
            newest = made.get(a.stage, 0)
            if a.kind == "U":
                if a.version != newest + 1:
                    yield Problem(rank, a, f"makes version {a.version}; the next of stage {a.stage} is {newest + 1}")
                if a.stage not in pending:
                    yield Problem(rank, a, "no gradient has come since the update before")
                elif pending[a.stage].microbatch != a.microbatch:
                    yield Problem(rank, a, f"the last gradient before it is {pending[a.stage]}")
                made[a.stage] = newest + 1
                pending.pop(a.stage, None)
                continue
            if a.version > newest:
                yield Problem(rank, a, f"computes with version {a.version}; the newest of stage {a.stage} is {newest}")
            of = a.stage, a.microbatch, a.slice
            if a.kind == "F":
                stashed[of] = a.version
            elif a.version not in (stashed[of], newest):
                yield Problem(rank, a, f"computes with version {a.version}, which is neither that of its forward "
                                       f"({stashed[of]}) nor the newest ({newest})")
            if a.kind in "BW":
                pending[a.stage] = a
        for a in pending.values():
            yield Problem(rank, a, "no update takes in this gradient")


def deadlock(columns: Columns) -> Iterator[Problem]:
    """The actions at which ranks wait for one another for ever, once sends and receives are put in."""
    stuck = _stuck(columns)
    waits = [Wait(rank, "recv", int(columns.rank[awaited])) for rank, (_, awaited) in stuck.items()]
    circle = find_cycle(waits)
    for rank in circle or stuck:
        at, awaited = stuck[rank]
        peer = int(columns.rank[awaited])
        text = f"waits for {columns.action(awaited)} of rank {peer}"
        if peer in stuck:
            text += f", which is itself waiting at {columns.action(stuck[peer][0])}"
        if circle:
            text += f" (deadlock: {' → '.join(f'rank {r}' for r in [*circle, circle[0]])})"
        yield Problem(rank, columns.action(at), text)


def _stuck(columns: Columns) -> dict[int, tuple[int, int]]:
    """For each rank that cannot finish: the action it waits at and the one it waits for. Ranks run as far as they can."""
    awaited, joined, at = columns.awaited.tolist(), columns.joined.tolist(), columns.first[:-1].tolist()
    end, rank_of = columns.first[1:].tolist(), columns.rank.tolist()

    def next_awaited(i: int) -> int:
        """What has to come before action i (and the one that is joined with it) and hasn't; -1 for nothing."""
        for j in (i, i + 1) if joined[i] else (i,):
            if awaited[j] >= 0 and awaited[j] >= at[rank_of[awaited[j]]]:
                return awaited[j]
        return -1

    stuck: dict[int, tuple[int, int]] = {}
    waiting: dict[int, list[int]] = {}  # rank: the ranks that wait for one of its actions
    ready = list(range(len(at)))
    while ready:
        rank = ready.pop()
        stuck.pop(rank, None)
        before = at[rank]
        while at[rank] < end[rank]:
            missing = next_awaited(at[rank])
            if missing >= 0:
                stuck[rank] = at[rank], missing
                waiting.setdefault(rank_of[missing], []).append(rank)
                break
            at[rank] += 1 + joined[at[rank]]
        if at[rank] > before:
            ready += waiting.pop(rank, [])
    return stuck
