"""Stage 2: of the gradients, too, a rank keeps its shard (P_os+g)."""

from __future__ import annotations

from mlsyslab.zero.gradient import Gradient
from mlsyslab.zero.stage1 import Stage1

#: Reduced gradients that may be on their way beside the one that is filled: more overlaps no better and takes memory.
UNDER_WAY = 1


class Stage2(Stage1):
    """A bucket's memory is given back when it has been reduced; what stays is this rank's part of the sum.

    The same elements are sent as in stage 1. But what has been scattered can't take in the next microbatch's gradients
    before they are reduced too: with k microbatches a step, (k + 1) M (p-1)/p elements.
    """

    stage = 2
    _reduces = True

    def _reduce(self, gradient: Gradient) -> None:
        self.lane.wait(UNDER_WAY)
        self._reduce_scatter(gradient, lambda: gradient.keep(self.comm.rank))
