"""The checks of the lab `data_parallel`."""

from mlsyslab.check.data_parallel.averaging import Average, ReduceBuckets
from mlsyslab.check.data_parallel.buckets import MakeBuckets, StepSeconds
from mlsyslab.check.data_parallel.clocks import FinishTimes, MayStart, Staleness
from mlsyslab.check.data_parallel.links import SyncSeconds
from mlsyslab.check.data_parallel.server import ApplyOnce, PushPull
from mlsyslab.check.withheld import Withheld

#: The topic's package; and the collectives run with the judge, who sees which exercise asks for them.
WITHHELD = {"mlsyslab.data_parallel": Withheld(),
            "mlsyslab.collectives": Withheld(asked=("all_gather", "all_reduce", "all_to_all", "barrier", "broadcast",
                                                    "gather", "reduce", "reduce_scatter", "scatter"))}

push_pull = PushPull()
may_start = MayStart()
finish_times = FinishTimes()
staleness = Staleness()
apply_once = ApplyOnce()
sync_seconds = SyncSeconds()
average = Average()
make_buckets = MakeBuckets()
reduce_buckets = ReduceBuckets()
step_seconds = StepSeconds()

__all__ = ["apply_once", "average", "finish_times", "make_buckets", "may_start", "push_pull", "reduce_buckets", "staleness",
           "step_seconds", "sync_seconds"]
