"""The pictures of the chapter on data parallelism. All of them are read off runs of the library's own code."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache

import torch
from ipywidgets import VBox

from mlsyslab.check.messages import count
from mlsyslab.collectives import all_reduce
from mlsyslab.comm import Link, Trace, simulate
from mlsyslab.data_parallel import (
    ASP,
    BSP,
    SSP,
    DistributedDataParallel,
    Job,
    Record,
    Regret,
    Setup,
    Slow,
    Steady,
    Task,
    idle,
    loss_curve,
    play,
    ring_time,
    server_time,
    through_servers,
)
from mlsyslab.draw.actions import CSS, IDLE, LANE, LEGEND, Entry, in_lines, write
from mlsyslab.draw.lines import lines
from mlsyslab.draw.picture import Picture, number
from mlsyslab.draw.timeline import ticks, unit_of
from mlsyslab.draw.widgets import explore

GAP, HEAD, AXIS = 6, 26, 42  # px between lanes, above a group of them, below all
LEFT, RIGHT = 74, 16  # px beside the lanes


@dataclass(frozen=True)
class Cell:
    """Something on the clock.  name: what stands in it.  look: "F" (blue), "B" (green), "I" (yellow) or "W" (dark)."""

    start: float
    end: float
    name: str
    look: str = "F"


@dataclass(frozen=True)
class Lane:
    """What one worker did, or one of a rank's two hands.  cells: in order of time."""

    name: str
    cells: Sequence[Cell]

    def gaps(self, until: float) -> list[tuple[float, float]]:
        """When nothing was done, from 0 to `until`."""
        gaps, now = [], 0.0
        for cell in self.cells:
            if cell.start > now:
                gaps.append((now, cell.start))
            now = max(now, cell.end)
        return gaps + [(now, until)] * (now < until)


@dataclass(frozen=True)
class Group:
    """Lanes under a heading.  facts: what stands at its right.  end: when the run ended, in s."""

    name: str
    facts: str
    lanes: Sequence[Lane]
    end: float


class Lanes(Picture):
    """Groups of lanes below one another on one clock: a stroke a cell, fine lines where nothing is done.

    until: seconds that the axis spans, so that pictures can be compared.  unit: what the axis counts, where 1 isn't a second.
    legend: what is to be explained.
    """

    css = CSS

    def __init__(self, groups: Sequence[Group], title: str, *, until: float | None = None, unit: str | None = None,
                 width: float = 680, legend: Sequence[Entry] = (IDLE,)):
        self.until = max(group.end for group in groups) if until is None else until
        self.unit = (1.0, unit) if unit else unit_of(self.until)
        self.legend = in_lines(legend, width - LEFT)
        self.bottom = sum(HEAD + len(group.lanes) * (LANE + GAP) for group in groups)
        words = " ".join(f"{group.name}: {group.facts}." for group in groups)
        super().__init__(width, self.bottom + AXIS + LEGEND * len(self.legend), title, words)
        self.scale = (width - LEFT - RIGHT) / self.until
        self._axis()
        top = 0.0
        for group in groups:
            self.text(LEFT, top + 16, group.name, "bold")
            self.text(width - RIGHT, top + 16, group.facts, "soft small end")
            for k, lane in enumerate(group.lanes):
                self._lane(lane, top + HEAD + k * (LANE + GAP), group.end)
            top += HEAD + len(group.lanes) * (LANE + GAP)
        write(self, self.legend, LEFT, self.height - 6 - LEGEND * (len(self.legend) - 1))

    def x(self, seconds: float) -> float:
        return LEFT + seconds * self.scale

    def _axis(self) -> None:
        unit, name = self.unit
        for tick in ticks(self.until / unit, 10):
            self.line(self.x(tick * unit), HEAD, self.x(tick * unit), self.bottom, "rule")
            self.text(self.x(tick * unit), self.bottom + 14, f"{tick:g}", "soft small mid")
        self.text(self.width - RIGHT, self.bottom + 28, f"time in {name}", "soft small end")

    def _lane(self, lane: Lane, top: float, end: float) -> None:
        middle = top + LANE / 2
        self.text(LEFT - 9, middle + 4.5, lane.name, "end")
        self._strokes("hatch", lane.gaps(end), middle, 0.0)
        self._strokes("under", [(cell.start, cell.end) for cell in lane.cells], middle, 0.0)
        for look in sorted({cell.look for cell in lane.cells}):
            self._strokes(f"cell {look}0", [(c.start, c.end) for c in lane.cells if c.look == look], middle, 0.5)
        for ink, looks in (("in", "FBI"), ("in white", "W")):
            named = [(cell.name, self.x((cell.start + cell.end) / 2)) for cell in lane.cells if cell.look in looks
                     and 6 * len(cell.name) + 2 <= (cell.end - cell.start) * self.scale]
            for name, x in named:
                self._add("text", ink, name, font_size=11, x=x, y=middle + 4)

    def _strokes(self, look: str, spans: Sequence[tuple[float, float]], y: float, edge: float) -> None:
        """Horizontal strokes as one path, each shorter by `edge` px at both ends."""
        d = ""
        for start, end in spans:
            left, right = self.x(start), self.x(end)
            trim = min(edge, (right - left) / 8)
            d += f"M{number(left + trim)} {number(y)}H{number(right - trim)}"
        if d:
            self._add("path", look, d=d)


