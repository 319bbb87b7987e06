"""Judging how a ladder of measured runs is read."""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from random import Random
from typing import Any

from mlsyslab.check.exercise import Case
from mlsyslab.check.messages import article, count
from mlsyslab.check.mfu.climbed import Run, made_up, measured
from mlsyslab.check.mfu.fields import Unaided, compared, unlike
from mlsyslab.check.mfu.timing import device_here
from mlsyslab.check.number import Slip

NOUNS = {"mfu": "a fraction", "hfu": "a fraction", "of_best": "a fraction", "gain": "a ratio"}

#: Two rungs lost, and one without a peak: what a real ladder may lack, so that everybody meets it.
GAPS: Run = {
    "device": "made up",
    "peaks": {"fp32": 20e12, "bf16": 300e12, "fp8": None},
    "best": {"fp32": 18e12, "bf16": 240e12, "fp8": 450e12},
    "rungs": [{"name": name, "precision": precision, "tokens": tokens, "model_flops": model * 10**12,
               "hardware_flops": hardware * 10**12, "seconds": seconds}
              for name, precision, tokens, model, hardware, seconds in (
                  ("plain", "fp32", 4096, 30, 30, None), ("fused attention", "fp32", 4096, 30, 30, 3.0),
                  ("bf16", "bf16", 4096, 30, 30, 0.3), ("larger batch", "bf16", 16_384, 120, 120, None),
                  ("checkpointing", "bf16", 16_384, 120, 160, 1.0), ("fp8", "fp8", 16_384, 120, 160, 0.6))],
}


class Ladder(Unaided):
    name = "ladder"

    def run(self) -> Run:
        """The run to read, and a line that says where it comes from."""
        run, words = measured(device_here()) or (GAPS, "No run can be had here; this one is made up.")
        print(f"{words}\n\n{table(run)}")
        return deepcopy(run)

    def cases(self, rng: Random) -> list[Case]:
        found = measured(device_here())
        runs = [*([("measured", found[0])] if found else []), ("made up, with gaps", GAPS)]
        return [Case((run,), read(run), {"run": called, "device": run["device"], "rungs": len(run["rungs"])})
                for called, run in runs + [("made up", made_up(rng)) for _ in range(8)]]

    def compare(self, came, case):
        run, = case.arguments
        if not isinstance(came, (list, tuple)):
            return f"it returned {article(type(came).__name__)}, {came!r:.120}; expected a list, one entry a rung"
        if len(came) != len(case.expected):
            text = f"it returned {count(len(came), 'entry').replace('entrys', 'entries')}; expected {len(case.expected)}"
            lost = sum(right is None for right in case.expected)
            return f"{text}\n  A rung that wasn't measured is told as None, not left out." if lost else text
        for i, (one, right) in enumerate(zip(came, case.expected, strict=True)):
            if wrong := differ(one, right, run, i):
                return f'rung {i}, "{run["rungs"][i]["name"]}": {wrong}'
        return None


def table(run: Run) -> str:
    """A line a precision, and a line a rung."""
    lines = [f"{precision:<24}{'peak unknown' if peak is None else f'peak {peak / 1e12:.4g}'}, best product "
             f"{run['best'][precision] / 1e12:.4g} TFLOP/s" for precision, peak in run["peaks"].items()]
    lines += [f"{rung['name']:<16}{rung['precision']:<8}" + (
        "not measured" if rung["seconds"] is None else
        f"{rung['tokens']:>8,} tokens, {rung['model_flops'] / 1e9:,.4g} GFLOPs in {rung['seconds']:.4g} s")
        for rung in run["rungs"]]
    return "\n".join(lines)


def differ(came: Any, right: dict[str, float | None] | None, run: Run, i: int) -> str | None:
    """What is wrong with the entry of rung i."""
    if right is None:
        return None if came is None else f"it came as {came!r:.120}, expected None: it wasn't measured"
    if came is None:
        return "it came as None, but it was measured"
    if wrong := unlike(came, list(NOUNS)):
        return f"it came as {wrong}"
    return compared(came, right, NOUNS, False, lambda field: slips(field, run, i))


