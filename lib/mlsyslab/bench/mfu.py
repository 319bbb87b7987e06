"""A ladder of ways to train a GPT on one device: time, tokens a second, MFU, HFU of every rung.

On a GPU: three models, the largest that fits and two smaller ones, and ten rungs each, in under nine minutes; what is found
is also written to book/measured/<gpu>.json, after every rung, so that nothing is lost if it is stopped. On a CPU, three
small models on one core, in under a minute; the best matmul, measured first, stands in for the peak that no datasheet gives.
FLOPs are counted without a discount for causal masking; "mfu_causal" counts half of attention.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import torch

from mlsyslab.mfu.climb import Climb
from mlsyslab.mfu.recorded import record_path

COMMAND = "python -m mlsyslab.bench mfu"
#: of a measured rung, what goes into the table
COLUMNS = ("size", "rung", "precision", "batch", "time", "tokens/s", "tflops", "mfu", "hfu", "left out")


def rows() -> Iterator[dict[str, Any]]:
    """A row a rung, as soon as it is measured."""
    climb, ladder = Climb(), []
    # a CUDA graph that fails can leave the device unusable: all models' other rungs come first
    for graph in (False, True):
        for size in climb.sizes:
            if climb.on_gpu:
                torch.compiler.reset()  # or what is compiled for one size would be made to fit the next as well
            for rung in climb.rungs:
                if rung.graph == graph:
                    ladder.append(climb.measure(size, rung))
                    if climb.on_gpu:
                        write(climb, ladder)
                    yield {name: ladder[-1][name] for name in COLUMNS if name in ladder[-1]}


def write(climb: Climb, ladder: list[dict[str, Any]]) -> None:
    """The record of a GPU as it stands, in the order of the ladder."""
    order = {(size.name, rung.name): (i, j) for i, size in enumerate(climb.sizes) for j, rung in enumerate(climb.rungs)}
    matmuls = {p: {"m": b.m, "n": b.n, "p": b.p, "seconds": b.seconds, "spread": b.spread, "tflops": b.rate / 1e12,
                   "of_peak": climb.peaks[p] and b.rate / climb.peaks[p].flops} for p, b in climb.best.items()}
    peaks = {p: found and {"tflops": found.flops / 1e12, "source": found.source} for p, found in climb.peaks.items()}
    record = {"command": COMMAND, "provenance": climb.provenance, "seconds": climb.elapsed, "peaks": peaks,
              "matmul": matmuls, "ladder": sorted(ladder, key=lambda row: order[row["size"], row["rung"]])}
    path = record_path(climb.provenance["device"])
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(record, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
