"""A loop of events: receives that stand, and what is to be done when something comes, or its sender dies."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch

from mlsyslab.comm import Communicator, PeerLost, Work


@dataclass(eq=False)
class _Expected:
    """A receive that stands (or a send under way): what comes goes to `then`."""

    source: int
    tag: int
    data: torch.Tensor
    then: Callable[[torch.Tensor], None] | None
    work: Work
    lost_at: float | None = None  # when its sender died last
    once: bool = False


class Events:
    """What one server waits for.

    A server never waits for one thing only: it asks for the next event, whichever it is, and handles it without waiting.
    lost: called with a rank when it has died; gone: when it has died and will never come back.
    """

    def __init__(self, comm: Communicator, lost: Callable[[int], None], gone: Callable[[int], None]):
        self.comm, self.lost, self.gone = comm, lost, gone
        self.expected: list[_Expected] = []
        self.deaths: set[tuple[int, float]] = set()
        self.left: set[int] = set()

    def expect(self, source: int, tag: int, like: torch.Tensor, then: Callable[[torch.Tensor], None],
               once: bool = False) -> None:
        """Call `then(data)` with every message of this kind from `source` (or with one, and no more)."""
        data = torch.empty_like(like)
        self.expected.append(_Expected(source, tag, data, then, self.comm.irecv(data, source, tag), once=once))

    def send(self, data: torch.Tensor, to: int, tag: int) -> Work:
        """Send without waiting; when `to` is dead, nothing is sent."""
        work = self.comm.isend(data, to, tag)
        self.expected.append(_Expected(to, tag, data, None, work, once=True))
        return work

    def sending(self, tag: int) -> bool:
        """Whether a message with this tag is still under way."""
        return any(event.then is None and event.tag == tag for event in self.expected)

    def next(self) -> None:
        """Wait for the next event and handle it."""
        try:
            event = self.expected[self.comm.wait_any([event.work for event in self.expected])]
        except PeerLost as loss:
            event = next(event for event in self.expected if event.work is loss.work)
            self._lose(event, loss)
            return
        data = event.data
        if event.once:
            self.expected.remove(event)
        else:
            event.data = torch.empty_like(data)
            event.work = self.comm.irecv(event.data, event.source, event.tag)
        if event.then is not None:
            event.then(data)

    def _lose(self, event: _Expected, loss: PeerLost) -> None:
        """The other side of `event` is dead: keep waiting for its next life, unless there will be none."""
        if event.once or event.lost_at == loss.at:
            self.expected.remove(event)
        else:
            event.lost_at = loss.at
            event.work = self.comm.irecv(event.data, event.source, event.tag)
        if (loss.rank, loss.at) not in self.deaths:
            self.deaths.add((loss.rank, loss.at))
            self.lost(loss.rank)
        elif not event.once and event not in self.expected and loss.rank not in self.left:
            self.left.add(loss.rank)
            self.gone(loss.rank)
