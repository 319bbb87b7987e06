"""The GPUs of this machine, each as the device files that a process needs to use it and no other."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from autograder.errors import CourseError

SHARED = ("nvidiactl", "nvidia-uvm", "nvidia-uvm-tools")  # what every process that uses any GPU opens


@dataclass(frozen=True)
class Gpu:
    """number: as CUDA_VISIBLE_DEVICES names it here; where only its files are in reach, it is called 0.  files: paths."""

    number: int
    files: tuple[str, ...]


def found(folder: Path = Path("/dev")) -> list[Gpu]:
    """Those that this process may use: what it can't open doesn't count, as to CUDA, nor what is left out of
    CUDA_VISIBLE_DEVICES. Slurm gives a job its GPUs by both.
    """
    nodes = sorted((path for path in folder.glob("nvidia*") if path.name.removeprefix("nvidia").isdigit()),
                   key=lambda path: int(path.name.removeprefix("nvidia")))
    shared = tuple(str(folder / name) for name in SHARED if (folder / name).exists())
    gpus = {number: Gpu(number, (str(path), *shared)) for number, path in enumerate(filter(opens, nodes))}
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is None:
        return list(gpus.values())
    try:
        return [gpus[int(number)] for number in visible.split(",") if number.strip()]
    except (ValueError, KeyError) as error:
        raise CourseError(f"CUDA_VISIBLE_DEVICES is {visible!r}; it must hold numbers below {len(gpus)}, which is how many "
                          f"GPUs can be opened in {folder}") from error


def some(lab: str) -> list[Gpu]:
    """Those that there are for a lab that asks for one. Raises CourseError where there is none."""
    if gpus := found():
        return gpus
    raise CourseError(f"{lab} asks for a GPU, and this machine has none that may be used: "
                      "no /dev/nvidia0 that opens, or CUDA_VISIBLE_DEVICES leaves it out")


def opens(path: Path) -> bool:
    try:
        os.close(os.open(path, os.O_RDWR | os.O_NONBLOCK))
    except OSError:
        return False
    return True
