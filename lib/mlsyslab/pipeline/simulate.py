"""When everything in a schedule happens, given how long each action and each message takes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from heapq import heappop, heappush

import numpy as np

from mlsyslab.comm.errors import CommError
from mlsyslab.comm.link import Network
from mlsyslab.comm.trace import Trace
from mlsyslab.pipeline.columns import Columns
from mlsyslab.pipeline.memory import live_activations, weight_versions
from mlsyslab.pipeline.schedule import KINDS, Schedule
from mlsyslab.pipeline.validate import InvalidSchedule, check, deadlock

#: Seconds: one number, one for each stage, or one for each stage and slice.
Times = float | Sequence[float] | Sequence[Sequence[float]] | np.ndarray


def simulate(schedule: Schedule, F: Times = 1.0, I: Times = 1.0, W: Times = 1.0, B: Times | None = None, U: Times = 0.0,
             FB: float | None = None, link: Network | None = None, message: float | Sequence[float] = 1,
             overlap: bool = True, activation: float | Sequence[float] = 1) -> Timeline:
    """Carry out `schedule` on a clock: every rank takes its actions in order, each as soon as its inputs are there.

    F, I, W, U: seconds of a forward, an input gradient, a weight gradient, an update, by stage (and slice) where they differ.
    B: of a full backward; I + W unless given.  FB: of a forward and a backward that are joined; as long as one after the
    other unless given.
    link: the network between ranks; without one, messages take no time.  message: bytes that a stage hands on to the next for
    one microbatch (or slice), by stage where they differ; as many come back as gradient.
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
    size = _message_sizes(columns, message)
    start, end, sent = _play(columns, duration, size, link, overlap)
    return Timeline(columns, start, end, sent, columns.by_stage("activation", activation))


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


class _Sent:
    """The messages of a run, by columns: the action whose result each was, its bytes, start and end."""

    def __init__(self):
        self.action, self.bytes, self.start, self.end = [], [], [], []


def _play(columns: Columns, duration: np.ndarray, size: np.ndarray, link: Network | None, overlap: bool):
    """Start and end of every action, and the messages. Ends are taken in order of time, so that messages queue as they come.

    A message goes out when its action ends, or when the last message that wants one of its channels is through.
    """
    first, p = columns.first.tolist(), columns.schedule.ranks
    awaited, joined, to = columns.awaited.tolist(), columns.joined.tolist(), columns.addressee.tolist()
    rank_of, duration, size = columns.rank.tolist(), duration.tolist(), size.tolist()
    n = len(rank_of)
    start, end, arrived = [0.0] * n, [0.0] * n, [-1.0] * n
    waiting: dict[int, int] = {}  # action: the rank that waits for its result
    at, stop, free = first[:-1], first[1:], [0.0] * p
    events: list[tuple[float, int]] = []  # (end, action)
    sent, routes, channel_free = _Sent(), {}, {}

    def begin(rank: int) -> None:
        """Start the next action of an idle rank, if what it needs is there or on its way."""
        i = at[rank]
        if i == stop[rank]:
            return
        ready = free[rank]
        for j in (i, i + 1) if joined[i] else (i,):
            source = awaited[j]
            if source >= 0:
                if arrived[source] < 0:
                    waiting[source] = rank
                    return
                if arrived[source] > ready:
                    ready = arrived[source]
        at[rank] = i + 1 + joined[i]
        start[i] = ready
        heappush(events, (ready + duration[i], i))

    def send(i: int, now: float) -> float:
        """Send the result of action i, which is ready now; when it arrives."""
        source, target = rank_of[i], to[i]
        if link is None:
            return now
        if (source, target) not in routes:
            routes[source, target] = link.route(source, target)
        alpha, beta, channels, fails_at = routes[source, target]
        begins = max(now, *(channel_free.get(channel, 0.0) for channel in channels))
        ends = begins + alpha + beta * size[i]
        if ends > fails_at:
            raise CommError(f"the result of {columns.action(i)} never reaches rank {target}: "
                            f"the link from rank {source} breaks at {fails_at:g} s")
        for channel in channels:
            channel_free[channel] = ends
        sent.action.append(i)
        sent.bytes.append(size[i])
        sent.start.append(begins)
        sent.end.append(ends)
        return ends

    for rank in range(p):
        begin(rank)
    while events:
        now, i = heappop(events)
        rank = rank_of[i]
        free[rank] = now
        for j in (i, i + 1) if joined[i] else (i,):
            end[j] = now
            if to[j] >= 0:
                arrived[j] = there = send(j, now)
                if not overlap:
                    free[rank] = max(free[rank], there)
                if j in waiting:
                    begin(waiting.pop(j))
        if joined[i]:
            start[i + 1] = start[i]
        begin(rank)
    if at != stop:
        raise InvalidSchedule(columns.schedule, list(deadlock(columns)))
    return np.array(start), np.array(end), sent


@dataclass(frozen=True, repr=False)
class Timeline:
    """A schedule on the clock.

    start, end: (n,) seconds, of each action, rank after rank.
    """

    columns: Columns
    start: np.ndarray
    end: np.ndarray
    sent: _Sent
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
        """The same events as a real run writes: "compute" labelled with the action, "send" and "recv" labelled with the result."""
        columns, sent, trace = self.columns, self.sent, Trace(size=self.schedule.ranks)
        labels = list(map(str, self.schedule))
        trace.extend_columns(columns.rank, "compute", self.start, self.end, labels=labels, label=np.arange(len(labels)))
        action = np.array(sent.action, dtype=np.int64)
        source, target = columns.rank[action], columns.addressee[action]
        for kind, rank, peer in (("send", source, target), ("recv", target, source)):
            trace.extend_columns(rank, kind, sent.start, sent.end, sent.bytes, peer, labels, action)
        return trace
