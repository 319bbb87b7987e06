"""The pictures of the chapter on memory: what is held over time, what a GPT needs, which activations a checkpoint keeps."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from ipywidgets import VBox

from mlsyslab.draw.actions import IDLE
from mlsyslab.draw.clocks import Cell, Group, Lane, Lanes
from mlsyslab.draw.picture import STYLE, Picture, number
from mlsyslab.draw.timeline import ticks
from mlsyslab.draw.widgets import explore
from mlsyslab.memory import Timeline, best_spacing, recipe, saved, saved_total, training
from mlsyslab.model import Config, parameters, published

#: Kinds of memory from the longest-lived to the shortest-lived, with the colour of each.
KINDS = {"weights": "send", "optimizer": "compute", "gradients": "mark", "activations": "combine", "workspace": "quiet"}
NAMES = {"weights": "weights", "optimizer": "optimizer's state", "gradients": "gradients", "activations": "activations",
         "workspace": "workspace"}
CSS = STYLE + (".mls path.area{stroke-width:.6}.mls .limit{stroke:var(--ink);stroke-width:1.4;stroke-dasharray:5 3}"
               ".mls path.found{stroke:var(--ink);stroke-width:1.6;fill:none}"
               ".mls path.room{stroke:var(--rule);stroke-width:.7;fill:none}")


def size_of(nbytes: float) -> str:
    """Bytes in decimal units, three digits: 31.4 GB."""
    for power, unit in ((12, "TB"), (9, "GB"), (6, "MB"), (3, "kB")):
        if nbytes >= 10**power:
            scaled = nbytes / 10**power
            return f"{scaled:.0f} {unit}" if scaled >= 100 else f"{scaled:.3g} {unit}"
    return f"{nbytes:.0f} B"


def legend(picture: Picture, y: float, x: float, kinds: Iterable[str] = KINDS) -> None:
    """A sample of each kind, with its name."""
    for kind in kinds:
        picture.rect(x, y - 10, 14, 11, KINDS[kind], round=0)
        picture.text(x + 19, y, NAMES[kind], "soft small")
        x += 38 + 5.8 * len(NAMES[kind])


# -- over time --------------------------------------------------------------------------------------------------------

LEFT, RIGHT, HEAD, PLOT, FOOT = 58, 16, 24, 130, 34  # px: beside, above, inside and below a plot
WIDTH = 660  # px


def over_time(runs: Mapping[str, Timeline], found: Mapping[str, tuple[Sequence[int], Sequence[int]]] | None = None, *,
              same_scale: bool = True) -> Picture:
    """What each of `runs` holds in each of its phases: areas by kind, one above the other.

    found: bytes that were measured after each operator of forward, and of backward, by the name of the run; drawn as a line
    which is right in height and only roughly so in time, since an operator isn't a phase.
    same_scale: whether all plots share the scale of the highest.
    """
    if not runs:
        raise ValueError("over_time got no runs: give it at least one timeline by name")
    return _OverTime(runs, found or {}, same_scale)


class _OverTime(Picture):
    css = CSS

    def __init__(self, runs: Mapping[str, Timeline], found: Mapping[str, tuple[Sequence[int], Sequence[int]]],
                 same_scale: bool):
        words = " ".join(f"{name}: at most {size_of(run.peak)}, in phase {run.peak_phase}." for name, run in runs.items())
        one = HEAD + PLOT + FOOT
        super().__init__(WIDTH, one * len(runs) + 22, "Memory over time", words)
        most = max(run.peak for run in runs.values())
        for i, (name, run) in enumerate(runs.items()):
            self._run(i * one + HEAD, name, run, found.get(name), most if same_scale else run.peak)
        used = [kind for kind in KINDS if any(b.kind == kind for run in runs.values() for b in run.buffers)]
        legend(self, self.height - 6, LEFT, used)

    def _run(self, top: float, name: str, run: Timeline, found: tuple[Sequence[int], Sequence[int]] | None,
             most: float) -> None:
        bottom, scale = top + PLOT, PLOT / (1.04 * most)
        wide = (WIDTH - LEFT - RIGHT) / len(run.phases)
        self.text(LEFT, top - 9, name, "bold")
        self.text(WIDTH - RIGHT, top - 9, f"at most {size_of(run.peak)} ({run.peak_phase})", "end small")
        unit = next(u for u in (1e12, 1e9, 1e6, 1e3, 1) if most >= u)
        for tick in ticks(most / unit, 5):
            y = bottom - tick * unit * scale
            self.line(LEFT, y, WIDTH - RIGHT, y, "rule")
            self.text(LEFT - 6, y + 4, size_of(tick * unit) if tick else "0", "soft small end")
        held = [run.at(phase) for phase in range(len(run.phases))]
        floor = [0.0] * len(held)
        for kind, colour in KINDS.items():
            roof = [base + at[kind] for base, at in zip(floor, held, strict=True)]
            if roof != floor:
                self._area([bottom - y * scale for y in floor], [bottom - y * scale for y in roof], wide, colour)
            floor = roof
        if found:
            turn, update = run.phases.index("loss") + 1, run.phases.index("update")
            there = [(LEFT + wide * (first + (i + 0.5) * (last - first) / len(part)), nbytes)
                     for part, first, last in zip(found, (0, turn), (turn, update), strict=True)
                     for i, nbytes in enumerate(part)]
            d = "L".join(f"{number(x)} {number(bottom - nbytes * scale)}" for x, nbytes in there)
            self._add("path", "found", d=f"M{d}")
        self._phases(run, bottom, wide)

    def _area(self, floor: Sequence[float], roof: Sequence[float], wide: float, colour: str) -> None:
        """Between two staircases."""
        there = "".join(f"{'L' if i else 'M'}{number(LEFT + wide * i)} {number(y)}H{number(LEFT + wide * (i + 1))}"
                        for i, y in enumerate(roof))
        back = "".join(f"L{number(LEFT + wide * (i + 1))} {number(floor[i])}H{number(LEFT + wide * i)}"
                       for i in reversed(range(len(floor))))
        self._add("path", f"area {colour}", d=f"{there}{back}Z")

    def _phases(self, run: Timeline, bottom: float, wide: float) -> None:
        """A stroke under each stretch of phases of one sort, with its name."""
        for name, first, last in stretches(run.phases):
            left, right = LEFT + wide * first, LEFT + wide * (last + 1)
            self.line(left + 1, bottom + 5, right - 1, bottom + 5)
            if right - left > 6 * len(name):
                self.text((left + right) / 2, bottom + 18, name, "soft small mid")


def stretches(phases: Sequence[str]) -> list[tuple[str, int, int]]:
    """(name, first, last) of the stretches that the phases of a step fall into."""
    def sort(phase: str) -> str:
        if phase.startswith("block"):
            return "blocks " + phase.split()[2] if len(phase.split()) > 2 else "blocks"
        return {"update": "update"}.get(phase, "loss" if "log" in phase or "loss" in phase else "embed")

    found: list[tuple[str, int, int]] = []
    for i, phase in enumerate(phases):
        if found and found[-1][0] == sort(phase):
            found[-1] = (found[-1][0], found[-1][1], i)
        else:
            found.append((sort(phase), i, i))
    return found


# -- what a GPT needs -------------------------------------------------------------------------------------------------

MODELS = {"GPT-2 XL, 1.6 billion": "gpt2-xl", "GPT-3, 6.7 billion": "gpt3-6.7b", "LLaMA 3, 8 billion": "llama3-8b",
          "LLaMA 2, 70 billion": "llama2-70b", "GPT-3, 175 billion": "gpt3-175b", "Megatron, 1 trillion": "megatron-1008b"}
PRECISIONS = {"mixed (16 and 32 bits)": "mixed", "32 bits": "fp32"}
DEVICE = 80e9  # bytes of the device that a bar is measured by
SPARE = 0.06  # share of it that isn't the program's: context, libraries, fragments

BAR, PITCH, BARS_LEFT, BARS_RIGHT, BARS_TOP = 24, 37, 136, 24, 46  # px


@dataclass(frozen=True)
class Way:
    """How activations are dealt with.  spacing: with "full", blocks from checkpoint to checkpoint (0: the best)."""

    name: str
    core: str = "written"
    recompute: str | None = None
    spacing: int = 1


WAYS = (Way("all kept"), Way("core recomputed", recompute="selective"), Way("fused attention", "fused"),
        Way("blocks recomputed", "fused", "full"), Way("best spacing", "fused", "full", 0))


def needs(config: Config, batch: int, sequence: int, precision: str, way: Way,
          ranks: int = 1) -> tuple[dict[str, float], int]:
    """Bytes of each kind on one rank at the peak of a training step, and the spacing of checkpoints (0: none).

    batch: sequences on this rank.  ranks: over which weights, gradients and the optimizer's state are sharded (ZeRO stage 3,
    by the block); what a block's weights and their gradient take while it is at work is counted as workspace.
    """
    k = 0
    if way.recompute == "full":
        k = way.spacing or spacing(config, batch, sequence, precision)
    run = training(config, batch, sequence, precision=precision, core=way.core, recompute=way.recompute, every=k or 1,
                   device="cuda")
    whole = recipe(precision).weight + recipe(precision).gradient
    gathered = 0 if ranks == 1 else parameters(config) / config.layers * whole
    return max((_on_rank(held, ranks, gathered) for held in levels(run)), key=lambda held: sum(held.values())), k


def spacing(config: Config, batch: int, sequence: int, precision: str) -> int:
    """The best number of blocks from checkpoint to checkpoint, with fused attention."""
    dtype = torch.float32 if precision == "fp32" else torch.bfloat16
    kept = saved(config, batch, sequence, dtype=dtype, core="fused", device="cuda")
    inside = saved_total([one for one in kept if one.part not in ("embedding", "output")]) / config.layers
    return best_spacing(config.layers, batch * sequence * config.hidden * dtype.itemsize, inside)


def _on_rank(held: Mapping[str, int], ranks: int, gathered: float) -> dict[str, float]:
    sharded = ("weights", "gradients", "optimizer")
    on_rank = {kind: held[kind] / ranks if kind in sharded else float(held[kind]) for kind in KINDS}
    on_rank["workspace"] += gathered
    return on_rank


def levels(run: Timeline) -> list[dict[str, int]]:
    """`run.at(phase)` for every phase, in one pass over the buffers."""
    change = {kind: [0] * (len(run.phases) + 1) for kind in KINDS}
    for buffer in run.buffers:
        change[buffer.kind][buffer.start] += buffer.bytes
        change[buffer.kind][buffer.end + 1] -= buffer.bytes
    held, found = dict.fromkeys(KINDS, 0), []
    for phase in range(len(run.phases)):
        for kind in KINDS:
            held[kind] += change[kind][phase]
        found.append(dict(held))
    return found


def gpt_memory(models: Sequence[str] = tuple(MODELS), sequences: Sequence[int] = (2048, 8192),
               batches: Sequence[int] = (1, 4, 16), ranks: Sequence[int] = (1, 8, 64, 512)) -> VBox:
    """A widget: what a GPT needs on each rank, by model, precision, sequence, batch, ranks, and treatment of activations."""
    return explore(lambda model, precision, sequence, batch, ranks: needs_of(model, precision, sequence, batch, ranks),
                   menus=["model", "precision"], start={"model": "LLaMA 3, 8 billion", "sequence": 2048, "batch": 4},
                   model=list(models), precision=list(PRECISIONS), sequence={f"{s:,}": s for s in sequences},
                   batch=list(batches), ranks=list(ranks))


def needs_of(model: str, precision: str, sequence: int, batch: int, ranks: int) -> Picture:
    """The frame of `gpt_memory`: a bar for each way to deal with activations."""
    config = published(MODELS[model]).config
    config = replace(config, sequence=max(sequence, config.sequence))  # as if it had been made for so many tokens
    bars = {}
    for way in WAYS:
        held, k = needs(config, batch, sequence, PRECISIONS[precision], way, ranks)
        bars[way.name if way.spacing else f"{way.name}, k = {k}"] = held
    per = "on one rank" if ranks == 1 else f"on each of {ranks} ranks, model states sharded"
    return _Bars(bars, f"{model}: {batch} × {sequence:,} tokens, {per}")


def nth(k: int) -> str:
    return f"{k}{ {1: 'st', 2: 'nd', 3: 'rd'}.get(k if k < 20 else k % 10, 'th')}"


class _Bars(Picture):
    css = CSS

    def __init__(self, bars: Mapping[str, Mapping[str, float]], title: str):
        totals = {name: sum(held.values()) for name, held in bars.items()}
        words = "; ".join(f"{name}: {size_of(total)}" for name, total in totals.items())
        super().__init__(WIDTH, BARS_TOP + PITCH * len(bars) + 26, title, words)
        self.scale = (WIDTH - BARS_LEFT - BARS_RIGHT) / max(totals.values())
        self.text(0, 14, title, "bold")
        for i, (name, held) in enumerate(bars.items()):
            self._bar(BARS_TOP + PITCH * i, name, held, totals[name])
        x = BARS_LEFT + DEVICE * self.scale
        if x <= WIDTH - BARS_RIGHT + 1:
            self.line(x, BARS_TOP - 8, x, BARS_TOP + PITCH * len(bars) - 6, "limit")
            self.text(x, BARS_TOP - 12, f"{DEVICE / 1e9:g} GB", "soft small" + (" mid" if x > BARS_LEFT + 20 else ""))
        legend(self, self.height - 6, BARS_LEFT - 40)

    def _bar(self, y: float, name: str, held: Mapping[str, float], total: float) -> None:
        fits = "fits" if total <= DEVICE * (1 - SPARE) else "too much"
        self.text(BARS_LEFT - 8, y + 9, name, "end")  # the sum beside it, in sight on a phone whatever the bar's length
        self.text(BARS_LEFT - 8, y + 24, f"{size_of(total)}, {fits}", "bold small end")
        x = float(BARS_LEFT)
        for kind, colour in KINDS.items():
            wide = held[kind] * self.scale
            if wide > 0.15:
                self._add("rect", colour, x=x, y=y, width=wide, height=BAR)
            if wide > 54:
                self.text(x + wide / 2, y + 16, size_of(held[kind]), "small mid")
            x += wide


# -- checkpoints ------------------------------------------------------------------------------------------------------

CELL_WIDE, CELL_HIGH, GRID_LEFT, GRID_TOP = 17, 13, 62, 40  # px


@dataclass(frozen=True)
class Kept:
    """What is held of block `block` in phases first … last: its "input" (a checkpoint), or all of its "inside"."""

    block: int
    what: str
    first: int
    last: int


def kept(L: int, k: int) -> list[Kept]:
    """Lifetimes of activations of L blocks, forward in phases 0 … L-1 and backward in L … 2L-1, checkpointed every k.

    k = 0: all blocks keep their inside from forward to backward.
    """
    def back(block: int) -> int:
        return 2 * L - 1 - block

    if not k:
        return [Kept(block, "inside", block, back(block)) for block in range(L)]
    found = [Kept(block, "input", block, back(block)) for block in range(0, L, k)]
    for block in range(L):
        end_of_segment = min(block - block % k + k, L) - 1
        found.append(Kept(block, "inside", back(end_of_segment), back(block)))
    return found


def checkpoints(L: int = 16, inside: float = 1.0) -> VBox:
    """A widget: which of L blocks' activations are held when, for each spacing of checkpoints.

    inside: how much a block keeps inside, in units of its input.
    """
    most = max(_held(kept(L, 0), L, inside))
    spacings = {"none": 0} | {f"every {nth(k)} block" if k > 1 else "every block": k for k in range(1, L + 1)}
    return explore(lambda checkpoints: _Grid(kept(L, checkpoints), L, checkpoints, inside, most),
                   start={"checkpoints": round(math.sqrt(L / inside))}, checkpoints=spacings)


def _held(of: Sequence[Kept], L: int, inside: float) -> list[float]:
    """Units held in each phase."""
    size = {"input": 1.0, "inside": inside}
    return [sum(size[one.what] for one in of if one.first <= phase <= one.last) for phase in range(2 * L)]


class _Grid(Picture):
    css = CSS + (".mls path.inside{stroke:var(--combine-edge);stroke-width:9}"
                 ".mls path.input{stroke:var(--send-edge);stroke-width:3}")

    def __init__(self, of: Sequence[Kept], L: int, k: int, inside: float, most: float):
        held = _held(of, L, inside)
        peak = max(held)
        again = L if k else 0
        title = f"{L} blocks, " + (f"{math.ceil(L / k)} checkpoint{'s' if k < L else ''}" if k else "no checkpoints")
        said = f"at most {peak:g} held, {again} forwards of a block computed again"
        bottom = GRID_TOP + CELL_HIGH * L
        super().__init__(GRID_LEFT + CELL_WIDE * 2 * L + 22, bottom + 118, title, f"{title}: {said}.")
        self.text(0, 14, title, "bold")
        self.text(self.width - 4, 14, said, "end small")
        for words, phase in (("forward", L / 2), ("backward", 1.5 * L)):
            self.text(GRID_LEFT + CELL_WIDE * phase, GRID_TOP - 8, words, "soft small mid")
        self.line(GRID_LEFT + CELL_WIDE * L, GRID_TOP - 16, GRID_LEFT + CELL_WIDE * L, bottom + 80, "rule")
        for block in range(0, L, 5 if L > 10 else 1):
            self.text(GRID_LEFT - 8, self._y(block) + 4, f"block {block + 1}", "soft small end")
        for what in ("inside", "input"):
            d = "".join(f"M{number(GRID_LEFT + CELL_WIDE * one.first + 1)} {number(self._y(one.block))}"
                        f"H{number(GRID_LEFT + CELL_WIDE * (one.last + 1) - 1)}" for one in of if one.what == what)
            if d:
                self._add("path", what, d=d)
        self._sum(held, bottom + 80, 66 / most)
        self.text(GRID_LEFT, bottom + 110, "wide: all that a block keeps inside · narrow: a block's input, the checkpoint · "
                                           "below: how much is held", "soft small")

    def _y(self, block: int) -> float:
        return GRID_TOP + CELL_HIGH * (block + 0.5)

    def _sum(self, held: Sequence[float], bottom: float, scale: float) -> None:
        d = "".join(f"V{number(bottom - units * scale)}h{CELL_WIDE}" for units in held)
        self._add("path", "area combine", d=f"M{GRID_LEFT} {number(bottom)}{d}V{number(bottom)}Z")
        self.text(GRID_LEFT - 8, bottom - max(held) * scale + 4, f"{max(held):g}", "small end")
        self.text(GRID_LEFT - 8, bottom + 4, "0", "soft small end")


# -- swapping ---------------------------------------------------------------------------------------------------------


def swapping(copies: Mapping[str, float], L: int = 8, room: int = 3) -> Picture:
    """What a device computes and copies when it swaps, a group of lanes for each way.

    copies: by name, how long it takes to copy what a block keeps, in forwards of a block.
    room: blocks' activations that the device has room for.
    """
    runs = {name: swapped(copy, L, room) for name, copy in copies.items()}
    until = max(lane.cells[-1].end for lanes in runs.values() for lane in lanes)
    groups = []
    for name, lanes in runs.items():
        end = max(lane.cells[-1].end for lane in lanes)
        groups.append(Group(name, f"{end:.3g} forwards; {end / (3 * L) - 1:.0%} slower", lanes, end))
    legend = [((("under sample", "m0 -4.5h15"), (f"cell sample {look}0", "m.5 -4.5h14")), words)
              for look, words in (("F", "forward"), ("B", "backward"), ("I", "to the host"), ("W", "from the host"))]
    return Lanes(groups, "Swapping beside computation", until=until, unit="forwards of a block", legend=[*legend, IDLE])


def swapped(copy: float, L: int, room: int) -> list[Lane]:
    """The lanes of one step: blocks of forward 1 and backward 2, each of whose activations leave and come back.

    A block goes forward when one of the last `room` has left, and comes back when a block that came before it is done.
    """
    forward, out, now, port = [], [], 0.0, 0.0
    for block in range(L):
        start = max(now, out[block - room].end if block >= room else 0.0)
        now = start + 1
        forward.append(Cell(start, now, str(block + 1)))
        if block < L - room:  # the last ones stay
            port = max(port, now) + copy
            out.append(Cell(port - copy, port, str(block + 1), "I"))
        else:
            out.append(Cell(now, now, ""))
    backward, back = [], []
    done = {}
    for block in reversed(range(L)):
        start = now
        if block < L - room:
            free = done[block + room]
            port = max(port, free) + copy
            back.append(Cell(port - copy, port, str(block + 1), "W"))
            start = max(now, port)
        now = done[block] = start + 2
        backward.append(Cell(start, now, str(block + 1), "B"))
    return [Lane("computes", forward + backward), Lane("copies", [cell for cell in out if cell.name] + back)]


# -- number formats ---------------------------------------------------------------------------------------------------

#: Bits of sign, exponent and fraction.
FORMATS = {"float32": (1, 8, 23), "float16": (1, 5, 10), "bfloat16": (1, 8, 7)}


def formats() -> Picture:
    """The bits of the number formats of training, and what they reach."""
    return _Formats()


class _Formats(Picture):
    css = STYLE
    BIT, ROW = 12.5, 46  # px

    def __init__(self):
        rows = []
        for name in FORMATS:
            info = torch.finfo(getattr(torch, name))
            rows.append((name, f"{info.smallest_normal * info.eps:.1e} to {info.max:.1e}, steps of {info.eps:.1e}"))
        super().__init__(WIDTH, 12 + self.ROW * len(rows) + 22, "Number formats",
                         "; ".join(f"{name}: {'+'.join(map(str, FORMATS[name]))} bits, {reach}" for name, reach in rows))
        for i, (name, reach) in enumerate(rows):
            self._row(12 + self.ROW * i, name, reach)
        x = 76.0
        for words, colour in (("sign", "quiet"), ("exponent: the range", "send"), ("fraction: the step", "combine")):
            self.rect(x, self.height - 16, 14, 11, colour, round=0)
            self.text(x + 19, self.height - 6, words, "soft small")
            x += 40 + 5.8 * len(words)

    def _row(self, y: float, name: str, reach: str) -> None:
        self.text(68, y + 14, name, "end")
        x = 76.0
        for bits, colour in zip(FORMATS[name], ("quiet", "send", "combine"), strict=True):
            self.rect(x, y, bits * self.BIT, 19, colour, round=0)
            if bits > 1:
                self.text(x + bits * self.BIT / 2, y + 14, str(bits), "small mid")
            x += bits * self.BIT
        self.text(76, y + 33, reach, "soft small")
