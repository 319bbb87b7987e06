"""The checks of the lab `collectives`."""

from mlsyslab.check.collectives.composition import FastAllReduce, LongAllReduce, ShortAllReduce
from mlsyslab.check.collectives.costs import Cost, Crossover
from mlsyslab.check.collectives.deadlock import DeadlockCycle, Exchange
from mlsyslab.check.collectives.ring import RingAllGather, RingReduceScatter
from mlsyslab.check.collectives.tree import MstBroadcast, MstScatter
from mlsyslab.check.withheld import Withheld

WITHHELD = {"mlsyslab.collectives": Withheld(asked=("all_gather", "all_reduce", "all_to_all", "barrier", "broadcast", "cost",
                                                    "gather", "reduce", "reduce_scatter", "scatter"))}

mst_broadcast = MstBroadcast()
mst_scatter = MstScatter()
ring_all_gather = RingAllGather()
ring_reduce_scatter = RingReduceScatter()
short_all_reduce = ShortAllReduce()
long_all_reduce = LongAllReduce()
cost = Cost()
crossover = Crossover()
fast_all_reduce = FastAllReduce()
deadlock_cycle = DeadlockCycle()
exchange = Exchange()

__all__ = ["cost", "crossover", "deadlock_cycle", "exchange", "fast_all_reduce", "long_all_reduce", "mst_broadcast",
           "mst_scatter", "ring_all_gather", "ring_reduce_scatter", "short_all_reduce"]
