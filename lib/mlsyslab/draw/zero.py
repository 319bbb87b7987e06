"""Pictures of ZeRO: what each stage keeps, who holds what while a step goes on, and memory over time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import torch
from ipywidgets import VBox

from mlsyslab import zero
from mlsyslab.comm import Trace
from mlsyslab.draw.picture import STYLE, Picture, number
from mlsyslab.draw.plot import CSS as CURVES
from mlsyslab.draw.timeline import ticks, unit_of
from mlsyslab.draw.widgets import explore

#: The three kinds of model state, and the colour of each: as in the paper's figure 1.
KINDS = {"parameters": "send", "gradients": "mark", "optimizer": "compute"}
NAMES = {"parameters": "parameters", "gradients": "gradients", "optimizer": "optimizer state"}
STAGES = ("data parallelism", "ZeRO stage 1", "ZeRO stage 2", "ZeRO stage 3")

# -- what each stage keeps --------------------------------------------------------------------------------------------

PRECISIONS = {"mixed (16 and 32 bits)": torch.bfloat16, "single (32 bits)": torch.float32}
OPTIMIZERS: dict[str, Callable] = {"Adam": partial(torch.optim.Adam, lr=0.1),
                                   "SGD with momentum": partial(torch.optim.SGD, lr=0.1, momentum=0.9),
                                   "plain SGD": partial(torch.optim.SGD, lr=0.1)}
SIZES = {"1.5 billion": 1.5e9, "7.5 billion": 7.5e9, "30 billion": 30e9, "128 billion": 128e9, "1 trillion": 1e12}
RANKS = (1, 4, 16, 64, 256, 1024)
DEVICE = 80e9  # bytes of the device that a bar is measured by

WIDTH, LEFT, RIGHT = 660, 122, 24  # px: of a picture of bars, and beside them
BAR, PITCH, TOP = 26, 40, 40  # px: a bar, from bar to bar, above the first


def memory_bars() -> VBox:
    """Choose a model, its precision and optimizer and the number of ranks, and see what each stage keeps on a rank."""
    return explore(lambda model, precision, optimizer, ranks: memory_bar(
        SIZES[model], ranks, *zero.bytes_a_parameter(OPTIMIZERS[optimizer], PRECISIONS[precision])),
        menus=["model", "precision", "optimizer"], start={"model": "7.5 billion", "ranks": 64},
        model=list(SIZES), precision=list(PRECISIONS), optimizer=list(OPTIMIZERS), ranks=RANKS)


def memory_bar(parameters: float, ranks: int, parameter: int = 2, gradient: int = 2, optimizer: int = 12) -> Picture:
    """What a rank keeps in each stage, as bars of parameters, gradients and optimizer state.

    parameters: how many.  parameter, gradient, optimizer: bytes of each for one parameter.
    """
    kept = [zero.memory(parameters, ranks, stage, parameter, gradient, optimizer) for stage in range(4)]
    words = "; ".join(f"{name}: {size_of(memory.total)}" for name, memory in zip(STAGES, kept, strict=True))
    title = (f"{parameters / 1e9:g} billion parameters, {parameter} + {gradient} + {optimizer} bytes each, "
             f"on {ranks} rank{'s' if ranks > 1 else ''}")
    picture = _Bars(WIDTH, TOP + 4 * PITCH + 34, title, words)
    scale = (WIDTH - LEFT - RIGHT) / kept[0].total
    picture.text(0, 14, title, "bold")
    for stage, memory in enumerate(kept):
        picture.bar(TOP + stage * PITCH, STAGES[stage], memory, scale)
    picture.device(LEFT + DEVICE * scale, TOP + 4 * PITCH)
    picture.legend(TOP + 4 * PITCH + 26)
    return picture


class _Bars(Picture):
    css = STYLE + ".mls .limit{stroke:var(--ink);stroke-width:1.4;stroke-dasharray:5 3}"

    def bar(self, y: float, name: str, memory: zero.Memory, scale: float) -> None:
        """One stage with its sum, in sight on a phone whatever the bar's length; three parts, one after the other."""
        self.text(LEFT - 8, y + BAR / 2 - 3, name, "end")
        self.text(LEFT - 8, y + BAR / 2 + 12, size_of(memory.total), "bold small end")
        x = float(LEFT)
        for kind, classes in KINDS.items():
            nbytes = getattr(memory, kind)
            if nbytes:
                self.rect(x, y, max(nbytes * scale, 0.4), BAR, classes, f"{NAMES[kind]}: {size_of(nbytes)}", round=0)
            if nbytes * scale > 60:
                self.text(x + nbytes * scale / 2, y + BAR / 2 + 4, size_of(nbytes), "small mid")
            x += nbytes * scale

    def device(self, x: float, bottom: float) -> None:
        """Where a device of `DEVICE` bytes ends, if that is in sight."""
        if x <= WIDTH - RIGHT:
            self.line(x, TOP - 8, x, bottom - 8, "limit")
            self.text(x, TOP - 12, f"{DEVICE / 1e9:g} GB", "small soft " + ("mid" if x > LEFT + 20 else ""))

    def legend(self, y: float) -> None:
        """A sample of each kind, with its name."""
        x = float(LEFT)
        for kind, classes in KINDS.items():
            self.rect(x, y - 10, 14, 11, classes)
            self.text(x + 19, y, NAMES[kind], "soft small")
            x += 40 + 6 * len(NAMES[kind])


