"""What the test cells of a lab call: `check.NAME(NAME)` judges the student's function of that name.

A check runs the function on many inputs, compares what it gives back with what it should give back, and reads the trace:
who sent how much to whom, in how many rounds. It prints a line when all is right and raises `Wrong` otherwise, with a
message that says what was expected, what came, on which rank, for which world size and input, and, where it can be told,
which mistake that looks like. `check.NAME(NAME, hidden=True)` judges on inputs from the seed in the environment variable
MLSYSLAB_SEED. `check.NAME.show(NAME, p=4)` draws one run.

A lab adds its checks as a module of this package, made of `Exercise` (a function that every rank runs) and `Formula` (a
function of plain numbers).
"""

from mlsyslab.check.collectives import (
    cost,
    crossover,
    deadlock_cycle,
    exchange,
    fast_all_reduce,
    long_all_reduce,
    mst_broadcast,
    mst_scatter,
    ring_all_gather,
    ring_reduce_scatter,
    short_all_reduce,
)
from mlsyslab.check.messages import Wrong

__all__ = ["Wrong", "cost", "crossover", "deadlock_cycle", "exchange", "fast_all_reduce", "long_all_reduce", "mst_broadcast",
           "mst_scatter", "ring_all_gather", "ring_reduce_scatter", "short_all_reduce"]
