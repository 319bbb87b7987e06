"""Every rank in this process, one at a time, on a virtual clock."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import contextmanager, nullcontext
from functools import cache
from typing import Any

import torch

from mlsyslab.comm.ahead import Ahead, may_run_ahead
from mlsyslab.comm.communicator import BESIDE, COMBINE, Communicator, Run, check_combine
from mlsyslab.comm.errors import CommError
from mlsyslab.comm.failure import Failure
from mlsyslab.comm.garbage import seldom_sought
from mlsyslab.comm.lane import Lane, SideTask
from mlsyslab.comm.link import Link, Network
from mlsyslab.comm.message import Way
from mlsyslab.comm.virtual import VirtualWorld


def simulate(fn: Callable[[Communicator, Any], Any], inputs: Sequence[Any], link: Network | None = None, *,
             failures: Sequence[Failure] = (), buffered: bool = False, timeout: float | None = None) -> Run:
    """Run `fn(comm, inputs[rank])` on every rank, in this process, on a virtual clock.

    fn:       what one rank does.  inputs: one entry a rank, so `len(inputs)` is the world size.
    link:     what messages cost: a `Link(alpha, beta, gamma)` between all ranks, or a network with structure
              (`Nodes`, `Mesh`, `Uneven`, `Failing`). By default messages are free, and only their order counts.
    failures: which ranks die when, and when they come back (`Failure`). Their peers get a `PeerLost`.
    buffered: let a send end once its message is on the way, instead of when it is received. Programs that need this
              to end can deadlock on a real backend.
    timeout:  real seconds after which a run that still goes on (an endless loop, say) is ended by a `Deadlock`.

    Returns a `Run`: `.results` (what each rank returned, None where it died), `.trace`, `.time` (virtual seconds).
    Raises `Deadlock` when no rank can go on, `RankFailed` (from the rank's own exception) when one raises.
    """
    inputs = list(inputs)
    if not inputs:
        raise ValueError("inputs is empty: it holds one entry a rank, and a run needs at least one rank")
    network = Link() if link is None else link
    if not isinstance(network, Network):
        raise TypeError(f"link={link!r}: give a Link(alpha, beta, gamma) or another network, not {type(link).__name__}")
    network.check(len(inputs))
    if failures and buffered:
        raise ValueError("failures need sends that wait for their receive: what a dead rank had buffered would still arrive")
    world = VirtualWorld(len(inputs), network, buffered, failures)

    def one_life(lane: Lane) -> Any:
        comm = SimulatedCommunicator(world, lane, range(world.size))
        result = fn(comm, inputs[lane.rank])
        for task in list(lane.started):
            task.wait()
        return result

    with seldom_sought(world.size):
        world.run(one_life, timeout)
    return Run(world.results, world.trace, max(lane.clock for lane in world.lanes))


class SimulatedCommunicator(Communicator):
    """The communicator of one simulated rank."""

    device = torch.device("cpu")

    def __init__(self, world: VirtualWorld, lane: Lane, ranks: Sequence[int], group: int = 0):
        self.world, self.lane, self.group = world, lane, group
        self.ranks, self.network = ranks, world.network
        self.rank, self.size, self.life = ranks.index(lane.rank), len(ranks), lane.life
        self.meetings = 0
        self.exchanged: tuple[int | None, ...] = None, None, None  # with whom and by which tag it exchanged last,
        self.ways: tuple[Way, Way] | None = None  # and how that came in and went out
        self.besides: SimulatedCommunicator | None = None  # the one of what it has started

    def _isend(self, tensor, to, tag):
        return self.world.begun(self.lane, self.world.timing.send(self.lane, self._way(self.lane.rank, to, tag), tensor))

    def _irecv(self, out, source, tag):
        return self.world.begun(self.lane, self.world.timing.receive(self.lane, self._way(source, self.lane.rank, tag), out))

    def _way(self, source: int, to: int, tag: int) -> Way:
        return self.world.timing.way(source, to, self.group, tag)

    def sendrecv(self, tensor, to, out, source, tag=0):
        way_in, way_out = self._ways("sendrecv", tensor, to, out, source, tag)
        lane, timing = self.lane, self.world.timing
        self.world.exchange(lane, timing.receive(lane, way_in, out), timing.send(lane, way_out, tensor))
        return out

    def sendrecv_combine(self, tensor, to, acc, source, op="sum", tag=0):
        way_in, way_out = self._ways("sendrecv_combine", tensor, to, acc, source, tag)
        _try(op, acc.dtype)
        if not _apart(acc, tensor):
            return super().sendrecv_combine(tensor, to, acc, source, op, tag)
        lane, timing = self.lane, self.world.timing
        self.world.exchange(lane, timing.receive(lane, way_in, acc, op), timing.send(lane, way_out, tensor))
        self._combined(lane.clock, acc.nbytes)
        return acc

    def _ways(self, name: str, tensor: torch.Tensor, to: int, out: torch.Tensor, source: int, tag: int) -> tuple[Way, Way]:
        """The ways in and out: most often those of the exchange before."""
        last_to, last_source, last_tag = self.exchanged
        if not (to is last_to and source is last_source and tag is last_tag
                and isinstance(tensor, torch.Tensor) and isinstance(out, torch.Tensor)):
            self._check(tensor, to, tag, f"{name}(to")
            self._check(out, source, tag, f"{name}(source")
            me = self.lane.rank
            self.ways = self._way(self.ranks[source], me, tag), self._way(me, self.ranks[to], tag)
            self.exchanged = to, source, tag
        return self.ways

    def _wait(self, works):
        self.world.wait(self.lane, works)

    def _wait_any(self, works):
        return self.world.wait_any(self.lane, works)

    def compute(self, seconds, label=""):
        with self.work(label, seconds):
            pass

    @contextmanager
    def work(self, label="", seconds=0.0):
        if not seconds >= 0:
            raise ValueError(f"compute({seconds}): work takes 0 seconds or more")
        start = self.now()
        yield
        end = start + seconds
        self.record("compute", start, min(end, self.lane.dies_at), label=label)
        self.lane.advance(end)

    def _combined(self, start, nbytes):
        if self.lane.ahead:
            self.lane.script.append(nbytes)
        else:
            self.world.timing.combine(self.lane, nbytes)

    def now(self):
        self.world.settle(self.lane)
        return self.lane.clock

    def record(self, kind, start, end, bytes=0, peer=-1, label=""):
        self.world.trace.add(self.lane.rank, kind, start, end, bytes, peer, label)

    def ahead(self):
        return Ahead(self.world, self.lane) if may_run_ahead(self.world) else nullcontext()

    def start(self, fn, *args):
        if self.lane.beside:
            raise CommError(BESIDE)
        self.world.settle(self.lane)
        task = SideTask(self, fn, args)
        self.world.start(task)
        return task

    def beside(self, lane: Lane) -> SimulatedCommunicator:
        """The communicator of the same group on the side lane of this rank."""
        if self.besides is None:
            self.besides = SimulatedCommunicator(self.world, lane, self.ranks, self.world.group((self.group, "beside")))
        return self.besides

    def _meet(self, word: Any) -> dict[int, Any]:
        self.meetings += 1
        return self.world.meet(self.lane, (self.group, self.meetings), self.ranks, word)

    def barrier(self):
        self._meet(None)

    def split(self, color, key=None):
        said = self._meet((color, self.rank if key is None else key))
        members = [rank for rank in self.ranks if said[rank][0] == color]
        members.sort(key=lambda rank: said[rank][1])  # stable: ranks with the same key keep their order
        group = self.world.group((self.group, self.meetings, color))
        return SimulatedCommunicator(self.world, self.lane, members, group)


@cache
def _try(op: str, dtype: torch.dtype) -> None:
    """Raise an error unless `op` can combine tensors of `dtype`."""
    check_combine(torch.empty(0, dtype=dtype), torch.empty(0, dtype=dtype), op)
    COMBINE[op](torch.empty(0, dtype=dtype), torch.empty(0, dtype=dtype))


def _apart(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Whether two tensors are sure to share no memory, so that one can change while the other is sent."""
    if not (a.is_contiguous() and b.is_contiguous()):
        return False
    first, second = a.data_ptr(), b.data_ptr()
    return first + a.nbytes <= second or second + b.nbytes <= first
