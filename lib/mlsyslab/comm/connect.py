"""How a process becomes a rank: its process group, its peers, its clock."""

from __future__ import annotations

import contextlib
import ctypes
import datetime
import json
import os
import socket
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from mlsyslab.comm.carriers import GlooCarrier, Nccl, SharedCarrier, Wires
from mlsyslab.comm.link import Link, Network
from mlsyslab.comm.process import ProcessCommunicator
from mlsyslab.comm.shared import Arena, Inbox, available
from mlsyslab.comm.world import World

#: What is assumed of messages inside one machine and between machines until `collectives.calibrate` has measured them.
INSIDE = Link(alpha=40e-6, beta=2e-10, gamma=2e-10)
BETWEEN = Link(alpha=100e-6, beta=1e-9, gamma=2e-10)

_M_TRIM_THRESHOLD, _M_MMAP_MAX = -1, -4  # of malloc.h
_ADDRESS = 512  # bytes that an address may take
_LONG = datetime.timedelta(days=30)


@dataclass(frozen=True)
class Machines(Network):
    """Ranks on machines: `of[rank]` is the number of its machine."""

    of: tuple[int, ...]
    inside: Link = INSIDE
    between: Link = BETWEEN

    @property
    def gamma(self) -> float:
        return self.inside.gamma

    def node(self, rank: int) -> int:
        return self.of[rank]

    def route(self, source: int, to: int) -> Any:
        return (self.inside if self.of[source] == self.of[to] else self.between).route(source, to)


@dataclass(frozen=True)
class Address:
    """What a rank tells the others of itself.

    node: the number of its machine as whoever started it counts.  clock: which clock it reads.
    memory: ranks that agree in it can open each other's inbox and arena; "" for none.
    """

    node: int
    clock: str
    memory: str
    inbox: str = ""
    arena: str = ""


def connect(rank: int, size: int, backend: str, store: dist.Store | None = None, node: int = 0, local_rank: int = 0,
            network: Network | None = None) -> ProcessCommunicator:
    """Join the process group and find the peers; collective over all ranks.

    store: where the ranks meet; by default as the environment says (MASTER_ADDR, MASTER_PORT).
    """
    device = torch.device("cuda", local_rank) if backend == "nccl" else torch.device("cpu")
    if backend == "nccl":
        torch.cuda.set_device(device)
        dist.init_process_group("cpu:gloo,cuda:nccl", store=store, rank=rank, world_size=size, device_id=device)
    else:
        dist.init_process_group("gloo", store=store, rank=rank, world_size=size)
    inbox = Inbox()
    arena = Arena() if available() else None
    addresses = _exchange(_address(node, inbox, arena), size)
    world = World(rank, size, device, network or Machines(tuple(a.node for a in addresses)), inbox,
                  nccl=Nccl() if backend == "nccl" else None)
    world.wires = _meet_peers(world, addresses, arena)
    comm = ProcessCommunicator(world, list(range(size)))
    if len({address.clock for address in addresses}) > 1:
        world.offset = clock_offset(comm)
    return comm


def disconnect(comm: ProcessCommunicator) -> None:
    """Leave together with all ranks."""
    if comm.world.wires is not None:
        comm.world.wires.close(comm.rank, comm.size)
    dist.destroy_process_group()


def _exchange(mine: Address, size: int) -> list[Address]:
    """Every rank's address, by rank."""
    text = json.dumps(asdict(mine)).encode().ljust(_ADDRESS)
    all_texts = [torch.empty(_ADDRESS, dtype=torch.uint8) for _ in range(size)]
    dist.all_gather(all_texts, torch.frombuffer(bytearray(text), dtype=torch.uint8))
    return [Address(**json.loads(text.numpy().tobytes())) for text in all_texts]


def _address(node: int, inbox: Inbox, arena: Arena | None) -> Address:
    clock = _text("/proc/sys/kernel/random/boot_id") or socket.gethostname()
    if arena is None or os.environ.get("MLSYSLAB_SHARED_MEMORY") == "0":
        return Address(node, clock, "")
    memory = f"{node} {clock} {os.readlink('/proc/self/ns/pid')} {os.getuid()}"
    return Address(node, clock, memory, inbox.address, arena.address)


def _text(path: str) -> str:
    return Path(path).read_text().strip() if os.path.exists(path) else ""


def _meet_peers(world: World, addresses: list[Address], arena: Arena | None) -> Wires | None:
    """Give every peer its carrier; returns the wires between machines where there are any."""
    mine = addresses[world.rank].memory
    near = {peer for peer, address in enumerate(addresses) if mine and address.memory == mine}
    wires = None
    if len({address.memory for address in addresses}) > 1 or not mine:  # the same on every rank
        group = dist.new_group(backend="gloo", timeout=_LONG)
        wires = Wires(group, world.inbox.writer) if world.size > 1 else None
    for peer, address in enumerate(addresses):
        if peer in near - {world.rank}:
            world.carriers[peer] = SharedCarrier(arena, address.inbox, address.arena)
        elif peer != world.rank:
            world.carriers[peer] = GlooCarrier(wires, peer)
    return wires


def begin(comm: ProcessCommunicator) -> None:
    """Wait until all ranks are there; the last one's arrival is time 0."""
    world = comm.world
    arrivals = comm.meet([int((time.monotonic() + world.offset) * 1e9)])
    world.base = max(arrival for (arrival,) in arrivals) / 1e9


def clock_offset(comm: ProcessCommunicator, rounds: int = 16) -> float:
    """Seconds to add to this rank's clock to read rank 0's.

    Rank 0 answers with its time; of several answers the one that came back soonest says it best (Cristian 1989).
    """
    if comm.rank == 0:
        for peer in range(1, comm.size):
            for _ in range(rounds):
                _word(comm, "recv", peer)
                _word(comm, "send", peer, time.monotonic())
        return 0.0
    best = (float("inf"), 0.0)
    for _ in range(rounds):
        asked = time.monotonic()
        _word(comm, "send", 0)
        there = _word(comm, "recv", 0)
        answered = time.monotonic()
        best = min(best, (answered - asked, there - (asked + answered) / 2))
    return best[1]


def _word(comm: ProcessCommunicator, kind: str, peer: int, value: float = 0.0) -> float:
    """Send or receive one number outside the trace."""
    tensor = torch.tensor(value, dtype=torch.float64)
    world = comm.world
    world.wait([world.post(kind, tensor, comm.ranks[peer], comm.context, 0, traced=False)])
    return tensor.item()


def keep_freed_memory() -> None:
    """Let this process keep the memory of freed tensors for new ones.

    By default glibc hands large blocks back to the system at once, and a page that is new to a process costs several times
    what copying it does: an all-reduce that needs a work buffer then takes twice as long.
    """
    with contextlib.suppress(AttributeError, OSError):  # not glibc
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(_M_MMAP_MAX, 0)
        mallopt(_M_TRIM_THRESHOLD, -1)


def give_back_freed_memory() -> None:
    """Give the system what freed tensors leave, once: after something large that doesn't come again."""
    with contextlib.suppress(AttributeError, OSError):  # not glibc
        ctypes.CDLL(None).malloc_trim(0)


def threads_a_rank(ranks: int) -> int:
    """Threads that each of `ranks` ranks of this machine may compute with."""
    cores = len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1
    return max(1, cores // ranks)
