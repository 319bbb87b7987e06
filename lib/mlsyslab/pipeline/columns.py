"""A schedule by columns: what the checker and the simulator compute with, so that a million actions take seconds."""

from __future__ import annotations

from functools import cached_property
from operator import attrgetter

import numpy as np
from numpy.typing import ArrayLike

from mlsyslab.pipeline.schedule import KINDS, Action, Schedule

F, B, I, W, U = range(len(KINDS))


class Columns:
    """The actions of a schedule, rank after rank, one array a field.

    n actions: `rank`, `stage`, `kind` (a number into KINDS), `microbatch`, `slice`, `version`, `joined`, each (n,).
    first: (p + 1,), where each rank's actions begin, and n.
    """

    def __init__(self, schedule: Schedule):
        self.schedule = schedule
        lengths = [len(row) for row in schedule.actions]
        self.first = np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])
        self.rank = np.repeat(np.arange(schedule.ranks), lengths)

        def column(name: str, dtype: type) -> np.ndarray:
            return np.fromiter(map(attrgetter(name), schedule), dtype=dtype, count=len(schedule))

        self.stage, self.microbatch, self.slice, self.version = (
            column(name, np.int64) for name in ("stage", "microbatch", "slice", "version"))
        self.joined = column("joined", bool)
        number = {kind: number for number, kind in enumerate(KINDS)}
        self.kind = np.fromiter((number.get(a.kind, -1) for a in schedule), dtype=np.int8, count=len(schedule))

    def action(self, i: int) -> Action:
        """Action number i."""
        rank = int(self.rank[i])
        return self.schedule.actions[rank][i - int(self.first[rank])]

    @cached_property
    def shape(self) -> tuple[int, int, int]:
        """(stages, microbatches, slices)."""
        return self.schedule.stages, self.schedule.microbatches, max(1, len(self.schedule.slices))

    def by_stage(self, name: str, values: ArrayLike) -> np.ndarray:
        """(stages, slices) from one number, one a stage, or one for each stage and slice; errors say `name`."""
        stages, _, slices = self.shape
        table = np.asarray(values, dtype=float)
        if table.ndim == 1:
            table = table[:, None]
        try:
            table = np.broadcast_to(table, (stages, slices))
        except ValueError:
            raise ValueError(f"{name} has shape {np.shape(values)}: give one number, {stages} (one a stage), "
                             f"or {stages} x {slices} (stage by slice)") from None
        if not (np.isfinite(table).all() and (table >= 0).all()):
            raise ValueError(f"{name}={values!r}: give finite numbers, 0 or more")
        return table

    @cached_property
    def fits(self) -> np.ndarray:
        """(n,) whether stage, microbatch and slice are numbers that the schedule has, and the kind is one there is."""
        fits = self.kind >= 0
        for field, size in zip((self.stage, self.microbatch, self.slice), self.shape, strict=True):
            fits &= (field >= 0) & (field < size)
        return fits

    def find(self, *kinds: int) -> np.ndarray:
        """(stages, microbatches, slices) the number of the action of one of these kinds, -1 where there is none."""
        table = np.full(self.shape, -1, dtype=np.int64)
        chosen = np.flatnonzero(np.isin(self.kind, kinds) & self.fits)
        table[self.stage[chosen], self.microbatch[chosen], self.slice[chosen]] = chosen
        return table

    def _look(self, table: np.ndarray, who: np.ndarray, stages: int = 0, slices: int = 0) -> np.ndarray:
        """What `table` holds for the actions `who`, so many stages and slices on; -1 beyond the ends."""
        stage, slice = self.stage[who] + stages, self.slice[who] + slices
        inside = (stage >= 0) & (stage < self.shape[0]) & (slice >= 0) & (slice < self.shape[2])
        found = np.full(len(who), -1, dtype=np.int64)
        found[inside] = table[stage[inside], self.microbatch[who][inside], slice[inside]]
        return found

    @cached_property
    def needs(self) -> dict[str, np.ndarray]:
        """For each way in which one action needs another, (n,) the number of that other action; -1 for none."""
        forward, backward, gradient = self.find(F), self.find(B, I), self.find(I)
        is_forward = np.flatnonzero(self.fits & (self.kind == F))
        is_backward = np.flatnonzero(self.fits & ((self.kind == B) | (self.kind == I)))
        is_weight = np.flatnonzero(self.fits & (self.kind == W))
        stage, slice, own = (np.full(len(self.kind), -1, dtype=np.int64) for _ in range(3))
        stage[is_forward] = self._look(forward, is_forward, stages=-1)
        slice[is_forward] = self._look(forward, is_forward, slices=-1)
        stage[is_backward] = self._look(backward, is_backward, stages=1)
        slice[is_backward] = self._look(backward, is_backward, slices=1)
        own[is_backward] = self._look(forward, is_backward)
        own[is_weight] = self._look(gradient, is_weight)
        return {"stage": stage, "slice": slice, "own": own}

    @cached_property
    def awaited(self) -> np.ndarray:
        """(n,) the action of another rank whose message this one waits for; -1 for none."""
        need = self.needs["stage"]
        return np.where((need >= 0) & (self.rank[need] != self.rank), need, -1)

    @cached_property
    def addressee(self) -> np.ndarray:
        """(n,) the rank that this action's result is sent to; -1 for none."""
        to = np.full(len(self.kind), -1, dtype=np.int64)
        receivers = np.flatnonzero(self.awaited >= 0)
        to[self.awaited[receivers]] = self.rank[receivers]
        return to