def size_of(nbytes: float) -> str:
    """Bytes in the decimal units of the paper, halves rounded up: 31.4 GB."""
    for power, unit in ((12, "TB"), (9, "GB"), (6, "MB"), (3, "kB")):
        if nbytes >= 10**power:
            return f"{nbytes / 10**power * (1 + 1e-12):.3g} {unit}"
    return f"{nbytes:g} B"


# -- who holds what ---------------------------------------------------------------------------------------------------

#: What a rank has of one part of one layer: nothing; its own samples' share of a sum; what is valid; what is out of date;
#: what it has just updated.
NOTHING, OWN, VALID, OLD, UPDATED = range(5)


@dataclass(frozen=True)
class Moment:
    """One step of a training step.

    title, words: what happens.  held: by kind, rank and layer, what the rank has of each part (NOTHING, OWN, …).
    """

    title: str
    words: str
    held: Mapping[str, Sequence[Sequence[Sequence[int]]]]

    def bytes(self, rank: int, sizes: Mapping[str, int]) -> float:
        """What a rank holds, in bytes a parameter of the model."""
        parts = [(len(of_rank[0]) * len(of_rank), sizes[kind] * sum(part != NOTHING for layer in of_rank for part in layer))
                 for kind, of_rank in ((kind, ranks[rank]) for kind, ranks in self.held.items())]
        return sum(nbytes / of for of, nbytes in parts)


def moments(stage: int, p: int = 4, layers: int = 3) -> list[Moment]:
    """A training step of `stage` on p ranks, layer by layer, without overlap."""
    return list(_Step(stage, p, layers).run())


class _Step:
    """The ranks' holdings while a training step goes on."""

    def __init__(self, stage: int, p: int, layers: int):
        self.stage, self.p, self.layers = stage, p, layers
        self.held = {kind: [[[NOTHING] * p for _ in range(layers)] for _ in range(p)] for kind in KINDS}
        for layer in range(layers):
            self.put("parameters", layer, VALID, cut=stage >= 3)
            self.put("optimizer", layer, VALID, cut=stage >= 1)

    def put(self, kind: str, layer: int, what: int, cut: bool = False, rest: int | None = NOTHING) -> None:
        """Every rank has `what` of a layer; `cut`: of its own part, with `rest` in the others (None: what was there)."""
        for rank in range(self.p):
            row = self.held[kind][rank][layer]
            for part in range(self.p):
                if not cut or part == rank:
                    row[part] = what
                elif rest is not None:
                    row[part] = rest

    def now(self, title: str, words: str) -> Moment:
        return Moment(title, words, {kind: [[list(layer) for layer in rank] for rank in ranks]
                                     for kind, ranks in self.held.items()})

    def run(self) -> Iterator[Moment]:
        p = self.p
        between = ["Every rank keeps everything.", f"Of the optimizer's state each rank keeps 1/{p}.",
                   f"Of the optimizer's state each rank keeps 1/{p}.", f"Each rank keeps 1/{p} of every layer."][self.stage]
        yield self.now("before the step", between)
        yield from self.forward()
        yield from self.backward()
        yield from self.update()

    def forward(self) -> Iterator[Moment]:
        if self.stage < 3:
            yield self.now("forward", "All parameters are there: nothing has to be sent.")
            return
        for layer in range(self.layers):
            self.put("parameters", layer, VALID)
            yield self.now(f"forward, layer {layer}", "All-gather: the layer is whole on every rank, and computes.")
            self.put("parameters", layer, VALID, cut=True)
        yield self.now("end of forward", "Each layer was let go when it had computed.")

    def backward(self) -> Iterator[Moment]:
        reduced = {0: "All-reduce: every rank has the whole sum.",
                   1: "Reduce-scatter: of the sum each rank gets its own part. Its whole gradient stays where it was.",
                   2: "Reduce-scatter: each rank keeps its part of the sum, and lets the rest go.",
                   3: "Reduce-scatter: each rank keeps its part of the sum, and lets the gradient and the layer go."}
        for layer in reversed(range(self.layers)):
            if self.stage == 3:
                self.put("parameters", layer, VALID)
            self.put("gradients", layer, OWN)
            gathered = "All-gather, once more; then the" if self.stage == 3 else "The"
            yield self.now(f"backward, layer {layer}", f"{gathered} gradient of this rank's samples.")
            self.put("gradients", layer, VALID, cut=self.stage > 0, rest=None if self.stage == 1 else NOTHING)
            if self.stage == 3:
                self.put("parameters", layer, VALID, cut=True)
            yield self.now(f"backward, layer {layer}: reduced", reduced[self.stage])

    def update(self) -> Iterator[Moment]:
        for layer in range(self.layers):
            self.put("parameters", layer, UPDATED, cut=self.stage > 0, rest=NOTHING if self.stage == 3 else OLD)
            self.put("gradients", layer, NOTHING)
        own = "all of it" if self.stage == 0 else "its own part, and only that"
        yield self.now("update", f"Each rank updates {own}. The gradients are forgotten.")
        if self.stage in (1, 2):
            for layer in range(self.layers):
                self.put("parameters", layer, VALID)
            yield self.now("after the update", "All-gather: everyone gets everyone's new parameters.")


