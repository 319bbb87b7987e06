"""How a GPU was clocked while something ran, and what held its clocks down. Asked of nvidia-smi."""

from __future__ import annotations

import shutil
import statistics
import subprocess
from typing import Any

import torch

#: key in a sample: what nvidia-smi calls it
QUERY = {"sm_clock_mhz": "clocks.sm", "sm_clock_max_mhz": "clocks.max.sm", "memory_clock_mhz": "clocks.mem",
         "power_w": "power.draw", "power_limit_w": "power.limit", "temperature_c": "temperature.gpu",
         "reasons": "clocks_throttle_reasons.active"}
#: bits of the reasons (nvml.h, nvmlClocksEventReasons)
REASONS = {0x1: "idle", 0x2: "application clocks", 0x4: "power cap", 0x8: "hardware slowdown", 0x10: "sync boost",
           0x20: "thermal, software", 0x40: "thermal, hardware", 0x80: "power brake", 0x100: "display clocks"}


class Clocks:
    """Context: sample the clocks of GPU 0 every `every` ms while entered; then `samples` and `summary()`."""

    def __init__(self, every: int = 200):
        self.every, self.samples = every, []
        self._process: subprocess.Popen | None = None

    def __enter__(self) -> Clocks:
        if torch.cuda.is_available() and shutil.which("nvidia-smi"):
            command = ["nvidia-smi", "--id=0", f"--query-gpu={','.join(QUERY.values())}", "--format=csv,noheader,nounits",
                       f"--loop-ms={self.every}"]
            self._process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        return self

    def __exit__(self, *error: Any) -> None:
        if self._process is None:
            return
        self._process.terminate()
        try:
            text, _ = self._process.communicate(timeout=10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            text, _ = self._process.communicate()
        self.samples = [sample for line in text.splitlines() if (sample := parse(line))]

    def summary(self) -> dict[str, Any]:
        """The median of each number over the samples, and every reason that was seen; empty where nothing was sampled."""
        if not self.samples:
            return {}
        found: dict[str, Any] = {"samples": len(self.samples)}
        for key in QUERY:
            values = [sample[key] for sample in self.samples if isinstance(sample.get(key), float)]
            if values:
                found[key] = statistics.median(values)
        found["held_down_by"] = sorted({reason for sample in self.samples for reason in sample["held_down_by"]})
        return found


def parse(line: str) -> dict[str, Any] | None:
    """One line of nvidia-smi's answer; None for a line that was cut off."""
    cells = [cell.strip() for cell in line.split(",")]
    if len(cells) != len(QUERY):
        return None
    sample: dict[str, Any] = {}
    for key, cell in zip(QUERY, cells, strict=True):
        try:
            sample[key] = float(cell)
        except ValueError:  # "[N/A]", or the reasons in hexadecimal
            sample[key] = cell
    reasons = str(sample.pop("reasons"))
    bits = int(reasons, 16) if reasons.startswith("0x") else 0
    sample["held_down_by"] = [word for bit, word in REASONS.items() if bits & bit and word != "idle"]
    return sample
