"""A pipeline schedule as data: for each rank, the list of actions that it carries out, in order.

Generators (`schedules/`) write schedules; `validate`, `simulate`, `draw` and `execute` only read them.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain
from typing import NamedTuple

#: F forward; B full backward; I gradient of the input alone; W gradient of the weights alone (B = I + W); U weight update
KINDS = "FBIWU"
#: kinds that hand a gradient on to the stage before
BACKWARD = "BI"


class Action(NamedTuple):
    """One piece of work: `kind` for one microbatch on one stage.

    stage: which part of the model, 0 the first.  kind: one of F, B, I, W, U.  microbatch: counted from 0; of U, the last
    microbatch whose gradient goes into the update.
    slice: which token slice of the microbatch's sequences (TeraPipe).
    version: how many updates the weights have seen that this action computes with; of U, the version that it makes. Always 0
    in a synchronous schedule, whose one update follows the last action.
    joined: whether it runs at the same time as the next action of its rank (DualPipe's overlapped forward and backward).
    """

    stage: int
    kind: str
    microbatch: int
    slice: int = 0
    version: int = 0
    joined: bool = False

    @property
    def key(self) -> tuple[int, str, int, int]:
        """What makes it this action and no other, whichever rank, version or partner it has."""
        return self[:4]

    def __str__(self) -> str:
        """`2F0`, as torch.distributed.pipelining writes it; `2F0.1` for slice 1, `2F0@3` for weight version 3."""
        text = f"{self.stage}{self.kind}{self.microbatch}"
        if self.slice:
            text += f".{self.slice}"
        return f"{text}@{self.version}" if self.version else text

    @staticmethod
    def parse(text: str) -> Action:
        """The action that `str` wrote."""
        match = _ACTION.fullmatch(text.strip())
        if not match:
            raise ValueError(f"{text!r} is no action: write stage, kind (one of {', '.join(KINDS)}) and microbatch, as in "
                             "2F0; then .slice and @version where there are any, as in 2F0.1 or 2F0@3")
        stage, kind, microbatch, slice, version = match.groups(default=0)
        return Action(int(stage), kind, int(microbatch), int(slice), int(version))


_ACTION = re.compile(r"(\d+)([FBIWU])(\d+)(?:\.(\d+))?(?:@(\d+))?")
_PAIR = re.compile(r"\(([^;()]+);([^;()]+)\)OVERLAP_F_B")


@dataclass(frozen=True)
class Schedule:
    """What every rank does, in order.

    name: of the schedule.
    actions: one tuple of `Action` a rank.
    placement: for each stage, the ranks that hold a copy of it; one rank, or more where stages are replicated (Chimera,
    DualPipe), and then a microbatch stays with the copy that ran its forward.
    microbatches: m.  slices: how many tokens each slice has (TeraPipe), () where sequences are not sliced.
    What isn't given is read off the actions, which is right for any complete schedule.
    """

    name: str
    actions: tuple[tuple[Action, ...], ...]
    placement: tuple[tuple[int, ...], ...] = ()
    microbatches: int = 0
    slices: tuple[int, ...] = field(default=())

    def __post_init__(self):
        fill = object.__setattr__
        fill(self, "actions", tuple(tuple(row) for row in self.actions))
        if not self.placement:
            fill(self, "placement", _placement(self.actions))
        if not self.microbatches:
            fill(self, "microbatches", 1 + max((a.microbatch for a in self), default=-1))
        if not self.slices and (pieces := 1 + max((a.slice for a in self), default=0)) > 1:
            fill(self, "slices", (1,) * pieces)

    # -- reading ------------------------------------------------------------------------------------------------------

    def __iter__(self) -> Iterator[Action]:
        """Every action, rank after rank."""
        return chain.from_iterable(self.actions)

    def __len__(self) -> int:
        return sum(map(len, self.actions))

    def __repr__(self) -> str:
        return (f"Schedule({self.name}: {self.ranks} ranks, {self.stages} stages, {self.microbatches} microbatches, "
                f"{len(self)} actions)")

    @property
    def ranks(self) -> int:
        """p, the number of ranks."""
        return len(self.actions)

    @property
    def stages(self) -> int:
        """The number of stages that the model is cut into: p v without replicas."""
        return len(self.placement)

    @property
    def chunks(self) -> int:
        """v, the most stages that one rank holds."""
        return max(map(len, self.held))

    @cached_property
    def held(self) -> tuple[tuple[int, ...], ...]:
        """For each rank, the stages that it holds, in rising order."""
        held = [[] for _ in self.actions]
        for stage, ranks in enumerate(self.placement):
            for rank in ranks:
                held[rank].append(stage)
        return tuple(map(tuple, held))

    @cached_property
    def kinds(self) -> frozenset[str]:
        """The kinds of action that occur."""
        return frozenset(a.kind for a in self)

    @property
    def trains(self) -> bool:
        """Whether there is any backward: False for inference."""
        return self.kinds != {"F"}

    @property
    def asynchronous(self) -> bool:
        """Whether weights are updated while the pipeline runs, so that actions name weight versions."""
        return "U" in self.kinds

    @cached_property
    def _copy(self) -> dict[tuple[int, int], int]:
        return {(a.stage, a.microbatch): rank for rank, row in enumerate(self.actions) for a in row if a.kind == "F"}

    def rank_of(self, stage: int, microbatch: int) -> int:
        """The rank on which `microbatch` passes through `stage`."""
        ranks = self.placement[stage]
        return ranks[0] if len(ranks) == 1 else self._copy[stage, microbatch]

    def needs(self, action: Action) -> list[tuple[int, int]]:
        """The (stage, slice) whose result for the same microbatch `action` takes in: activations, or gradients.

        A forward takes activations from the stage before and, of a slice, keys and values from the slice before. A backward
        takes gradients from the stage after and the slice after. That a backward needs its own forward goes without saying.
        """
        stage, kind, _, slice, *_ = action
        if kind == "F":
            return [(stage - 1, slice)] * (stage > 0) + [(stage, slice - 1)] * (slice > 0)
        if kind in BACKWARD:
            return [(stage + 1, slice)] * (stage < self.stages - 1) + [(stage, slice + 1)] * (slice < len(self.slices) - 1)
        return []

    # -- text ---------------------------------------------------------------------------------------------------------

    def to_csv(self) -> str:
        """One row a rank, one cell an action: the form of `torch.distributed.pipelining` (its `_load_csv` reads it)."""
        text = io.StringIO()
        csv.writer(text, lineterminator="\n").writerows(_cells(row) for row in self.actions)
        return text.getvalue()

    @classmethod
    def from_csv(cls, text: str, name: str = "from CSV") -> Schedule:
        """The schedule that `to_csv` or torch's `_dump_csv` wrote. Empty cells, torch's mark for waiting, are left out."""
        rows = []
        for rank, cells in enumerate(csv.reader(io.StringIO(text))):
            try:
                rows.append([action for cell in cells if cell.strip() for action in _parse_cell(cell.strip())])
            except ValueError as error:
                raise ValueError(f"row {rank + 1}, of rank {rank}: {error}") from None
        return cls(name, rows)


def _placement(actions: Sequence[Sequence[Action]]) -> tuple[tuple[int, ...], ...]:
    """For each stage, the ranks that have an action of it."""
    ranks_of: dict[int, set[int]] = {}
    for rank, row in enumerate(actions):
        for stage in {a.stage for a in row}:
            ranks_of.setdefault(stage, set()).add(rank)
    return tuple(tuple(sorted(ranks_of.get(stage, ()))) for stage in range(max(ranks_of, default=-1) + 1))


def _cells(row: Iterable[Action]) -> Iterator[str]:
    row = iter(row)
    for action in row:
        yield f"({action};{next(row)})OVERLAP_F_B" if action.joined else str(action)


def _parse_cell(cell: str) -> list[Action]:
    if pair := _PAIR.fullmatch(cell):
        first, second = map(Action.parse, pair.groups())
        return [first._replace(joined=True), second]
    return [Action.parse(cell)]
