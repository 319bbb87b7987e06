"""Schedules beside one another: a widget with which readers try them, and a table of what each costs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ipywidgets import HTML, VBox

from mlsyslab.draw.actions import legend
from mlsyslab.draw.collectives import Markdown
from mlsyslab.draw.picture import Picture
from mlsyslab.draw.pipeline import LEFT, PEAK, RIGHT, timetable
from mlsyslab.draw.widgets import explore
from mlsyslab.pipeline import Timeline, schedule, simulate
from mlsyslab.pipeline import names as all_names

ACROSS = 600  # px that a timetable should have between its margins

#: F, I, W in units of a forward: the usual case; weight gradients that cost less, as in attention, which has no weights
#: in its larger products; and a backward that costs no more than a forward.
RATIOS = {"1 : 1 : 1": (1.0, 1.0, 1.0), "1 : 1 : ½": (1.0, 1.0, 0.5), "1 : ½ : ½": (1.0, 0.5, 0.5)}
#: Those that can be tried, with the chunks of a rank where there is a choice.
TRIED = ("device placement", "GPipe", "1F1B", "interleaved v=2", "interleaved v=4", "looped BFS v=2", "TeraPipe K=2",
         "Chimera", "ZB-H1", "ZB-H2", "ZB-V", "DualPipe", "DualPipeV", "AMPNet", "PipeMare", "PipeDream", "PipeDream-2BW")
OPTIONS = {"v": "chunks", "K": "slices"}


def schedules(names: Sequence[str] = TRIED, ranks: Sequence[int] = (2, 4, 6), microbatches: Sequence[int] = (4, 8, 12),
              ratios: Mapping[str, tuple[float, float, float]] = RATIOS, start: Mapping[str, Any] | None = None) -> VBox:
    """Choose a schedule or two, p, m and F : I : W, and see their timetables and memory.

    names: of schedules, with v chunks or K slices where they have them: "interleaved v=2".  start: what is seen at first,
    of ratio, p, m, schedule and beside.
    Every rank has the same work whatever the schedule: where it holds v chunks, each takes a v-th of the time. Pictures of
    one p, m and ratio share their clock, so that schedules can be compared.
    """

    def frame(ratio: tuple[float, float, float], p: int, m: int, schedule: str) -> Picture:
        # 1F1B takes longest, but for AMPNet and for device placement, which has a clock of its own
        until = (m + p) * sum(ratio)
        run = balanced(schedule, p, m, ratio)
        scale = 8 * max(2, int(ACROSS / until / 8))  # px a forward: in whole numbers, which take few characters
        if run.time > until:
            until, scale = run.time, scale * until / run.time
        return timetable(run, f"{schedule}, p={p}, m={m}", until=until, width=LEFT + until * scale + RIGHT + PEAK,
                         unit="forwards", plain=True)

    tried = explore(frame, menus=("ratio", "schedule"), beside="and below it", start=start, ratio=dict(ratios),
                    p=list(ranks), m=list(microbatches), schedule=list(names))
    return VBox([tried, HTML(f'<div class="mls-figure">{legend().svg(style=False)}</div>')])


def balanced(name: str, p: int, m: int, ratio: tuple[float, float, float] = (1.0, 1.0, 1.0)) -> Timeline:
    """The simulated timeline of a schedule that is given with its options, as "interleaved v=2".

    ratio: F, I, W of a p-th of the model and a whole microbatch: what a rank does is the same in all schedules.
    """
    base, _, option = name.rpartition(" ") if "=" in name else (name, "", "")
    letter, _, count = option.partition("=")
    made = schedule(base, p, m, **({OPTIONS[letter]: int(count)} if count else {}))
    share = p / made.stages / max(1, len(made.slices))
    F, I, W = (seconds * share for seconds in ratio)
    return simulate(made, F=F, I=I, W=W)


# -- what they all cost -----------------------------------------------------------------------------------------------

#: The closed forms of bubbles and idle times: of which schedule, the form, and where it holds.
FORMS = (
    ("device placement", r"bubble $1 - \frac1p$", "always"),
    ("inference, GPipe, 1F1B", r"bubble $\frac{p-1}{m+p-1}$", "always"),
    ("interleaved, looped BFS", r"bubble $\frac{p-1}{vm+p-1}$", r"$m \ge p$"),
    ("TeraPipe", r"bubble $\frac{p-1}{Km+p-1}$", "slices of equal time"),
    ("Chimera", r"bubble $\frac{p-2}{2m+p-2}$", r"$B = F$ and $m$ a multiple of $p$"),
    ("Chimera", r"bubble $\frac{p-2}{\frac32 m+p-2}$", r"$B = 2F$ and $m = p$"),
    ("ZB-H1", r"idle $(p-1)(F+I-W)$", r"$W \le F$, $W \le I$ and $m \ge p$"),
    ("ZB-H2", r"idle in the span $(p-1)(F+I-2W)$, on the rank that waits most",
              r"$W \le F$, $W \le I$ and $m \ge 2p-1$"),
    ("ZB-V", "idle in the span 0", r"$F = I = W$ and $m \ge 2p-1$"),
    ("DualPipe", r"idle $(\frac p2-1)(F\&B+B-3W)$", r"$F = I = W$ and an even $m \ge 2p$"),
    ("DualPipeV", r"idle $(p-1)(F\&B+B-3W)$, times of a chunk", r"$F = I = W$ and $m \ge 2p$"),
    ("asynchronous", r"bubble $\to 0$", r"$m \to \infty$"),
)
#: Of asynchronous schedules: how many updates late the weights of a gradient are, on rank r.
STALENESS = {"AMPNet": "mixed", "PipeMare": r"$2(p-1-r)$, corrected", "PipeDream": r"$p-1-r$", "PipeDream-2BW": "1"}
#: How many steps of m microbatches the table gives to schedules that don't drain after one.
STEPS = 32


def cost_table(p: int, m: int) -> Markdown:
    """Every schedule that trains on p ranks with m microbatches, F = I = W: what its bubble is, and what it keeps.

    Asynchronous ones run on without draining, for STEPS m microbatches.
    Activations are counted in microbatches of a p-th of the model, weights in p-ths of the model, both on the rank that
    keeps most.
    """
    lines = [f"| $p = {p}$, $m = {m}$ | bubble | in the span | activations | weights | staleness |",
             "|---|--:|--:|--:|--:|---|"]
    for name in all_names():
        if name == "inference":
            continue
        run = balanced(name, p, STEPS * m if name in STALENESS else m)
        made = run.schedule
        kept = max(run.peak_activations) * p / made.stages / max(1, len(made.slices))
        copies = len(made.placement[0]) * max(run.weight_versions)
        lines.append(f"| {name} | {run.bubble:.1%} | {run.span_bubble:.1%} | {kept:g} | {copies} | "
                     f"{STALENESS.get(name, '0')} |")
    return Markdown("\n".join(lines))


def form_table() -> Markdown:
    """The closed forms, and where each holds."""
    lines = ["| schedule | closed form | holds for |", "|---|---|---|"]
    return Markdown("\n".join(lines + [f"| {name} | {form} | {where} |" for name, form, where in FORMS]))
