"""ZeRO against torch: stage 1 against ZeroRedundancyOptimizer, stage 3 against FSDP2 (fully_shard).

Same model, batch, optimizer (fused AdamW), ranks and backend (processes, Gloo), in turns within one run. A step is forward,
backward and update; a time is that of the slowest rank, from a barrier on. ZeroRedundancyOptimizer (over DDP) is taken as it
is by default, and with the views that save it memory. On CPUs FSDP2 gathers nothing ahead and overlaps nothing, which takes
less memory; so ours is also taken without.

Memory is how far a rank's resident memory rises above what it was before the model was made, in processes of their own,
which give back at once what they free; memory that ranks share counts in parts. It is that of the rank that rises most.
"""

from __future__ import annotations

import ctypes
import statistics
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel

from mlsyslab import zero
from mlsyslab.bench.report import summarize
from mlsyslab.comm import Communicator, launch

RANKS = 2, 4
LAYERS, WIDTH, ROWS = 8, 1024, 64  # 8.4 million parameters; rows a rank
WARM_UP, STEPS = 3, 11

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD, _M_MMAP_MAX = -1, -3, -4  # of malloc.h

Step = Callable[[], None]
ADAMW = partial(torch.optim.AdamW, lr=1e-4, fused=True)


def rows() -> Iterator[dict[str, Any]]:
    for p in RANKS:
        for peer, makers in MAKERS.items():
            times = launch(_measure, [makers] * p, backend="gloo").results
            ours, theirs = ([max(of_ranks) for of_ranks in zip(*samples, strict=True)]
                            for samples in zip(*times, strict=True))
            memory = [max(launch(_peak, [maker] * p, backend="gloo").results) for maker in makers]
            yield {"against": peer, "p": p, "ours": summarize(ours), "torch": summarize(theirs),
                   "ratio": statistics.median(ours) / statistics.median(theirs), "our MB": memory[0] / 1e6,
                   "torch MB": memory[1] / 1e6, "memory ratio": memory[0] / memory[1]}


# -- steps ------------------------------------------------------------------------------------------------------------


def _model(width: int) -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(*(nn.Sequential(nn.Linear(width, width), nn.ReLU()) for _ in range(LAYERS)))


def _ours(comm: Communicator, width: int, stage: int, **options: Any) -> Step:
    model, x = _model(width), torch.randn(ROWS, width)
    engine = zero.shard(comm, model, ADAMW, stage, units=list(model) if stage == 3 else None, **options)

    def step() -> None:
        engine.backward(nn.functional.mse_loss(engine(x), x))
        engine.step()

    return step


def _zero_redundancy(comm: Communicator, width: int, views: bool) -> Step:
    model, x = DistributedDataParallel(_model(width), gradient_as_bucket_view=views), torch.randn(ROWS, width)
    optimizer = ZeroRedundancyOptimizer(model.parameters(), ADAMW.func, parameters_as_bucket_view=views, **ADAMW.keywords)
    return _torch_step(model, optimizer, x)


def _fully_sharded(comm: Communicator, width: int) -> Step:
    model, mesh, x = _model(width), init_device_mesh("cpu", (comm.size,)), torch.randn(ROWS, width)
    for layer in model:
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    return _torch_step(model, ADAMW(model.parameters()), x)


def _torch_step(model: nn.Module, optimizer: torch.optim.Optimizer, x: torch.Tensor) -> Step:
    def step() -> None:
        nn.functional.mse_loss(model(x), x).backward()
        optimizer.step()
        optimizer.zero_grad()

    return step


#: by peer: our step, and the peer's
MAKERS = {"ZeroRedundancyOptimizer": (partial(_ours, stage=1), partial(_zero_redundancy, views=False)),
          "… with views": (partial(_ours, stage=1), partial(_zero_redundancy, views=True)),
          "FSDP2": (partial(_ours, stage=3), _fully_sharded),
          "FSDP2, ours without overlap": (partial(_ours, stage=3, overlap=False, prefetch=0), _fully_sharded)}


# -- measured ---------------------------------------------------------------------------------------------------------


def _measure(comm: Communicator, makers: tuple[Callable[[Communicator, int], Step], ...]) -> tuple[list[float], list[float]]:
    """Times of our steps and of torch's, in turns; whose turn is first alternates."""
    torch.set_num_threads(1)
    steps = [make(comm, WIDTH) for make in makers]
    taken: list[list[float]] = [[], []]
    for i in range(WARM_UP + STEPS):
        for k in (0, 1) if i % 2 else (1, 0):
            taken[k].append(_seconds(comm, steps[k]))
    return taken[0][WARM_UP:], taken[1][WARM_UP:]


def _seconds(comm: Communicator, step: Step) -> float:
    comm.barrier()
    start = time.perf_counter()
    step()
    return time.perf_counter() - start


def _peak(comm: Communicator, make: Callable[[Communicator, int], Step]) -> int:
    """Bytes by which this process grows at most, from before the model to the end of its steps."""
    torch.set_num_threads(1)
    _free_at_once()
    small = make(comm, 8)
    for _ in range(WARM_UP):  # so that what is imported and set up once isn't counted
        small()
    before = _memory("status", "VmRSS")
    Path("/proc/self/clear_refs").write_text("5")  # the peak is counted anew from here
    step = make(comm, WIDTH)
    for _ in range(WARM_UP):
        step()
    of_others = _memory("status", "RssShmem") - _memory("smaps_rollup", "Pss_Shmem")  # their part of what is shared
    return _memory("status", "VmHWM") - before - of_others


def _free_at_once() -> None:
    """Let glibc give every large block back when it is freed: what is resident is then what is held, for both."""
    libc = ctypes.CDLL(None)
    for option, value in ((_M_MMAP_MAX, 1 << 16), (_M_MMAP_THRESHOLD, 1 << 16), (_M_TRIM_THRESHOLD, 1 << 16)):
        libc.mallopt(option, value)


def _memory(file: str, name: str) -> int:
    """Bytes that the system tells of this process: VmRSS, resident now; VmHWM, at most; Pss_…, what is shared in parts."""
    text = Path("/proc/self", file).read_text()
    return 1024 * int(next(line.split()[1] for line in text.splitlines() if line.startswith(name)))
