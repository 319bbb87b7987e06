"""The pictures of the chapter on data parallelism. All of them are read off runs of the library's own code."""

from mlsyslab.draw.buckets import overlaps
from mlsyslab.draw.links import loads, server_or_ring
from mlsyslab.draw.staleness import histograms, losses, regrets
from mlsyslab.draw.stragglers import stragglers, workers

__all__ = ["histograms", "loads", "losses", "overlaps", "regrets", "server_or_ring", "stragglers", "workers"]