CELL, SPACE, GROUP = 14, 5, 24  # px: a part of a layer; between layers; between kinds
RANK_LEFT, RANK_TOP, RANK_PITCH = 58, 92, 30  # px: beside and above the first rank, from rank to rank


def who_holds(p: int = 4, layers: int = 3) -> VBox:
    """Choose a stage, step through a training step, and see what each rank holds of every layer."""
    steps = {name: moments(stage, p, layers) for stage, name in enumerate(STAGES)}
    return explore(lambda stage, step: holdings(steps[stage], step), menus=["stage"], start={"stage": STAGES[3]},
                   stage=list(STAGES), step=lambda stage: {f"{i} of {len(steps[stage]) - 1}": i
                                                           for i in range(len(steps[stage]))})


def holdings(steps: Sequence[Moment], step: int) -> Picture:
    """What every rank holds after one step: a row a rank; of each layer a cell for each part."""
    return _Holdings(steps, step)


class _Holdings(Picture):
    css = STYLE + (".mls .room{fill:none;stroke:var(--rule)}.mls .own{fill-opacity:.45;stroke-dasharray:2 2}"
                   ".mls .old{fill:var(--quiet);stroke:var(--quiet-edge)}.mls .fresh{stroke-width:2}")
    sizes = {"parameters": 2, "gradients": 2, "optimizer": 12}

    def __init__(self, steps: Sequence[Moment], step: int):
        moment = steps[step]
        ranks, layers = len(moment.held["parameters"]), len(moment.held["parameters"][0])
        self.layer = ranks * CELL + SPACE
        self.kind = layers * self.layer + GROUP - SPACE
        most = max(one.bytes(0, self.sizes) for one in steps)
        now = moment.bytes(0, self.sizes)
        held = f"rank 0 holds {now:.3g} bytes a parameter; the most in this step is {most:.3g}"
        width = max(RANK_LEFT + 3 * self.kind, 640)
        super().__init__(width, RANK_TOP + ranks * RANK_PITCH + 46, moment.title, f"{moment.words} {held}.")
        self.text(0, 14, moment.title, "bold")
        self.text(0, 33, moment.words)
        for kind in KINDS:
            self.text(self.x(kind, 0, 0), RANK_TOP - 25, NAMES[kind], "bold small")
            for layer in range(layers):
                middle = self.x(kind, layer, 0) + (self.layer - SPACE) / 2
                self.text(middle, RANK_TOP - 8, f"layer {layer}", "soft small mid")
        for rank in range(ranks):
            self.rank(rank, moment, steps[step - 1] if step else moment)
        bottom = RANK_TOP + ranks * RANK_PITCH
        self.text(RANK_LEFT, bottom + 14, held, "soft small")
        self.legend(bottom + 36)

    def x(self, kind: str, layer: int, part: int) -> float:
        return RANK_LEFT + list(KINDS).index(kind) * self.kind + layer * self.layer + part * CELL

    def rank(self, rank: int, moment: Moment, before: Moment) -> None:
        y = RANK_TOP + rank * RANK_PITCH
        self.text(RANK_LEFT - 9, y + 14, f"rank {rank}", "end")
        for kind, colour in KINDS.items():
            for layer, parts in enumerate(moment.held[kind][rank]):
                width = len(parts) * CELL
                self.rect(self.x(kind, layer, 0), y, width, 20, "room", round=0)
                for first, last, what, new in runs(parts, before.held[kind][rank][layer]):
                    look = {OWN: f"{colour} own", VALID: colour, OLD: "old", UPDATED: colour}[what]
                    self.rect(self.x(kind, layer, first), y, (last - first) * CELL, 20, look + " fresh" * new, round=0)

    def legend(self, y: float) -> None:
        x = float(RANK_LEFT)
        for classes, name in (("mark own", "this rank's own gradient"), ("mark", "the sum of all ranks"),
                              ("old", "out of date"), ("send fresh", "new in this step")):
            self.rect(x, y - 10, 14, 11, classes, round=0)
            self.text(x + 19, y, name, "soft small")
            x += 40 + 6 * len(name)


