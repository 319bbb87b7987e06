"""Whether a rank waits for all that it sends."""

from __future__ import annotations

from mlsyslab.check.runs import Held, Recorder
from mlsyslab.comm import Communicator


class Sending:
    """A send that is under way.  work: what stands for it inside.  done: whether it was waited for."""

    def __init__(self, comm: Awaited, work):
        self.comm, self.work, self.done = comm, work, False

    def wait(self) -> None:
        self.comm._wait([self])


class Awaited(Recorder):
    """A rank's communicator that notes which of its sends are waited for.  begun: where all of them are noted."""

    def __init__(self, inner: Communicator, begun: list[Sending]):
        super().__init__(inner, [], Held())
        self.begun = begun

    def _isend(self, tensor, to, tag):
        self.begun.append(Sending(self, self.inner._isend(tensor, to, tag)))
        return self.begun[-1]

    def _irecv(self, out, source, tag):
        return self.inner._irecv(out, source, tag)

    def _wait(self, works):
        works = list(works)
        self.inner._wait([getattr(work, "work", work) for work in works])
        for work in works:
            end(work)

    def _wait_any(self, works):
        index = self.inner._wait_any([getattr(work, "work", work) for work in works])
        end(works[index])
        return index

    def _like(self, inner):
        return Awaited(inner, self.begun)


def end(work) -> None:
    """Note that it was waited for, if it is a send."""
    if isinstance(work, Sending):
        work.done = True
