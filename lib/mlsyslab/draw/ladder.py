"""The ladder: a bar for each way to train the same model, measured."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from mlsyslab.draw.picture import STYLE, Picture
from mlsyslab.draw.plot import time_of
from mlsyslab.draw.roofline import percent, rate_of

WIDTH, ROW, TOP, NAMES, BARS = 580, 25, 44, 110, 200  # px: picture, a row, above the first, width of names, longest bar


def ladder(rows: Sequence[Mapping[str, Any]], title: str) -> Picture:
    """Rungs of one model, the lowest at the top: MFU as a bar; HFU as its outline, where that is more.

    rows: of `mfu.Climb.measure`, or of a record.  Where no peak is known, bars are FLOP/s. A single rung without an MFU
    (its note says why) has no bar.
    """
    if not rows:
        raise ValueError("ladder got no rungs: give it at least one row")
    return _Ladder(rows, title)


def of_record(record: Mapping[str, Any]) -> list[Picture]:
    """A recorded climb, a ladder for each of its models."""
    sizes = dict.fromkeys(row["size"] for row in record["ladder"])
    where = f"on {record['provenance']['device']}, {record['provenance']['date'][:10]}"
    return [ladder([row for row in record["ladder"] if row["size"] == size], f"A GPT of {size} parameters {where}")
            for size in sizes]


class _Ladder(Picture):
    css = STYLE + ".mls .again{fill:none;stroke:var(--soft);stroke-dasharray:3 2}"

    def __init__(self, rows: Sequence[Mapping[str, Any]], title: str):
        words = "; ".join(f"{row['rung']}: {told(row)}" + ("" if "left out" in row else f", {step_of(row)} a step")
                          for row in rows)
        super().__init__(WIDTH, TOP + ROW * len(rows) + 4, title, f"{words}.")
        self.text(0, 14, title, "bold")
        known = any(row.get("mfu") for row in rows)
        self.text(NAMES, TOP - 10, "MFU" if known else "FLOP/s; no peak is known, so there is no MFU", "soft small")
        measured = [row for row in rows if "left out" not in row]
        most = max([(row["hfu"] or 0) if known else row["tflops"] for row in measured], default=1)
        for i, row in enumerate(rows):
            self._rung(TOP + ROW * i, row, "mfu" if known else "tflops", BARS / most)

    def _rung(self, y: float, row: Mapping[str, Any], by: str, scale: float) -> None:
        self.text(NAMES - 8, y + 14, row["rung"], "end")
        if "left out" in row:
            self.text(NAMES, y + 14, row["left out"][:80], "soft small")
            return
        if row[by] is None:
            self.text(NAMES, y + 14, f"no MFU; {told(row)}", "small")
            return
        wide = row[by] * scale
        if by == "mfu" and row["hfu"] > row["mfu"]:
            wide = row["hfu"] * scale
            self.rect(NAMES, y, wide, ROW - 7, "again", round=0)
        self.rect(NAMES, y, row[by] * scale, ROW - 7, "combine" if row["precision"] == "bf16" else "send", round=0)
        self.text(NAMES + wide + 6, y + 14, told(row), "small")


def told(row: Mapping[str, Any]) -> str:
    """What was found of a rung, in words."""
    if "left out" in row:
        return row["left out"]
    share = f"MFU {percent(row['mfu'])}" if row.get("mfu") else rate_of(row["tflops"] * 1e12)
    again = f", HFU {percent(row['hfu'])}" if row.get("mfu") and row["hfu"] > row["mfu"] else ""
    return f"{share}{again}; {row['tokens/s']:,.0f} tokens/s"


def step_of(row: Mapping[str, Any]) -> str:
    """The median time of a rung's step."""
    return time_of(row["time"]["median_s"])
