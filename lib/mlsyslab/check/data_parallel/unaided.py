"""The bases of this lab's checks: the library's own server, clocks and buckets are kept out of a student's function."""

from __future__ import annotations

from mlsyslab import data_parallel
from mlsyslab.check.exercise import Exercise, Formula
from mlsyslab.check.messages import difference
from mlsyslab.check.unaided import unaided


class UnaidedFormula(Formula):
    """The check of a function of plain data that may not ask `mlsyslab.data_parallel` for the answer."""

    def problem(self, fn, case):
        return super().problem(unaided(fn, data_parallel), case)


class UnaidedExercise(Exercise):
    """The check of what every rank runs without `mlsyslab.data_parallel`; its results may differ by rounding."""

    def problem(self, fn, case):
        return super().problem(unaided(fn, data_parallel), case)

    def differ(self, rank, came, expected):
        return difference(rank, came, expected, exact=False)
