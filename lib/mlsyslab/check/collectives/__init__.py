"""The checks of the lab `collectives`."""

from mlsyslab.check.collectives.ring import RingAllGather
from mlsyslab.check.collectives.tree import MstBroadcast, MstScatter

mst_broadcast = MstBroadcast()
mst_scatter = MstScatter()
ring_all_gather = RingAllGather()

__all__ = ["mst_broadcast", "mst_scatter", "ring_all_gather"]
