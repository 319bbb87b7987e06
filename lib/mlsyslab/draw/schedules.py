"""A widget with which readers try schedules: any of them, for any number of ranks and microbatches and any F : I : W."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ipywidgets import VBox

from mlsyslab.draw.collectives import Markdown
from mlsyslab.draw.picture import Picture
from mlsyslab.draw.pipeline import timetable
from mlsyslab.draw.widgets import explore
from mlsyslab.pipeline import Timeline, names, schedule, simulate

#: F, I, W in units of a forward: the usual case, and a backward that costs no more than a forward.
RATIOS = {"1 : 1 : 1": (1.0, 1.0, 1.0), "1 : ½ : ½": (1.0, 0.5, 0.5)}


def schedules(names: Sequence[str] = ("GPipe", "1F1B", "interleaved", "ZB-H1", "ZB-V"), ranks: Sequence[int] = (2, 4),
              microbatches: Sequence[int] = (2, 4, 8), chunks: Sequence[int] = (2,),
              ratios: Mapping[str, tuple[float, float, float]] = RATIOS) -> VBox:
    """Choose a schedule, p, m, v (of those that have chunks) and F : I : W, and see its timetable and memory.

    Every rank has the same work whatever the schedule: where it holds v chunks, each takes a v-th of the time. Pictures of
    one p, m and ratio share their clock, so that schedules can be compared by switching between them.
    """
    runs: dict[tuple, Timeline] = {}

    def run(name: str, p: int, m: int, ratio: tuple[float, float, float]) -> Timeline:
        key = name, p, m, ratio
        if key not in runs:
            base, _, v = name.partition(" v=")
            made = schedule(base, p, m, int(v) if v else None)
            F, I, W = (seconds * p / made.stages for seconds in ratio)
            runs[key] = simulate(made, F=F, I=I, W=W)
        return runs[key]

    chosen = [option for name in names
              for option in ([f"{name} v={v}" for v in chunks] if name in ("interleaved", "looped BFS") else [name])]

    def frame(schedule: str, ratio: tuple[float, float, float], p: int, m: int) -> Picture:
        until = max(run(name, p, m, ratio).time for name in chosen)
        return timetable(run(schedule, p, m, ratio), f"{schedule}, p={p}, m={m}", until=until, unit="forwards")

    return explore(frame, menus=("schedule", "ratio"), schedule=chosen, ratio=dict(ratios), p=list(ranks),
                   m=list(microbatches), start={"p": ranks[-1], "m": microbatches[-1]})


# -- what they all cost -----------------------------------------------------------------------------------------------

#: Of each schedule: the closed form of its bubble or idle time, and where that holds.
FORMS = {
    "device placement": (r"$1 - \frac1p$", "always"),
    "GPipe": (r"$\frac{p-1}{m+p-1}$", "always"),
    "1F1B": (r"$\frac{p-1}{m+p-1}$", "always"),
    "interleaved": (r"$\frac{p-1}{vm+p-1}$", r"$m \ge p$"),
    "looped BFS": (r"$\frac{p-1}{vm+p-1}$", r"$m \ge p$"),
    "TeraPipe": (r"$\frac{p-1}{Km+p-1}$", "slices of equal time"),
    "Chimera": (r"$\frac{p-2}{\frac32 m+p-2}$", r"$B = 2F$, $m = p$"),
    "ZB-H1": (r"idle $(p-1)(F+I-W)$", r"$W \le F, I$; $m \ge p$"),
    "ZB-H2": (r"idle in span $(p-1)(F+I-2W)$", r"$W \le F, I$; $m \ge 2p-1$"),
    "ZB-V": ("0 in span", r"$F = I = W$, $m \ge 2p-1$"),
    "DualPipe": (r"idle $(\frac p2-1)(F\&B+B-3W)$", r"$F = I = W$, even $m \ge 2p$"),
    "DualPipeV": (r"idle $\frac{p-1}{2}(F\&B+B-3W)$", r"$F = I = W$, $m \ge 2p$"),
}
#: Of asynchronous schedules: how many updates late the weights of a gradient are, on rank r.
STALENESS = {"AMPNet": "mixed", "PipeMare": r"$2(p-r)-1$", "PipeDream": r"$p-1-r$", "PipeDream-2BW": "1"}


def cost_table(p: int, m: int) -> Markdown:
    """Every schedule that trains on p ranks with m microbatches, F = I = W: what its bubble is, and what it keeps.

    Activations are counted in microbatches of a p-th of the model, weights in p-ths of the model, both on the rank that
    keeps most.
    """
    lines = [f"| $p = {p}$, $m = {m}$ | bubble | in span | formula | holds for | activations | weights | staleness |",
             "|---|--:|--:|---|---|--:|--:|---|"]
    for name in names():
        if name == "inference":
            continue
        made = schedule(name, p, m)
        share = p / made.stages / max(1, len(made.slices))  # of a p-th of the model (and of a sequence), in one action
        run = simulate(made, F=share, I=share, W=share)
        formula, where = FORMS.get(name, (r"$\to 0$", "a long training"))
        copies = len(made.placement[0]) * max(run.weight_versions)
        lines.append(f"| {name} | {run.bubble:.1%} | {run.span_bubble:.1%} | {formula} | {where} "
                     f"| {max(run.peak_activations) * share:g} | {copies} | {STALENESS.get(name, '0')} |")
    return Markdown("\n".join(lines))
