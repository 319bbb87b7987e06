"""What was measured on real GPUs, with where and when: the files of book/measured/, written by the bench `mfu`."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

#: of this checkout
FOLDER = Path(__file__).parents[3] / "book" / "measured"


def recorded(folder: Path = FOLDER) -> list[dict[str, Any]]:
    """All records, each with "provenance", "matmul" and "ladder"; an empty list where nothing has been recorded."""
    return [json.loads(path.read_text()) for path in sorted(folder.glob("*.json"))] if folder.is_dir() else []


def top(record: dict[str, Any], least_parameters: float = 0) -> dict[str, Any] | None:
    """The rung of a record with the highest MFU, of models with at least so many parameters."""
    rungs = [row for row in record["ladder"] if row.get("mfu") and row["parameters"] >= least_parameters]
    return max(rungs, key=lambda row: row["mfu"], default=None)


def record_path(device: str, folder: Path = FOLDER) -> Path:
    """Where the record of a device lies: "NVIDIA H200" in nvidia-h200.json."""
    return folder / (re.sub(r"[^a-z0-9]+", "-", device.lower()).strip("-") + ".json")