def runs(parts: Sequence[int], before: Sequence[int]) -> list[tuple[int, int, int, bool]]:
    """Parts that are held, as (first, after the last, what, whether it is new) of each unbroken row of equal ones."""
    found: list[tuple[int, int, int, bool]] = []
    for i, (what, was) in enumerate(zip(parts, before, strict=True)):
        if what == NOTHING:
            continue
        new = what == UPDATED or what != OLD and what != was != UPDATED
        if found and found[-1][1:] == (i, what, new):
            found[-1] = (found[-1][0], i + 1, what, new)
        else:
            found.append((i, i + 1, what, new))
    return found


# -- memory over time -------------------------------------------------------------------------------------------------

PLOT_LEFT, PLOT_RIGHT, PLOT_TOP, PLOT_BOTTOM = 56, 96, 30, 42  # px round the plot
PLOT_WIDTH, PLOT_HEIGHT = 640, 260  # px


def held_over_time(trace: Trace, rank: int = 0) -> list[tuple[float, int]]:
    """(seconds, bytes held from then on) on one rank, from its "alloc" and "free" events."""
    held, steps = 0, []
    events = [event for event in trace.of(rank) if event.kind in ("alloc", "free")]
    for event in sorted(events, key=lambda event: event.start):
        held += event.bytes if event.kind == "alloc" else -event.bytes
        steps.append((event.start, held))
    return steps


def after(trace: Trace, seconds: float) -> Trace:
    """What has begun from `seconds` on, its time counted from there."""
    late = Trace(size=trace.size)
    late.extend((event for event in trace if event.start >= seconds), shift=-seconds)
    return late


def memory_over_time(traces: Mapping[str, Trace], title: str, rank: int = 0) -> Picture:
    """The bytes of model states that a rank holds while training goes on, one curve a run."""
    if not traces or not all(held_over_time(trace, rank) for trace in traces.values()):
        raise ValueError('memory_over_time needs at least one trace, and "alloc" events of this rank in each')
    return _MemoryOverTime(traces, title, rank)


class _MemoryOverTime(Picture):
    css = CURVES

    def __init__(self, traces: Mapping[str, Trace], title: str, rank: int):
        curves = {name: held_over_time(trace, rank) for name, trace in traces.items()}
        peaks = "; ".join(f"{name}: at most {max(held for _, held in curve):,} bytes" for name, curve in curves.items())
        super().__init__(PLOT_WIDTH, PLOT_HEIGHT, title, peaks)
        self.span = max(trace.time for trace in traces.values())
        self.most = 1.08 * max(held for curve in curves.values() for _, held in curve)
        self.text(PLOT_LEFT, 14, title, "bold")
        self._axes()
        last = -20.0
        ends = sorted((self.y(curve[-1][1]), look, name) for look, (name, curve) in enumerate(curves.items()))
        for look, curve in enumerate(curves.values()):
            self._add("path", f"curve c{look}", d=self._stairs(curve))
        for y, look, name in ends:
            last = max(y, last + 15)
            self.text(self.width - PLOT_RIGHT + 8, last + 4, name, f"p{look}")

    def x(self, seconds: float) -> float:
        return PLOT_LEFT + (self.width - PLOT_LEFT - PLOT_RIGHT) * seconds / self.span

    def y(self, nbytes: float) -> float:
        return self.height - PLOT_BOTTOM - (self.height - PLOT_TOP - PLOT_BOTTOM) * nbytes / self.most

    def _stairs(self, curve: Sequence[tuple[float, int]]) -> str:
        """Level until the next change, to the end of all runs."""
        d = f"M{number(self.x(0))} {number(self.y(0))}"
        for seconds, held in curve:
            d += f"H{number(self.x(seconds))}V{number(self.y(held))}"
        return d + f"H{number(self.x(self.span))}"

    def _axes(self) -> None:
        bottom, right = self.height - PLOT_BOTTOM, self.width - PLOT_RIGHT
        unit, name = unit_of(self.span)
        for tick in ticks(self.span / unit, 8):
            self.line(self.x(tick * unit), PLOT_TOP, self.x(tick * unit), bottom, "grid")
            self.text(self.x(tick * unit), bottom + 16, f"{tick:g}", "soft small mid")
        for tick in ticks(self.most, 5):
            self.line(PLOT_LEFT, self.y(tick), right, self.y(tick), "grid")
            self.text(PLOT_LEFT - 7, self.y(tick) + 4, size_of(tick), "soft small end")
        self.text((PLOT_LEFT + right) / 2, bottom + 36, f"time in {name}", "soft mid")
