"""An MFU with every factor in sight, and the other figures that people get from the same run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from ipywidgets import VBox

from mlsyslab.draw.picture import STYLE, Picture
from mlsyslab.draw.roofline import DEVICES, named, percent, rate_of
from mlsyslab.draw.widgets import explore
from mlsyslab.measure import peak, utilization
from mlsyslab.mfu import Factors, factors
from mlsyslab.model import Config, core_flops, flops_per_token, parameters, published

MODELS = {"LLaMA 3, 8 billion": "llama3-8b", "LLaMA 2, 70 billion": "llama2-70b", "LLaMA 3, 405 billion": "llama3-405b"}
#: shares of an A100's peak that the speeds to choose from come to, at 2,048 tokens: the fastest are for newer devices
SPEEDS = (0.1, 0.25, 0.5, 1.0, 1.5)

WIDTH, ROW, TOP, NUMBERS = 500, 21, 40, 400  # px: the picture, a row, above the first, where the numbers end
BARS, SCALE = 198, 250  # px: where bars begin, the length of 100%
CSS = STYLE + ".mls .sum{stroke:var(--ink)}.mls .whole{stroke:var(--soft);stroke-dasharray:4 3}"


def calculator(models: Sequence[str] = tuple(MODELS), sequences: Sequence[int] = (2048, 8192),
               on: Sequence[str] = ("A100", "H100", "B200"), devices: Sequence[int] = (8, 1024)) -> VBox:
    """A widget: the MFU of a run by model, sequence, device, number of devices and speed, and what else is made of it."""
    pace = "tokens a second"

    def frame(model: str, sequence: int, device: str, devices: int, **at: float) -> Picture:
        return told(model, speed(model, at[pace]), sequence, device, devices)

    return explore(frame, menus=["model", "device"], start={"sequence": 8192, "device": "H100", pace: 1.0},
                   model=list(models), **{pace: lambda model: {f"{speed(model, share):,}": share for share in SPEEDS}},
                   sequence=named(sequences), device=list(on), devices=named(devices))


def speed(model: str, share: float) -> int:
    """Tokens a second on one device, with two digits; share: one of `SPEEDS`."""
    at_peak = peak("A100 SXM 80GB", "bf16").flops / flops_per_token(_config(model, 2048))
    return int(float(f"{share * at_peak:.2g}"))


def _config(model: str, sequence: int) -> Config:
    config = published(MODELS[model]).config
    return replace(config, sequence=sequence)  # positions are rotary, so that parameters don't depend on it


@dataclass(frozen=True)
class Told:
    """A figure that somebody could give for a run.  right: whether it is the MFU."""

    how: str
    share: float
    right: bool = False


def figures(config: Config, tokens_per_second: float, of: str, devices: int) -> tuple[Factors, list[Told]]:
    """The factors of a run's MFU, and the figures that other counts and other peaks would give.

    tokens_per_second: of each device.  of: name of the device.
    """
    dense, s = peak(of, "bf16"), config.sequence
    seconds = s / tokens_per_second / devices  # of a step with one sequence
    run = factors(config, 1, seconds, dense, devices=devices, recompute="full")

    def share(flops: float, top: float = dense.flops) -> float:
        return utilization(flops, seconds, top, devices)

    core = 3 * core_flops(config, 1)
    return run, [
        Told("MFU: all products, dense peak", run.mfu, right=True),
        Told("half of attention's core (causal)", share(run.model_flops - core / 2)),
        Told("attention's core left out", share(run.model_flops - core)),
        Told("6 N, the embedding counted too", share(6 * parameters(config) * s)),
        Told("HFU, if all blocks are recomputed", run.hfu),
        Told("over the peak with sparsity", share(run.model_flops, peak(of, "bf16", sparse=True).flops)),
        Told("over the peak of TF32", share(run.model_flops, peak(of, "tf32").flops)),
    ]


def told(model: str, tokens_per_second: int, sequence: int, on: str, devices: int) -> Picture:
    """The frame of `calculator`."""
    run, ways = figures(_config(model, sequence), tokens_per_second, DEVICES[on], devices)
    return _Told(f"{model}, {sequence:,} tokens, on {devices:,} {on}", run, ways, devices)


class _Told(Picture):
    css = CSS

    def __init__(self, title: str, run: Factors, ways: Sequence[Told], devices: int):
        words = "; ".join(f"{way.how}: {percent(way.share)}" for way in ways)
        rows = self._rows(run, devices)
        bottom = TOP + ROW * len(rows) + 34
        super().__init__(WIDTH, bottom + ROW * len(ways) + 6, title, f"{words}.")
        self.text(0, 14, title, "bold")
        for i, (name, value) in enumerate(rows):
            last = "bold" if i == len(rows) - 1 else ""
            self.text(0, TOP + ROW * i, name, last)
            self.text(NUMBERS, TOP + ROW * i, value, f"end {last}".rstrip())
        self.text(0, bottom - 10, "The same run, told in other ways:", "soft")
        whole = BARS + SCALE
        for i, way in enumerate(ways):
            y, wide = bottom + ROW * i, min(SCALE * way.share, SCALE * 1.12)
            self.text(BARS - 8, y + 12, way.how, "end small")
            self.rect(BARS, y, wide, ROW - 5, "send" if way.right else "quiet", round=0)
            words = percent(way.share) if way.share <= 1 else f"{100 * way.share:.1f}%: more than all is impossible"
            inside = wide > SCALE * 0.8
            self.text(BARS + (6 if inside else wide + 6), y + 12, words, "small" + " bold" * way.right)
        self.text(whole, bottom - 8, "100%", "soft small mid")
        self.line(whole, bottom - 4, whole, bottom + ROW * len(ways), "whole")

    def _rows(self, run: Factors, devices: int) -> list[tuple[str, str]]:
        speed = run.tokens_per_second / devices
        return [("parameters", f"{run.parameters / 1e9:,.2f} billion"),
                ("FLOPs a token, forward and backward", f"{run.flops_per_token / 1e9:,.1f} GFLOP"),
                ("× tokens a second, each device", f"{speed:,.0f}"),
                ("= FLOP/s of a device", rate_of(run.achieved)),
                ("/ its peak: bf16, dense", rate_of(run.peak)),
                (f"= MFU; of all {devices:,} devices: {rate_of(run.achieved * devices)}", f"{100 * run.mfu:.1f}%")]
