"""The same function on a cluster: `torchrun … -m mlsyslab.run module:function`, or `srun python -m mlsyslab.run …`.

Whoever starts the processes tells each its rank in the environment; this module reads it, connects the ranks and runs the
function on all of them. Rank 0 prints what each returned, and the trace.
"""

from __future__ import annotations

import argparse
import importlib
import os
import re
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch.distributed as dist
from torch.distributed.elastic.multiprocessing.errors import record

from mlsyslab.comm.connect import begin, connect, disconnect, keep_freed_memory
from mlsyslab.comm.errors import Deadlock
from mlsyslab.comm.launch import BACKENDS, choose_backend, merge
from mlsyslab.comm.process import ProcessCommunicator
from mlsyslab.comm.trace import Trace
from mlsyslab.comm.world import picture

HELP = """Run fn(comm, input) on every rank of a job that torchrun or Slurm has started.

  torchrun --nnodes 2 --nproc-per-node 8 --rdzv-backend c10d --rdzv-endpoint HOST:29500 \\
      -m mlsyslab.run module:function --inputs module:function
  srun --ntasks 16 python -m mlsyslab.run module:function

On one machine, `mlsyslab.launch(fn, inputs)` needs neither."""


@dataclass(frozen=True)
class Place:
    """Where a process stands in its job: `rank` of `size`, `local_rank` of `local_size` on machine `node`."""

    rank: int
    size: int
    local_rank: int
    local_size: int
    node: int


class Misuse(ValueError):
    """What the caller can put right: shown without a traceback."""


def find_place(environ: Mapping[str, str] = os.environ) -> Place:
    """Read this process's place from what torchrun or srun has set, and set what `torch.distributed` wants to know."""
    if "RANK" in environ and "WORLD_SIZE" in environ:
        names = "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK"
        rank, size, local_rank, local_size, node = (_number(environ, name) for name in names)
        return Place(rank, size, local_rank, local_size, node)
    if "SLURM_PROCID" in environ:
        return _slurm_place(environ)
    raise Misuse("neither torchrun nor srun has started this process (RANK and SLURM_PROCID are not set).\n\n" + HELP)


def _slurm_place(environ: Mapping[str, str]) -> Place:
    rank, size, local_rank, node = (_number(environ, name) for name in
                                    ("SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID", "SLURM_NODEID"))
    tasks = environ.get("SLURM_STEP_TASKS_PER_NODE") or environ.get("SLURM_TASKS_PER_NODE", str(size))
    hosts = environ.get("SLURM_STEP_NODELIST") or environ.get("SLURM_JOB_NODELIST", "")
    local_size = tasks_per_node(tasks)[node]
    if "MASTER_ADDR" not in environ:
        os.environ["MASTER_ADDR"] = first_host(hosts)
    os.environ.setdefault("MASTER_PORT", str(20000 + int(environ.get("SLURM_JOB_ID", "0")) % 20000))
    return Place(rank, size, local_rank, local_size, node)


def _number(environ: Mapping[str, str], name: str) -> int:
    try:
        return int(environ[name])
    except (KeyError, ValueError):
        raise Misuse(f"{name}={environ.get(name)!r}: torchrun or srun sets it to a whole number; start all ranks with "
                     f"one of them") from None


def first_host(nodes: str) -> str:
    """The first host of a Slurm node list: `gpu[03-07,12],cpu1` begins with `gpu03`."""
    match = re.match(r"([^\[,]+)(?:\[(\d+)[^\]]*\]([^,\[]*))?", nodes)
    if match is None:
        raise Misuse(f"SLURM_JOB_NODELIST={nodes!r} names no host: set MASTER_ADDR to the host of rank 0")
    return "".join(part or "" for part in match.groups())


def tasks_per_node(counts: str) -> list[int]:
    """Slurm's short form of the tasks on each node: `4(x2),3` is [4, 4, 3]."""
    tasks = []
    for part in counts.split(","):
        match = re.fullmatch(r"(\d+)(?:\(x(\d+)\))?", part)
        if match is None:
            raise Misuse(f"SLURM_TASKS_PER_NODE={counts!r} should read like 4(x2),3")
        tasks += [int(match[1])] * int(match[2] or 1)
    return tasks