# -- servers and workers ----------------------------------------------------------------------------------------------


def workers(records: Mapping[str, Record], *, until: float | None = None, unit: str | None = None, width: float = 680) -> Lanes:
    """What the workers of several runs did: a lane a worker, a cell an iteration with its number, hatched where it waits."""
    if not records:
        raise ValueError("workers got no runs: give it at least one record by name")
    groups = []
    for name, record in records.items():
        first, lanes = record.job.setup.servers, []
        for worker in range(record.job.workers):
            done = [e for e in record.trace.of(first + worker) if e.kind == "compute"]
            cells = [Cell(e.start, e.end, e.label.split()[-1]) for e in done]
            lanes.append(Lane(f"worker {worker}", cells))
        end = max(lane.cells[-1].end for lane in lanes)
        groups.append(Group(name, f"done at {end / unit_of(end)[0]:.4g} {unit or unit_of(end)[1]}, "
                                  f"workers wait {100 * idle(record):.0f} % of their time", lanes, end))
    return Lanes(groups, " and ".join(records), until=until, unit=unit, width=width)


class _Nothing(Task):
    """A task without anything to learn: only its clock is looked at."""

    def gradient(self, values, worker, clock):
        return 0.0, {name: torch.zeros_like(value) for name, value in values.items()}

    def loss(self, values):
        return 0.0


def _nothing(count: int) -> Task:
    return _Nothing({"w": torch.zeros(1)}, torch.zeros(count, 1), torch.zeros(count), lambda values, x: x, count, 1)


@dataclass(frozen=True)
class Once(Steady):
    """One iteration of one worker takes `factor` times as long."""

    worker: int = 0
    factor: float = 4.0

    def __call__(self, worker, clock):
        return self.factor if (worker, clock) == (self.worker, 2) else 1.0


@dataclass(frozen=True)
class InTurn(Steady):
    """Four workers are slow once each, one after the other, beginning with `first`."""

    first: int = 0
    factor: float = 4.0

    def __call__(self, worker, clock):
        return self.factor if clock == 1 + 2 * ((worker - self.first) % 4) else 1.0


MODELS = {"BSP": BSP(), "SSP, s = 2": SSP(2), "ASP": ASP()}
STRAGGLERS = {"one slow iteration": lambda worker, factor: Once(worker=worker, factor=factor),
              "each worker once, in turn": lambda worker, factor: InTurn(first=worker, factor=factor),
              "one slow worker": lambda worker, factor: Slow(factors={worker: factor})}


@cache
def _waits(straggler: str, worker: int, factor: float, clocks: int) -> Mapping[str, Record]:
    """A run under each model of consistency; messages take next to no time."""
    if factor == 1 and (straggler, worker) != (next(iter(STRAGGLERS)), 0):
        return _waits(next(iter(STRAGGLERS)), 0, 1, clocks)
    slow = STRAGGLERS[straggler](worker, factor)
    return {name: play(Job(_nothing(4), clocks, Setup(consistency=model), slow), Link(alpha=1e-6))
            for name, model in MODELS.items()}


