"""The base of this lab's checks: the library's own schedules, counts and partitions are kept out of a student's function."""

from __future__ import annotations

from mlsyslab import pipeline
from mlsyslab.check.exercise import Formula
from mlsyslab.check.unaided import unaided

#: what may be called all the same: reading and writing actions
ALLOWED = ("schedule.py",)


class Unaided(Formula):
    """The check of a function of plain data that may not ask `mlsyslab.pipeline` for the answer."""

    def problem(self, fn, case):
        return super().problem(unaided(fn, pipeline, allowed=ALLOWED), case)