def load(name: str) -> Any:
    """What `module:name` names."""
    module, colon, attribute = name.partition(":")
    if not (module and colon and attribute):
        raise Misuse(f"{name!r}: give module:function, such as examples.ring:main")
    if "" not in sys.path and os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        return getattr(importlib.import_module(module), attribute)
    except ModuleNotFoundError as error:
        if error.name != module.split(".")[0] and error.name != module:
            raise
        raise Misuse(f"{name!r}: there is no module {error.name!r} in {os.getcwd()} or on PYTHONPATH") from None
    except AttributeError:
        raise Misuse(f"{name!r}: the module {module} has no {attribute!r}") from None


def input_of(name: str | None, rank: int, size: int) -> Any:
    """This rank's input: of `module:inputs`, which is a list of one entry a rank or a function of the world size."""
    if name is None:
        return None
    inputs = load(name)
    inputs = list(inputs(size) if callable(inputs) else inputs)
    if len(inputs) != size:
        raise Misuse(f"--inputs {name} gives {len(inputs)} entries for {size} ranks: it must give one a rank")
    return inputs[rank]


def run(fn: Callable, given: Any, place: Place, backend: str, trace_file: str | None, timeout: float | None) -> None:
    """Run `fn` as one rank; rank 0 prints what came of it."""
    keep_freed_memory()
    comm = connect(place.rank, place.size, backend, node=place.node, local_rank=place.local_rank)
    returned = threading.Event()
    if timeout is not None:
        _watch(comm, timeout, returned)
    begin(comm)
    result = fn(comm, given)
    trace, end = comm.world.end()
    comm.world.flush(seconds=60)
    returned.set()
    texts, whole, seconds = _collect(comm, result, trace, end)
    if place.rank == 0:
        for rank, text in enumerate(texts):
            print(f"rank {rank}: {text}")
        print(f"{seconds:.6g} s, {whole}")
        if trace_file:
            whole.to_chrome(trace_file)
    disconnect(comm)


def _watch(comm: ProcessCommunicator, timeout: float, returned: threading.Event) -> None:
    """End this process after `timeout` seconds; rank 0 first prints where all ranks are.

    The ranks' watching threads talk over a process group of their own, whatever the ranks themselves are stuck in.
    """
    group, main = dist.new_group(backend="gloo"), threading.get_ident()

    def watch() -> None:
        time.sleep(timeout)
        try:
            said: list[Any] = [None] * comm.size
            dist.all_gather_object(said, None if returned.is_set() else comm.world.position(main), group=group)
            here = {rank: position for rank, position in enumerate(said) if position is not None}
            waits = picture(here, set(range(comm.size)) - set(here))
            if comm.rank == 0:
                print(Deadlock(waits, comm.size, f"still going on after {timeout:g} s"), file=sys.stderr, flush=True)
        finally:
            os._exit(1)

    threading.Thread(target=watch, name="watch", daemon=True).start()


def _collect(comm: ProcessCommunicator, result: Any, trace: Trace, end: float) -> tuple[list[str], Trace, float]:
    """On rank 0, what all ranks returned (as text), all events, and when the last rank ended."""
    said: list[Any] = [None] * comm.size
    dist.gather_object((_short(result), list(trace), end), said if comm.rank == 0 else None, dst=0)
    if comm.rank != 0:
        return [], trace, end
    events = [event for _, events, _ in said for event in events]
    return [text for text, _, _ in said], merge(events, comm.size), max(end for _, _, end in said)


def _short(value: Any, width: int = 400) -> str:
    text = repr(value)
    return text if len(text) <= width else text[:width] + " …"


def read_arguments(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m mlsyslab.run", description=HELP,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("function", help="module:function, what one rank does: function(comm, input)")
    parser.add_argument("--inputs", metavar="module:name",
                        help="a list of one input a rank, or a function that makes it of the world size; else all are None")
    parser.add_argument("--backend", choices=BACKENDS, default="auto",
                        help="nccl (a GPU for each rank), gloo (CPU), or auto, which takes NCCL where it can")
    parser.add_argument("--timeout", metavar="SECONDS", type=float,
                        help="end a job that still goes on after so long, and say who waits for whom")
    parser.add_argument("--trace", metavar="FILE", help="write all ranks' events to FILE, for ui.perfetto.dev")
    return parser.parse_args(arguments)


@record
def main() -> None:
    options = read_arguments()
    try:
        place = find_place()
        backend = choose_backend(options.backend, place.local_size)
        fn, given = load(options.function), input_of(options.inputs, place.rank, place.size)
        if not callable(fn):
            raise Misuse(f"{options.function} is {type(fn).__name__}, not a function")
    except ValueError as error:
        sys.exit(f"python -m mlsyslab.run: {error}")
    run(fn, given, place, backend, options.trace, options.timeout)


if __name__ == "__main__":
    main()
