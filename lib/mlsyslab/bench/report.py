"""What a bench found: as a table to read, and as JSON with where, when and with what it was measured."""

from __future__ import annotations

import datetime
import json
import os
import platform
import statistics
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy
import torch

from mlsyslab.measure.provenance import commit

WIDE = 160  # characters a line where a table goes into a file: nothing is cut there


def summarize(seconds: Sequence[float]) -> dict[str, float]:
    """The median of several timings, and their spread: the distance between the quartiles."""
    low, _, high = statistics.quantiles(seconds, n=4) if len(seconds) > 1 else (seconds[0],) * 3
    return {"median_s": statistics.median(seconds), "spread_s": high - low, "runs": len(seconds)}


def print_table(title: str, rows: Sequence[dict[str, Any]]) -> None:
    """Print `rows`, with their keys as heads; what is timed (a dict of `summarize`) as "median ± half the spread"."""
    heads = list(dict.fromkeys(key for row in rows for key in row))
    cells = [[_text(row.get(head, "")) for head in heads] for row in rows]
    try:
        from rich.console import Console
        from rich.table import Table
    except ImportError:
        widths = [max(len(text) for text in column) for column in zip(heads, *cells, strict=True)]
        for line in (heads, *cells):
            print("  ".join(text.rjust(width) for text, width in zip(line, widths, strict=True)))
        return
    table = Table(title=title, title_justify="left")
    for head in heads:
        table.add_column(head, justify="right")
    for line in cells:
        table.add_row(*line)
    console = Console()
    Console(width=console.width if console.is_terminal else WIDE).print(table)


def _text(value: Any) -> str:
    if isinstance(value, dict):
        return f"{_seconds(value['median_s'])} ± {_seconds(value['spread_s'] / 2)}"
    return f"{value:.3g}" if isinstance(value, float) else str(value)


def _seconds(value: float) -> str:
    for scale, unit in ((1, "s"), (1e3, "ms")):
        if value * scale >= 1:
            return f"{value * scale:.3g} {unit}"
    return f"{value * 1e6:.3g} µs"


def write_json(path: Path, name: str, rows: Sequence[dict[str, Any]]) -> Path:
    """Write `rows` with their provenance; returns `path`."""
    path.parent.mkdir(parents=True, exist_ok=True)
    record = {"bench": name, "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
              "command": f"python -m mlsyslab.bench {' '.join(sys.argv[1:])}".rstrip(), "commit": commit(),
              "device": device(),
              "versions": {"python": platform.python_version(), "torch": torch.__version__, "numpy": numpy.__version__},
              "rows": list(rows)}
    path.write_text(json.dumps(record, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    return path


def device() -> dict[str, Any]:
    """The machine: processor, cores, memory, GPUs, and how busy it was."""
    info = {"processor": _processor(), "cores": os.cpu_count(), "system": platform.platform(),
            "gpus": [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]}
    if hasattr(os, "sysconf"):
        info["memory_bytes"] = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    if hasattr(os, "getloadavg"):
        info["load"] = os.getloadavg()[0]
    return info


def _processor() -> str:
    path = Path("/proc/cpuinfo")
    lines = path.read_text().splitlines() if path.exists() else []
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), platform.processor())
