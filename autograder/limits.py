"""How much one submission may use."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Limits:
    """Bounds of a submission in the sandbox.

    cell: seconds of one cell, the tests of an exercise too.  submission: seconds in all, of the clock and of the processor.
    memory: bytes that all its processes may use together.  disk: bytes of each of its two scratch folders, and of one file.
    output: bytes that one cell may print.  processes: threads count too (a simulated rank is a thread).
    """

    cell: float = 30.0  # as nbgrader's own limit
    submission: float = 300.0
    memory: int = 4 << 30
    disk: int = 256 << 20
    output: int = 1 << 20
    files: int = 1024
    processes: int = 512
