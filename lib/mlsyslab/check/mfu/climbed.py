"""Runs of the ladder to read: one that was measured, on the best device that can be had, and some that are made up."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

import torch

from mlsyslab.mfu import Climb, Limits, recorded, rungs, training_flops
from mlsyslab.mfu.ladder import CPU_SIZES, GPU_SIZES
from mlsyslab.mfu.recorded import FOLDER

#: For a lab: a look at each rung rather than a measurement to publish.
SHORT = Limits(last=15, rung=0.15, matmul=0.3)

SIZES = {size.name: size for size in (*GPU_SIZES, *CPU_SIZES)}
#: Rungs that compute every block a second time.
CHECKPOINTED = {rung.name for on_gpu in (True, False) for rung in rungs(on_gpu) if rung.checkpointed}

Run = dict[str, Any]


@cache
def measured(device: str, folder: Path = FOLDER) -> tuple[Run, str] | None:
    """A run that was measured, and in words where it comes from.

    On a GPU if `device` is "cuda"; else what was recorded on one; else on this processor. None where a GPU is there and not
    to be used, as on a grader's machine, and nothing was recorded: the ladder then has no other device to climb on.
    """
    if device == "cuda":
        run = climbed()
        return run, f"Measured on this machine, just now, on its GPU: {run['device']}."
    if records := recorded(folder):
        run = from_record(records[0])
        return run, (f"No GPU here is used. This was recorded on a real one: {run['device']}, "
                     f"{records[0]['provenance']['date'][:10]} (book/measured).")
    if torch.cuda.is_available():
        return None
    run = climbed()
    return run, ("This machine has no GPU, and the course has no recorded run of one. This was measured on this machine, "
                 f"just now, on one core of its processor: {run['device']}. Its best product stands in for the peak.")


def climbed() -> Run:
    """A short climb on the device at hand, with the smallest model; nothing is compiled, which would take minutes."""
    climb = Climb(SHORT)
    rows = [climb.measure(climb.sizes[-1], rung) for rung in climb.rungs if not rung.compiled]
    return as_run(climb.provenance["device"], {p: peak and peak.flops for p, peak in climb.peaks.items()},
                  {p: best.rate for p, best in climb.best.items()}, rows)


def from_record(record: Mapping[str, Any]) -> Run:
    """The largest model of a file of book/measured/."""
    rows = record["ladder"]
    return as_run(record["provenance"]["device"], {p: peak and peak["tflops"] * 1e12 for p, peak in record["peaks"].items()},
                  {p: best["tflops"] * 1e12 for p, best in record["matmul"].items()},
                  [row for row in rows if row["size"] == rows[0]["size"]])


def as_run(device: str, peaks: Mapping[str, float | None], best: Mapping[str, float],
           rows: Sequence[Mapping[str, Any]]) -> Run:
    """Plain data, as the exercise describes it.  rows: as `Climb.measure` gives them."""
    return {"device": device, "peaks": dict(peaks), "best": dict(best), "rungs": [_rung(row) for row in rows]}


def _rung(row: Mapping[str, Any]) -> dict[str, Any]:
    config, recompute = SIZES[row["size"]].config, "full" if row["rung"] in CHECKPOINTED else None
    return {"name": row["rung"], "precision": row["precision"], "tokens": row["batch"] * row["sequence"],
            "model_flops": training_flops(config, row["batch"]),
            "hardware_flops": training_flops(config, row["batch"], recompute=recompute),
            "seconds": None if "left out" in row else row["time"]["median_s"]}


def made_up(rng: Random) -> Run:
    """One that could have been, with what a real one may lack: a peak, a rung, a batch that stays the same."""
    precisions = ["fp32", *rng.sample(("tf32", "bf16", "fp8"), rng.randint(1, 3))]
    peaks: dict[str, float | None] = {p: rng.uniform(0.9, 1.1) * {"fp32": 20e12, "tf32": 160e12, "bf16": 310e12,
                                                                  "fp8": 620e12}[p] for p in precisions}
    best = {p: peak * rng.uniform(0.7, 0.9) for p, peak in peaks.items()}
    tokens, model = 2 ** rng.randint(10, 14), rng.randint(10**13, 10**14)
    rows, share = [], 0.1
    for n in range(rng.randint(4, 8)):
        precision = rng.choice(precisions)
        if rng.random() < 0.3:
            tokens, model = 2 * tokens, 2 * model
        share *= rng.uniform(0.95, 1.4)
        again = rng.random() < 0.3
        rows.append({"name": f"rung {n + 1}", "precision": precision, "tokens": tokens, "model_flops": model,
                     "hardware_flops": model * 4 // 3 if again else model,
                     "seconds": model / (min(share, 0.6) * peaks[precision])})
    if rng.random() < 0.5:
        peaks[rng.choice(precisions)] = None
    for lost in rng.sample(range(len(rows)), rng.randint(0, 2)):
        rows[lost]["seconds"] = None
    return {"device": "made up", "peaks": peaks, "best": best, "rungs": rows}
