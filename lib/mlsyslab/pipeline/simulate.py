"""When everything in a schedule happens, given how long each action and each message takes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from heapq import heappop, heappush

import numpy as np

from mlsyslab.comm.errors import CommError
from mlsyslab.comm.link import Network
from mlsyslab.comm.trace import Event, Trace
from mlsyslab.pipeline.columns import B, Columns, F, W
from mlsyslab.pipeline.memory import live_activations, weight_versions
from mlsyslab.pipeline.schedule import KINDS, Schedule
from mlsyslab.pipeline.validate import InvalidSchedule, check, deadlock

#: Seconds: one number, one for each stage, or one for each stage and slice.
Times = float | Sequence[float] | Sequence[Sequence[float]] | np.ndarray


def simulate(schedule: Schedule, F: Times = 1.0, I: Times = 1.0, W: Times = 1.0, B: Times | None = None, U: Times = 0.0,
             FB: float | None = None, link: Network | None = None, message: float | Sequence[float] = 1,
             overlap: bool = True, activation: float | Sequence[float] = 1) -> Timeline:
    """Carry out `schedule` on a clock: every rank takes its actions in order, each as soon as its inputs are there.

    F, I, W, U: seconds of a forward, an input gradient, a weight gradient, an update; by stage (and slice) if they differ.
    B: of a full backward; I + W unless given.  FB: of a forward and a backward that are joined; as long as one after the
    other unless given.
    link: the network between ranks; without one, messages take no time.  message: bytes that a stage hands on for one
    microbatch (or slice), by stage where they differ; as many come back as gradient.
    overlap: whether a rank computes while it sends. If not, sending holds it up until its message has arrived.
    activation: bytes that a forward keeps for its backward, by stage where they differ; the default counts activations.
    Raises InvalidSchedule where `validate` would.
    """
    columns = Columns(schedule)
    check(columns)
    times = {"F": F, "I": I, "W": W, "U": U} | ({} if B is None else {"B": B})
    tables = {kind: columns.by_stage(kind, of_kind) for kind, of_kind in times.items()}
    tables.setdefault("B", tables["I"] + tables["W"])
    duration = _durations(columns, np.stack([tables[kind] for kind in KINDS]), FB)
    return _timeline(columns, duration, link, message, overlap, activation)


def replay(schedule: Schedule, events: Iterable[Event], link: Network | None = None, message: float | Sequence[float] = 1,
           overlap: bool = True, activation: float | Sequence[float] = 1) -> Timeline:
    """Carry out `schedule` with the times that its actions took in a real run, one by one.

    events: of one step; the "compute" events among them, labelled by action, count. What the run took longer than this
    timeline, it lost between its actions. The rest is as for `simulate`.
    """
    columns = Columns(schedule)
    check(columns)
    spans = {event.label: (event.start, event.end) for event in events if event.kind == "compute"}
    if missing := [str(action) for action in schedule if str(action) not in spans]:
        raise ValueError(f"the events hold no \"compute\" of {missing[0]} ({len(missing)} actions lack theirs): "
                         "give those of one whole step")
    start, end = np.array([spans[str(action)] for action in schedule]).reshape(-1, 2).T
    duration, joined = end - start, np.flatnonzero(columns.joined)
    duration[joined] = np.maximum(end[joined], end[joined + 1]) - np.minimum(start[joined], start[joined + 1])
    duration[joined + 1] = 0.0
    return _timeline(columns, duration, link, message, overlap, activation)


def _timeline(columns: Columns, duration: np.ndarray, link: Network | None, message: float | Sequence[float], overlap: bool,
              activation: float | Sequence[float]) -> Timeline:
    wire = None if link is None else _Wire(columns, _message_sizes(columns, message).tolist(), link)
    start, end = _play(columns, duration, wire, overlap)
    return Timeline(columns, start, end, wire, columns.by_stage("activation", activation))


def _durations(columns: Columns, times: np.ndarray, FB: float | None) -> np.ndarray:
    """(n,) seconds of each action, from times (kinds, stages, slices); of joined actions, the first has those of both."""
    duration = times[columns.kind, columns.stage, columns.slice]
    joined = np.flatnonzero(columns.joined)
    duration[joined] = duration[joined] + duration[joined + 1] if FB is None else FB
    duration[joined + 1] = 0.0
    return duration


def _message_sizes(columns: Columns, message: float | Sequence[float]) -> np.ndarray:
    """(n,) bytes that each action sends: a forward its stage's output, a backward the gradient of its stage's input."""
    stages = columns.shape[0]
    if np.ndim(message) and len(message) not in (stages - 1, stages):
        raise ValueError(f"message has {len(message)} entries: give one number, or one for each of the {stages - 1} borders "
                         f"between {stages} stages")
    border = np.zeros(stages + 1)  # border s lies between stage s - 1 and stage s
    border[1:stages] = np.asarray(message, dtype=float)[:stages - 1] if np.ndim(message) else message
    forward = columns.kind == KINDS.index("F")
    return np.where(forward, border[columns.stage + 1], border[columns.stage])


class _Wire:
    """The network between the ranks: when messages go and arrive, and, by columns, all that went."""

    def __init__(self, columns: Columns, size: list[float], link: Network):
        self.columns, self.size, self.link = columns, size, link
        self.routes, self.channels = {}, {}  # way from rank to rank; channels by number
        self.free: list[float] = []  # when each channel is free again
        self.action, self.start, self.end = [], [], []

    def route(self, source: int, target: int) -> tuple[float, float, list[int], float]:
        """Alpha, beta, the numbers of the channels on the way, and when it breaks."""
        alpha, beta, channels, fails_at = self.link.route(source, target)
        numbers = [self.channels.setdefault(channel, len(self.channels)) for channel in channels]
        self.free += [0.0] * (len(self.channels) - len(self.free))
        return alpha, beta, numbers, fails_at

    def send(self, i: int, source: int, target: int, now: float) -> float:
        """Send the result of action i, ready now, once the channels on its way are free. Returns when it arrives."""
        if (source, target) not in self.routes:
            self.routes[source, target] = self.route(source, target)
        alpha, beta, channels, fails_at = self.routes[source, target]
        start = now
        for channel in channels:
            if self.free[channel] > start:
                start = self.free[channel]
        end = start + alpha + beta * self.size[i]
        if end > fails_at:
            raise CommError(f"the result of {self.columns.action(i)} never reaches rank {target}: "
                            f"the link from rank {source} breaks at {fails_at:g} s")
        for channel in channels:
            self.free[channel] = end
        self.action.append(i)
        self.start.append(start)
        self.end.append(end)
        return end


def _play(columns: Columns, duration: np.ndarray, wire: _Wire | None, overlap: bool) -> tuple[np.ndarray, np.ndarray]:
    """(n,) start and (n,) end of every action.

    With a wire, actions end in order of time, so that messages queue in the order in which they are ready. Without one,
    order makes no difference, and a stack does.
    """
    rank_of, to, duration = columns.rank.tolist(), columns.addressee.tolist(), duration.tolist()
    inputs = [(i,) if i >= 0 else () for i in columns.awaited.tolist()]  # the actions whose messages an action waits for
    outputs = [(i,) if rank >= 0 else () for i, rank in enumerate(to)]  # the actions whose results it sends
    second = np.flatnonzero(columns.joined) + 1
    for i in second.tolist():  # joined actions go as one, in the place of the first
        inputs[i - 1] += inputs[i]
        outputs[i - 1] += outputs[i]
    width = (1 + columns.joined).tolist()
    start, end, arrived = [0.0] * len(to), [0.0] * len(to), [-1.0] * len(to)
    at, stop, free = columns.first[:-1].tolist(), columns.first[1:].tolist(), [0.0] * columns.schedule.ranks
    waiting: dict[int, int] = {}  # action: the rank that waits for its result
    events: list[tuple[float, int]] = []  # (end, action) of what is running
    push, pop = (list.append, list.pop) if wire is None else (heappush, heappop)
    idle = list(range(len(at)))  # ranks that may have something to start
    while True:
        while idle:
            rank = idle.pop()
            i = at[rank]
            if i == stop[rank]:
                continue
            ready = free[rank]
            for source in inputs[i]:
                there = arrived[source]
                if there < 0:
                    waiting[source] = rank
                    break
                if there > ready:
                    ready = there
            else:
                at[rank] = i + width[i]
                start[i] = ready
                push(events, (ready + duration[i], i))
        if not events:
            break
        now, i = pop(events)
        rank = rank_of[i]
        end[i] = free[rank] = now
        for j in outputs[i]:
            arrived[j] = there = now if wire is None else wire.send(j, rank, to[j], now)
            if not overlap and there > free[rank]:
                free[rank] = there
            if j in waiting:
                idle.append(waiting.pop(j))
        idle.append(rank)
    if at != stop:
        raise InvalidSchedule(columns.schedule, list(deadlock(columns)))
    start, end = np.array(start), np.array(end)
    start[second], end[second] = start[second - 1], end[second - 1]
    return start, end


@dataclass(frozen=True, repr=False)
class Timeline:
    """A schedule on the clock.

    start, end: (n,) seconds, of each action, rank after rank.
    """

    columns: Columns
    start: np.ndarray
    end: np.ndarray
    wire: _Wire | None
    activation: np.ndarray

    def __repr__(self) -> str:
        return (f"Timeline({self.schedule.name}: {self.time:.6g} s, bubble {self.bubble:.1%}, "
                f"at most {max(self.peak_activations):g} activations a rank)")

    @property
    def schedule(self) -> Schedule:
        return self.columns.schedule

    @property
    def time(self) -> float:
        """The makespan: seconds from the start to the end of the last action."""
        return float(self.end.max(initial=0.0))

    @cached_property
    def busy(self) -> np.ndarray:
        """(p,) seconds in which each rank computes; joined actions count once."""
        second = np.concatenate([[False], self.columns.joined[:-1]]) if len(self.start) else self.columns.joined
        return np.bincount(self.columns.rank, np.where(second, 0.0, self.end - self.start), minlength=self.schedule.ranks)

    @property
    def idle(self) -> np.ndarray:
        """(p,) seconds of the makespan in which each rank doesn't compute."""
        return self.time - self.busy

    @property
    def bubble(self) -> float:
        """Idle time over total time, of all ranks together."""
        return float(self.idle.sum() / (self.time * self.schedule.ranks)) if self.time else 0.0

    @cached_property
    def span(self) -> np.ndarray:
        """(p,) seconds from the start of each rank's first action to the end of its last."""
        first, last = self.columns.first[:-1], self.columns.first[1:] - 1
        works = last >= first
        span = np.zeros(self.schedule.ranks)
        span[works] = self.end[last[works]] - self.start[first[works]]
        return span

    @property
    def span_idle(self) -> np.ndarray:
        """(p,) seconds of its own span in which each rank doesn't compute."""
        return self.span - self.busy

    @property
    def span_bubble(self) -> float:
        """Idle time within the ranks' own spans over those spans: what zero-bubble schedules make zero.

        It is the bubble of a long run of steps where no rank waits for the others between two of them.
        """
        return float(self.span_idle.sum() / self.span.sum()) if self.span.any() else 0.0

    @cached_property
    def live(self) -> np.ndarray:
        """(n,) bytes (or number) of activations that the rank holds during each action."""
        return live_activations(self.columns, self.activation)

    @property
    def peak_activations(self) -> list[float]:
        """For each rank, the most activations that it holds at once."""
        first = self.columns.first
        return [float(self.live[a:b].max(initial=0.0)) for a, b in zip(first[:-1], first[1:], strict=True)]

    @property
    def weight_versions(self) -> list[int]:
        """For each rank, the most versions of one stage's weights that it holds at once."""
        return weight_versions(self.schedule)

    @cached_property
    def trace(self) -> Trace:
        """The same events as a real run's, each labelled with its action.

        "compute"; "send" and "recv", labelled with the action whose result they carry; "alloc" and "free" of what a forward
        keeps, from its start to the end of the action that frees it.
        """
        columns, wire, trace = self.columns, self.wire, Trace(size=self.schedule.ranks)
        labels, number = list(map(str, self.schedule)), np.arange(len(self.start))
        trace.extend_columns(columns.rank, "compute", self.start, self.end, labels=labels, label=number)
        if wire is not None:
            sent = np.array(wire.action, dtype=np.int64)
            source, target, size = columns.rank[sent], columns.addressee[sent], np.array(wire.size)[sent]
            for kind, rank, peer in (("send", source, target), ("recv", target, source)):
                trace.extend_columns(rank, kind, wire.start, wire.end, size, peer, labels, sent)
        keeps = columns.kind == F
        frees = np.isin(columns.kind, (B, W)) if self.schedule.trains else keeps
        bytes = self.activation[columns.stage, columns.slice]
        for kind, which, when in (("free", frees, self.end), ("alloc", keeps, self.start)):  # at one time, frees go first
            at = when[which]
            trace.extend_columns(columns.rank[which], kind, at, at, bytes[which], -1, labels, number[which])
        return trace
