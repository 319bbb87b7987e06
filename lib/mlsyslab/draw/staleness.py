"""How stale updates are, what it does to training, and the bound on it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from mlsyslab.data_parallel import Record, Regret, loss_curve
from mlsyslab.draw.actions import CSS
from mlsyslab.draw.lines import lines
from mlsyslab.draw.picture import Picture, number

STEP, HIGH = 19, 48  # px: from one bar of a histogram to the next, the highest one


class Histograms(Picture):
    """How often each staleness occurred, a row for each run, as high as its highest bar."""

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
        d = "".join(f"M{130 + STEP * k} {number(bottom)}v{number(-HIGH * share / max(shares))}"
                    for k, share in enumerate(shares) if share)
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
        ends = range(window, len(read) + 1, window // 2)
        curves[name] = [(read[end - 1][0] if over == "by time" else end,
                         sum(loss for *_, loss in read[end - window:end]) / window) for end in ends]
    return lines(curves, f"Loss {over}: {conditions}", "seconds" if over == "by time" else "gradients computed", "loss")


def regrets(runs: Mapping[int, Regret]) -> Picture:
    """The measured regret over the number of updates, and SSP's bound, by s."""
    curves = {}
    for s, run in runs.items():
        ends = sorted({max(1, round(run.T ** (k / 24))) for k in range(6, 25)})
        curves |= {f"bound, s = {s}": [(t, run.bounds[t - 1]) for t in ends],
                   f"measured, s = {s}": [(t, run.measured[t - 1]) for t in ends]}
    return lines(curves, "Regret, in sum", "updates", "regret", x_log=True, y_log=True)
