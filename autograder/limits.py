"""How much one submission may use."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Limits:
    """Each bound holds in the sandbox; `cell` and `output` for each cell, the others for the whole submission.

    memory: bytes of address space of one process.  disk: bytes of each of its two scratch folders, and of one file.
    processes: threads count too (a simulated rank is a thread); Linux doesn't hold a grader that runs as root to it.
    """

    cell: float = 30.0  # s, as nbgrader's own limit
    submission: float = 300.0  # s
    memory: int = 16 << 30
    disk: int = 256 << 20
    output: int = 1 << 20
    files: int = 1024
    processes: int = 4096