def read(run: Run) -> list[dict[str, float | None] | None]:
    """The answer."""
    found: list[dict[str, float | None] | None] = []
    below = None
    for rung in run["rungs"]:
        if rung["seconds"] is None:
            found.append(None)
            continue
        peak, best = run["peaks"][rung["precision"]], run["best"][rung["precision"]]
        found.append({"mfu": peak and rate(rung) / peak, "hfu": peak and rate(rung, "hardware_flops") / peak,
                      "of_best": rate(rung) / best, "gain": below and rate(rung, "tokens") / below})
        below = rate(rung, "tokens")
    return found


def rate(rung: dict[str, Any], of: str = "model_flops") -> float:
    """How many a second."""
    return rung[of] / rung["seconds"]


def slips(field: str, run: Run, i: int) -> Sequence[Slip]:
    """What known mistakes give in a field of rung i."""
    rung, precision = run["rungs"][i], run["rungs"][i]["precision"]
    peak, best = run["peaks"][precision], run["best"][precision]
    model, hardware, tokens = rate(rung), rate(rung, "hardware_flops"), rate(rung, "tokens")
    if field == "gain":
        below = [other for other in run["rungs"][:i] if other["seconds"] is not None]
        if not below:
            return [(value, "No rung below was measured: None.") for value in (1, 1.0, 0, 0.0)]
        last, first = below[-1], below[0]
        return [
            (tokens / rate(first, "tokens"), "That is against the lowest rung; a gain is against the one below."),
            (tokens / rate(last, "tokens") - 1, "How many times as many, not by how much more: 1.0 is no gain."),
            (last["seconds"] / rung["seconds"], "That is from the seconds of a step, but steps needn't have equally many "
                                                "tokens."),
            (rate(last, "tokens") / tokens, "Turn it over: this rung's tokens a second over those of the one below."),
            (hardware / rate(last, "hardware_flops"), "That is from hardware FLOPs. To compute something twice is no gain: "
                                                      "take tokens."),
            *([(utilized(run, rung) / utilized(run, last), "That is from MFU, whose peak changes with the precision: take "
                                                           "tokens a second.")]
              if peak and run["peaks"][last["precision"]] else []),
            (None, "The rung below wasn't measured; compare with the nearest one below that was."
             if run["rungs"][i - 1]["seconds"] is None else "A rung below was measured."),
        ]
    own = {"mfu": model, "hfu": hardware, "of_best": model}[field]
    if field != "of_best" and peak is None:
        others = [(other, value) for other, value in run["peaks"].items() if value]
        return [*((flops / value, f"That is against the peak in {other}: none is known in {precision}, so there is no "
                                  f"{field.upper()}.") for other, value in others for flops in (model, hardware)),
                *((flops / best, "That is against the best product; no peak is known, so there is none.")
                  for flops in (model, hardware)),
                *((value, "Where no peak is known tell None: 0 would be a wrong one.") for value in (0, 0.0))]
    over, table = (best, "best") if field == "of_best" else (peak, "peaks")
    return [
        *((own / value, f"That is against what holds in {other}; this rung computes in {precision}.")
          for other, value in run[table].items() if value and other != precision),
        ((hardware if field != "hfu" else model) / over, {
            "mfu": "That is HFU: MFU counts what the model needs.", "hfu": "That is MFU: HFU counts what is carried out.",
            "of_best": "That is from hardware FLOPs; take those that the model needs."}[field]),
        (own / best if field != "of_best" else own / (peak or best),
         "That is against the best product." if field != "of_best" else "That is MFU: take the best product, not the peak."),
        (100 * own / over, "That is in percent; a fraction is asked for."),
        (own, "Those are FLOPs a second."),
        (own * rung["seconds"] / over, "Divide by the seconds of a step."),
        (tokens / over, "That is from tokens; take FLOPs."),
    ]


def utilized(run: Run, rung: dict[str, Any]) -> float:
    return rate(rung) / run["peaks"][rung["precision"]]