def stragglers(factors: Sequence[float] = (1, 2, 3, 4), clocks: int = 10) -> VBox:
    """A widget: what a straggler does to four workers under BSP, SSP and ASP, wherever it is and however slow."""
    def frame(straggler: str, worker: int, slower: float) -> Lanes:
        until = max(record.time for record in _waits(straggler, 0, max(factors), clocks).values())
        return workers(_waits(straggler, worker, slower, clocks), until=until, unit="iterations")

    return explore(frame, menus=("straggler",), start={"straggler": "each worker once, in turn", "worker": 1, "slower": 3},
                   straggler=list(STRAGGLERS), worker=range(4), slower={f"{factor:g} times": factor for factor in factors})


BAR, STEP, BASE = 15, 19, 96  # px: a bar of the histogram, from one to the next; height of the highest


class Histograms(Picture):
    """How often each staleness occurred, a row for each run."""

    css = CSS + ".mls path.bar{stroke:var(--send-edge);stroke-width:15}"

    def __init__(self, found: Mapping[str, Counter[int]], title: str, most: int = 24):
        said = "; ".join(f"{name}: mean {_mean(counts):.1f}, most {max(counts)}" for name, counts in found.items())
        shown = min(most, max(max(counts) for counts in found.values()))
        width = 130 + STEP * (shown + 1) + 96
        super().__init__(max(width, 420), 30 + 62 * len(found) + 40, title, said)
        self.text(0, 14, title, "bold")
        for row, (name, counts) in enumerate(found.items()):
            self._row(name, counts, shown, 30 + 62 * (row + 1))
        bottom = 30 + 62 * len(found)
        for k in range(0, shown + 1, 2 if shown > 9 else 1):
            self.text(130 + STEP * k, bottom + 14, f"{k}" + ("+" if k == shown == most else ""), "soft small mid")
        self.text(130 + STEP * shown / 2, bottom + 32, "updates that the weights of a gradient missed", "soft small mid")

    def _row(self, name: str, counts: Counter[int], shown: int, bottom: float) -> None:
        shares = [0.0] * (shown + 1)
        for staleness, times in counts.items():
            shares[min(staleness, shown)] += times / counts.total()
        self.text(112, bottom - 14, name, "end")
        self.line(118, bottom, 136 + STEP * shown, bottom, "rule")
        d = "".join(f"M{130 + STEP * k} {number(bottom)}v{number(-52 * share)}" for k, share in enumerate(shares) if share)
        self._add("path", "bar", d=d)
        self.text(150 + STEP * shown, bottom - 22, f"mean {_mean(counts):.1f}", "small")
        self.text(150 + STEP * shown, bottom - 7, f"most {max(counts)}", "small")


def _mean(counts: Counter[int]) -> float:
    return sum(value * times for value, times in counts.items()) / counts.total()


def histograms(found: Mapping[str, Counter[int]], title: str = "Staleness") -> Histograms:
    """Draw how often each staleness occurred (`data_parallel.staleness`), by run."""
    if not found or not all(counts.total() for counts in found.values()):
        raise ValueError("histograms needs at least one count by name, and no empty one")
    return Histograms(found, title)


