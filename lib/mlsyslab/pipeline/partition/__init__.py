"""Which layer goes to which stage: the slowest stage sets the pace of the whole pipeline."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from mlsyslab.pipeline.partition.dynamic import dynamic
from mlsyslab.pipeline.partition.linear import linear
from mlsyslab.pipeline.partition.pipedream import Replicated, pipedream
from mlsyslab.pipeline.partition.placement import Placement, reinforce, step_time
from mlsyslab.pipeline.partition.profile import LayerProfile, profile
from mlsyslab.pipeline.partition.stages import Partition, bubble, even, excess

METHODS: dict[str, Callable[[Sequence[float], int], Partition]] = {"dynamic": dynamic, "linear": linear, "even": even}


def partition(times: Sequence[float], stages: int, method: str = "dynamic") -> Partition:
    """Cut a chain of layers into contiguous stages so that the slowest stage is as fast as it can be.

    times:  seconds a layer, forward and backward together (`profile` measures them).
    stages: how many stages, 1 … len(times); each gets at least one layer.
    method: "dynamic" (exact, dynamic programme), "linear" (exact, mixed-integer programme, needs scipy) or "even" (the same
            number of layers a stage, whatever they cost).
    """
    if method not in METHODS:
        raise ValueError(f"method={method!r}: a partition is found by one of {', '.join(METHODS)}")
    return METHODS[method](times, stages)


__all__ = ["METHODS", "LayerProfile", "Partition", "Placement", "Replicated", "bubble", "dynamic", "even", "excess",
           "linear", "partition", "pipedream", "profile", "reinforce", "step_time"]
