"""What collectives give, by definition: every rank shows what it has, and takes from that what is its.

Where a lab withholds the library's collectives, because they are the answer, these stand in for them. No message goes here;
the judge does the library's own when it does the run again, and counts those.
"""

from __future__ import annotations

from typing import Any

import torch

REDUCTIONS = {"sum": lambda stack: stack.sum(0), "product": lambda stack: stack.prod(0), "mean": lambda stack: stack.mean(0),
              "max": lambda stack: stack.amax(0), "min": lambda stack: stack.amin(0)}


def shown(comm: Any, name: str, tensor: torch.Tensor | None) -> list[torch.Tensor]:
    """Every rank's tensor, by rank of the group."""
    while not hasattr(comm, "_meet"):
        comm = comm.inner
    said = comm._meet((name, None if tensor is None else tensor.detach().clone()))
    if any(other != name for other, _ in said.values()):
        raise RuntimeError(f"not all ranks call {name} here")
    return [said[rank][1] for rank in comm.ranks]


def reduced(tensors: list[torch.Tensor], op: str) -> torch.Tensor:
    return REDUCTIONS[op](torch.stack(tensors)).to(tensors[0].dtype)


def cut(tensor: torch.Tensor, comm: Any, lengths: Any) -> torch.Tensor:
    """This rank's part."""
    parts = tensor.tensor_split(comm.size) if lengths is None else tensor.split(list(lengths))
    return parts[comm.rank].clone()


def broadcast(comm, tensor, root=0, *, algorithm="auto"):
    return shown(comm, "broadcast", tensor)[root]


def reduce(comm, tensor, root=0, op="sum", *, algorithm="auto"):
    tensors = shown(comm, "reduce", tensor)
    return reduced(tensors, op) if comm.rank == root else None


def scatter(comm, tensor, root=0, *, lengths=None, algorithm="auto"):
    return cut(shown(comm, "scatter", tensor)[root], comm, lengths)


def gather(comm, tensor, root=0, *, lengths=None, algorithm="auto"):
    tensors = shown(comm, "gather", tensor)
    return torch.cat(tensors) if comm.rank == root else None


def all_gather(comm, tensor, *, lengths=None, algorithm="auto"):
    return torch.cat(shown(comm, "all_gather", tensor))


def reduce_scatter(comm, tensor, op="sum", *, lengths=None, algorithm="auto"):
    return cut(reduced(shown(comm, "reduce_scatter", tensor), op), comm, lengths)


def all_reduce(comm, tensor, op="sum", *, algorithm="auto"):
    return reduced(shown(comm, "all_reduce", tensor), op)


def all_to_all(comm, tensor, *, algorithm="auto"):
    return torch.cat([other.tensor_split(comm.size)[comm.rank] for other in shown(comm, "all_to_all", tensor)])


def barrier(comm, *, algorithm="auto"):
    shown(comm, "barrier", None)


DEFINED = {fn.__name__: fn for fn in (broadcast, reduce, scatter, gather, all_gather, reduce_scatter, all_reduce, all_to_all,
                                      barrier)}