def losses(records: Mapping[str, Record], over: str, conditions: str, window: int = 16) -> Picture:
    """The loss of several runs, over "by time" (seconds) or "by work" (gradients computed).

    conditions: what the title adds.  window: readings of the values over which a point is the mean.
    """
    if over not in ("by time", "by work"):
        raise ValueError(f'over={over!r}: losses are drawn "by time" or "by work"')
    curves = {}
    for name, record in records.items():
        read = loss_curve(record)
        curves[name] = [(read[end - 1][0] if over == "by time" else end, sum(loss for *_, loss in read[end - window:end]) / window)
                        for end in range(window, len(read) + 1, window // 2)]
    return lines(curves, f"Loss {over}: {conditions}", "seconds" if over == "by time" else "gradients computed", "loss")


def regrets(runs: Mapping[int, Regret]) -> Picture:
    """The measured regret over the number of updates, and SSP's bound, by s."""
    curves = {}
    for s, run in runs.items():
        ends = sorted({max(1, round(run.T ** (k / 24))) for k in range(6, 25)})
        curves |= {f"bound, s = {s}": [(t, run.bounds[t - 1]) for t in ends],
                   f"measured, s = {s}": [(t, run.measured[t - 1]) for t in ends]}
    return lines(curves, "Regret, in sum", "updates", "regret", x_log=True, y_log=True)


# -- server and ring --------------------------------------------------------------------------------------------------


def _loads(way: str, W: int, S: int) -> tuple[Trace, int, int]:
    """A run of one exchange: its trace, how many of its ranks only serve, and the bytes of a gradient."""
    n = 48 * W * S  # bytes: every part is equally long

    def exchange(comm, own):
        if way == "ring":
            all_reduce(comm, own, algorithm="ring")
        else:
            through_servers(comm, own, S if way == "servers" else W, colocated=way == "beside")

    only = S if way == "servers" else 0
    return simulate(exchange, [torch.zeros(n, dtype=torch.int8)] * (only + W), Link(beta=1 / n)).trace, only, n


class Loads(Picture):
    """The bytes that leave and enter every machine in one exchange: bars upwards and downwards, in gradients of n bytes."""

    css = CSS + (".mls path.out{stroke:var(--send-edge);stroke-width:13}.mls path.into{stroke:var(--combine-edge);"
                 "stroke-width:13}")
    HALF, ROW = 40, 122  # px: the highest bar, a row

    def __init__(self, W: int, S: int):
        rows = {f"{S} server{'s' if S > 1 else ''} of their own" if S > 1 else "one server": ("servers", W, S),
                "a server beside each worker": ("beside", W, W), "ring": ("ring", W, 1)}
        runs = {name: _loads(*row) for name, row in rows.items()}
        said = "; ".join(f"{name}: {trace.time:.3g} n beta" for name, (trace, *_) in runs.items())
        super().__init__(660, self.ROW * len(rows) + 24, f"Bytes on every link, {W} workers", said)
        self.most = max(1, W / S)
        for row, (name, (trace, only, n)) in enumerate(runs.items()):
            self._row(name, trace, only, n, row * self.ROW)
        y = self.height - 6
        for x, look, words in ((24, "out", "sent (up)"), (120, "into", "received (down), in gradients of n bytes")):
            self._add("path", look, d=f"M{x} {y - 10}v11")
            self.text(x + 12, y, words, "soft small")

    def _row(self, name: str, trace: Trace, only: int, n: int, top: float) -> None:
        middle = top + 24 + self.HALF
        self.text(4, top + 16, name, "bold")
        self.text(self.width - 4, top + 16, f"takes {trace.time:.3g} nβ", "end")
        step = min(34.0, (self.width - 60) / trace.size)
        out, into = "", ""
        for rank in range(trace.size):
            x = number(24 + step * (rank + 0.5))
            received = sum(e.bytes for e in trace if e.kind == "recv" and e.rank == rank)
            out += f"M{x} {number(middle)}v{number(-self.HALF * trace.bytes_sent(rank) / n / self.most)}"
            into += f"M{x} {number(middle)}v{number(self.HALF * received / n / self.most)}"
        self._add("path", "out", d=out)
        self._add("path", "into", d=into)
        self.line(20, middle, 28 + step * trace.size, middle, "rule")
        if only:
            self.text(24 + step * only / 2, middle + self.HALF + 14, "servers" if only > 1 else "server", "soft small mid")
            self.text(24 + step * (only + (trace.size - only) / 2), middle + self.HALF + 14, "workers", "soft small mid")
        else:
            self.text(24 + step * trace.size / 2, middle + self.HALF + 14, "workers", "soft small mid")


def loads(counts: Sequence[int] = (2, 3, 4, 6, 8, 12, 16), servers: Sequence[int] = (1, 2, 4)) -> VBox:
    """A widget: how many bytes cross every machine's link, through servers and round a ring, as workers grow."""
    if not counts or not servers or min(*counts, *servers) < 1:
        raise ValueError("loads draws one worker and one server, or more")
    return explore(lambda servers, workers: Loads(workers, servers),
                   start={"servers": 1, "workers": 8}, servers=servers, workers=counts)


def server_or_ring(n: float, link: Link, most: int = 64) -> Picture:
    """Seconds of an exchange of n bytes, by the number of workers: through servers, and round a ring."""
    counts = [2**k for k in range(1, int(math.log2(most)) + 1)]
    ways = {"one server": lambda W: server_time(n, W, 1, link), "4 servers": lambda W: server_time(n, W, 4, link),
            "W servers": lambda W: server_time(n, W, W, link), "ring": lambda W: ring_time(n, W, link)}
    return lines({name: [(W, way(W)) for W in counts] for name, way in ways.items()},
                 "One exchange of gradients", "workers W", "seconds", x_log=True, y_log=True, marks=True)


# -- all-reduce beside backward ---------------------------------------------------------------------------------------


@cache
def _backward(bucket: int, layers: int, width: int, link: Link, seconds: float, p: int = 4) -> Trace:
    """One backward of a chain of linear layers under DDP, `seconds` for each layer's gradients."""
    def rank(comm, _):
        torch.manual_seed(0)
        module = torch.nn.Sequential(*(torch.nn.Linear(width, width, bias=False) for _ in range(layers)))
        ddp = DistributedDataParallel(module, comm, first_bucket_bytes=bucket, bucket_bytes=bucket,
                                      seconds=lambda name, parameter: seconds)
        begin = comm.now()  # after rank 0's weights have been given to all
        ddp(torch.ones(1, width)).sum().backward()
        return begin

    run = simulate(rank, [None] * p, link)
    begin, kinds = max(run.results), ("compute", "all_reduce")
    return Trace([e._replace(start=e.start - begin, end=e.end - begin) for e in run.trace
                  if e.rank == 0 and e.kind in kinds and e.start >= begin], size=1)


def _hands(name: str, trace: Trace) -> Group:
    """What rank 0 computes, and what it reduces."""
    cells = {"compute": [], "all_reduce": []}
    for event in trace.of(0):
        words = event.label.split()[-1].removesuffix(".weight")
        cells[event.kind].append(Cell(event.start, event.end, words, "B" if event.kind == "compute" else "I"))
    end = max(cell.end for row in cells.values() for cell in row)
    backward = cells["compute"][-1].end
    unit, unit_name = unit_of(end)
    facts = (f"{count(len(cells['all_reduce']), 'all-reduce')}; {end / unit:.3g} {unit_name}, of which "
             f"{(end - backward) / unit:.3g} {unit_name} after backward")
    return Group(name, facts, [Lane("backward", cells["compute"]), Lane("all-reduce", cells["all_reduce"])], end)


def overlaps(layers: int = 16, width: int = 64) -> VBox:
    """A widget: one backward under DDP, by the size of buckets and the speed of links, on the simulated clock.

    A layer has width x width parameters, which stand for as many MiB as are named.
    """
    bytes_of_layer = 4 * width**2
    networks = {"fast links": (1e-3, 2.0), "links of medium speed": (1e-3, 8.0), "slow links": (1e-3, 16.0)}
    sizes = {f"{k * 4} MiB": k for k in (1, 2, 3, 4, 8, 16) if k <= layers}

    def trace(links: str, bucket: int) -> Trace:
        alpha, milliseconds = networks[links]  # of a message; to send a layer
        link = Link(alpha / 6, milliseconds * 1e-3 / 1.5 / bytes_of_layer)
        return _backward(bucket * bytes_of_layer, layers, width, link, 10e-3)

    until = {links: max(max(event.end for event in trace(links, bucket)) for bucket in sizes.values()) for links in networks}
    return explore(lambda links, bucket: Lanes([_hands("rank 0 of 4", trace(links, bucket))], "Buckets", until=until[links]),
                   menus=("links",), start={"links": "links of medium speed", "bucket": 2}, links=list(networks), bucket=sizes)
