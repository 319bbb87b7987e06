"""Looped breadth-first: all microbatches through a rank's first chunk, then all through its second (Lamy-Poirier 2022)."""

from mlsyslab.pipeline.schedule import Action, Schedule
from mlsyslab.pipeline.schedules.registry import register


@register("looped BFS")
def looped_bfs(p: int, m: int, chunks: int = 2) -> Schedule:
    """Bubble (p-1)(F+B) in chunk time where m >= p, a v-th of GPipe's; every rank keeps all m v activations.

    A chunk's gradients are complete after one run of backwards, so that sharded data parallelism gathers and reduces each
    chunk once a step. Backwards take the microbatches in reverse, the last one first, whose activations are still warm.
    """

    def rank(r: int) -> list[Action]:
        stages = range(r, p * chunks, p)
        forwards = [Action(stage, "F", i) for stage in stages for i in range(m)]
        backwards = [Action(stage, "B", i) for stage in reversed(stages) for i in reversed(range(m))]
        return forwards + backwards

    return Schedule("looped BFS", [rank(r) for r in range(p)])
