"""Collective communication, from messages between two ranks.

Every operation is called as `name(comm, tensor, …, algorithm="auto")` by every rank of `comm`, gives back this rank's
result as a new tensor, and leaves its input as it was.
"""

from mlsyslab.collectives.auto import Plan, choose, plan
from mlsyslab.collectives.calibrate import MeasuredLink, calibrate, calibrate_on, measure
from mlsyslab.collectives.cost import Cost, TwoLevelCost, algbw, busbw, cost, lower_bound
from mlsyslab.collectives.counts import Count, counts
from mlsyslab.collectives.operations import (
    ALGORITHMS,
    OPS,
    all_gather,
    all_reduce,
    all_to_all,
    barrier,
    broadcast,
    gather,
    reduce,
    reduce_scatter,
    scatter,
)
from mlsyslab.collectives.parts import Parts, even_lengths

__all__ = ["ALGORITHMS", "OPS", "Cost", "Count", "MeasuredLink", "Parts", "Plan", "TwoLevelCost", "algbw", "all_gather",
           "all_reduce", "all_to_all", "barrier", "broadcast", "busbw", "calibrate", "calibrate_on", "choose", "cost",
           "counts", "even_lengths", "gather", "lower_bound", "measure", "plan", "reduce", "reduce_scatter", "scatter"]
