"""Where, when and with what something was measured."""

from __future__ import annotations

import datetime
import os
import platform
import subprocess
from pathlib import Path
from typing import Any

import numpy
import torch


def provenance() -> dict[str, Any]:
    """Device, driver, versions, commit and date."""
    record = {"device": device_name(), "driver": _driver(), "torch": torch.__version__, "cuda": torch.version.cuda,
              "numpy": numpy.__version__, "python": platform.python_version(), "system": platform.platform(),
              "cpu_cores": os.cpu_count(), "commit": commit(),
              "date": datetime.datetime.now(datetime.UTC).isoformat("T", "seconds")}
    if torch.cuda.is_available():
        record["cudnn"] = torch.backends.cudnn.version()
        record["memory_gb"] = torch.cuda.get_device_properties(0).total_memory / 1e9
    return record


def device_name() -> str:
    """The GPU, or else the processor."""
    return torch.cuda.get_device_name() if torch.cuda.is_available() else _processor()


def commit() -> str | None:
    """Of this checkout, with "+" where tracked files differ from it; outside of one, what MLSYSLAB_COMMIT says, or None."""
    here = Path(__file__).parent
    head = _run("git", "-C", str(here), "rev-parse", "HEAD")
    changed = _run("git", "-C", str(here), "status", "--porcelain", "--untracked-files=no")
    return head + ("+" if changed else "") if head else os.environ.get("MLSYSLAB_COMMIT")


def _driver() -> str | None:
    if not torch.cuda.is_available():
        return None
    found = _run("nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader")
    return found.splitlines()[0].strip() if found else None


def _run(*command: str) -> str | None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=10, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()
