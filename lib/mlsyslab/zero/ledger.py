"""What a rank holds at every moment, written into the trace."""

from __future__ import annotations

from mlsyslab.comm import Communicator


class Ledger:
    """Writes an "alloc" or "free" event for every tensor of model states that comes or goes.

    `trace.peak_memory(rank)` and the drawn memory curve are read from these events, in every world.
    """

    def __init__(self, comm: Communicator):
        self.comm = comm

    def take(self, what: str, nbytes: int) -> None:
        """`nbytes` more of "parameters", "gradients" or "optimizer"."""
        self._write("alloc", what, nbytes)

    def give(self, what: str, nbytes: int) -> None:
        """So many fewer."""
        self._write("free", what, nbytes)

    def _write(self, kind: str, what: str, nbytes: int) -> None:
        if nbytes:
            now = self.comm.now()
            self.comm.record(kind, now, now, nbytes, label=what)
