"""The collectives as they are called: arguments are checked, the algorithm is looked up, the result is new.

The algorithms (`mst`, `ring`, `composed`, …) work in place on contiguous tensors and know nothing of this file.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from mlsyslab.collectives import composed, exchange, halving, hierarchical, mst, ring
from mlsyslab.collectives.auto import choose_for
from mlsyslab.collectives.parts import Parts, even_lengths
from mlsyslab.comm import Communicator


def _whole(algorithm: Callable) -> Callable:
    """An algorithm on a whole tensor, called with its parts."""
    return lambda comm, parts, *rest: algorithm(comm, parts[:], *rest)


def _barrier_short(comm: Communicator) -> None:
    composed.all_reduce_short(comm, torch.empty(0), "sum")


#: What each operation can be done by. "auto", which picks one of them by cost, goes with every operation.
ALGORITHMS: dict[str, dict[str, Callable]] = {
    "broadcast": {"mst": _whole(mst.broadcast), "ring": composed.broadcast_long, "halving": halving.broadcast,
                  "hierarchical": _whole(hierarchical.broadcast)},
    "reduce": {"mst": _whole(mst.reduce), "ring": composed.reduce_long, "halving": halving.reduce,
               "hierarchical": _whole(hierarchical.reduce)},
    "scatter": {"mst": mst.scatter, "hierarchical": hierarchical.scatter},
    "gather": {"mst": mst.gather, "hierarchical": hierarchical.gather},
    "all_gather": {"mst": composed.all_gather_short, "ring": ring.all_gather, "halving": halving.all_gather,
                   "hierarchical": hierarchical.all_gather},
    "reduce_scatter": {"mst": composed.reduce_scatter_short, "ring": ring.reduce_scatter, "halving": halving.reduce_scatter,
                       "hierarchical": hierarchical.reduce_scatter},
    "all_reduce": {"mst": _whole(composed.all_reduce_short), "ring": composed.all_reduce_long, "halving": halving.all_reduce,
                   "doubling": _whole(halving.all_reduce_whole), "hierarchical": _whole(hierarchical.all_reduce)},
    "all_to_all": {"bruck": exchange.bruck, "pairwise": exchange.pairwise},
    "barrier": {"mst": _barrier_short, "dissemination": exchange.dissemination},
}

OPS = ("sum", "product", "min", "max", "mean")

_INTEGERS = (torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)
_FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
_COMPLEX = (torch.complex64, torch.complex128)

#: What each op combines. The sum of bools is "or", their product "and", as torch and NCCL have it.
REDUCIBLE = {"sum": _INTEGERS + _FLOATS + _COMPLEX, "product": _INTEGERS + _FLOATS + _COMPLEX, "min": _INTEGERS + _FLOATS,
             "max": _INTEGERS + _FLOATS, "mean": _FLOATS + _COMPLEX}


def broadcast(comm: Communicator, tensor: torch.Tensor, root: int = 0, *, algorithm: str = "auto") -> torch.Tensor:
    """The root's `tensor`, on every rank.

    tensor: any shape, the same shape and dtype on every rank; only the root's values count.
    """
    _check_tensor("broadcast", tensor)
    _check_root("broadcast", root, comm.size)
    flat = _flat(tensor) if comm.rank == root else torch.empty_like(tensor, memory_format=torch.contiguous_format).view(-1)
    parts = Parts(flat, even_lengths(len(flat), comm.size))
    _run("broadcast", algorithm, comm, flat.nbytes, parts, root)
    return flat.view(tensor.shape)


def reduce(comm: Communicator, tensor: torch.Tensor, root: int = 0, op: str = "sum", *,
           algorithm: str = "auto") -> torch.Tensor | None:
    """Every rank's `tensor` combined element by element, on the root; None elsewhere.

    tensor: any shape, the same shape and dtype on every rank.  op: "sum", "product", "min", "max" or "mean".
    """
    _check_tensor("reduce", tensor)
    _check_root("reduce", root, comm.size)
    _check_op("reduce", op, tensor.dtype)
    flat = _flat(tensor)
    parts = Parts(flat, even_lengths(len(flat), comm.size))
    _run("reduce", algorithm, comm, flat.nbytes, parts, root, op)
    return _averaged(flat, op, comm.size).view(tensor.shape) if comm.rank == root else None


def scatter(comm: Communicator, tensor: torch.Tensor, root: int = 0, *, lengths: Sequence[int] | None = None,
            algorithm: str = "auto") -> torch.Tensor:
    """Rank r's part of the root's `tensor`, on rank r.

    tensor: (rows, …), the same shape and dtype on every rank; only the root's values count.
    lengths: the rows of each rank's part; by default as `torch.tensor_split` cuts, the first parts longer by one.
    """
    _check_tensor("scatter", tensor, cut=True)
    _check_root("scatter", root, comm.size)
    lengths = _lengths_of("scatter", tensor, lengths, comm.size)
    whole = tensor.detach().contiguous()
    parts = Parts(whole if comm.rank == root else torch.empty_like(whole), lengths)
    _run("scatter", algorithm, comm, whole.nbytes, parts, root)
    return parts[comm.rank].clone()


def gather(comm: Communicator, tensor: torch.Tensor, root: int = 0, *, lengths: Sequence[int] | None = None,
           algorithm: str = "auto") -> torch.Tensor | None:
    """Every rank's `tensor`, one after the other in the order of ranks, on the root; None elsewhere.

    tensor: (rows, …), of the same dtype and the same shape but for dim 0 on every rank.
    lengths: the rows of each rank's tensor; by default those of this rank, the same on all.
    """
    _check_tensor("gather", tensor, cut=True)
    _check_root("gather", root, comm.size)
    parts = _parts_around("gather", tensor, lengths, comm)
    _run("gather", algorithm, comm, parts.tensor.nbytes, parts, root)
    return parts[:] if comm.rank == root else None


def all_gather(comm: Communicator, tensor: torch.Tensor, *, lengths: Sequence[int] | None = None,
               algorithm: str = "auto") -> torch.Tensor:
    """Every rank's `tensor`, one after the other in the order of ranks, on every rank.

    tensor: (rows, …), of the same dtype and the same shape but for dim 0 on every rank.
    lengths: the rows of each rank's tensor; by default those of this rank, the same on all.
    """
    _check_tensor("all_gather", tensor, cut=True)
    parts = _parts_around("all_gather", tensor, lengths, comm)
    _run("all_gather", algorithm, comm, parts.tensor.nbytes, parts)
    return parts[:]


def reduce_scatter(comm: Communicator, tensor: torch.Tensor, op: str = "sum", *, lengths: Sequence[int] | None = None,
                   algorithm: str = "auto") -> torch.Tensor:
    """Rank r's part of every rank's `tensor` combined element by element, on rank r.

    tensor: (rows, …), the same shape and dtype on every rank.  op: "sum", "product", "min", "max" or "mean".
    lengths: the rows of each rank's part; by default as `torch.tensor_split` cuts, the first parts longer by one.
    """
    _check_tensor("reduce_scatter", tensor, cut=True)
    _check_op("reduce_scatter", op, tensor.dtype)
    lengths = _lengths_of("reduce_scatter", tensor, lengths, comm.size)
    parts = Parts(_copy(tensor), lengths)
    _run("reduce_scatter", algorithm, comm, parts.tensor.nbytes, parts, op)
    return _averaged(parts[comm.rank].clone(), op, comm.size)


def all_reduce(comm: Communicator, tensor: torch.Tensor, op: str = "sum", *, algorithm: str = "auto") -> torch.Tensor:
    """Every rank's `tensor` combined element by element, on every rank.

    tensor: any shape, the same shape and dtype on every rank.  op: "sum", "product", "min", "max" or "mean".
    """
    _check_tensor("all_reduce", tensor)
    _check_op("all_reduce", op, tensor.dtype)
    flat = _flat(tensor)
    parts = Parts(flat, even_lengths(len(flat), comm.size))
    _run("all_reduce", algorithm, comm, flat.nbytes, parts, op)
    return _averaged(flat, op, comm.size).view(tensor.shape)


def all_to_all(comm: Communicator, tensor: torch.Tensor, *, algorithm: str = "auto") -> torch.Tensor:
    """Part r of every rank's `tensor`, one after the other in the order of ranks, on rank r.

    tensor: (rows, …), the same shape and dtype on every rank, cut as `torch.tensor_split` cuts.
    """
    _check_tensor("all_to_all", tensor, cut=True)
    given = Parts(tensor.detach().contiguous(), even_lengths(len(tensor), comm.size))
    rows = len(given[comm.rank])
    taken = Parts(given.tensor.new_empty((rows * comm.size, *tensor.shape[1:])), [rows] * comm.size)
    _run("all_to_all", algorithm, comm, given.tensor.nbytes, given, taken)
    return taken[:]


def barrier(comm: Communicator, *, algorithm: str = "auto") -> None:
    """Return when every rank has called it, by empty messages that the trace shows."""
    _run("barrier", algorithm, comm, 0)


# -- tensors in and out -----------------------------------------------------------------------------------------------


def _copy(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.detach().clone(memory_format=torch.contiguous_format)


def _flat(tensor: torch.Tensor) -> torch.Tensor:
    """A copy as one row of elements, so that a tensor of any shape is cut evenly."""
    return _copy(tensor).view(-1)


def _parts_around(name: str, tensor: torch.Tensor, lengths: Sequence[int] | None, comm: Communicator) -> Parts:
    """Room for the parts of all ranks, this rank's filled."""
    rows = len(tensor)
    lengths = [rows] * comm.size if lengths is None else _check_lengths(name, lengths, comm.size)
    if lengths[comm.rank] != rows:
        raise ValueError(f"{name}: lengths={lengths} says that rank {comm.rank} has {lengths[comm.rank]} rows, "
                         f"but its tensor has {rows}")
    parts = Parts(tensor.new_empty((sum(lengths), *tensor.shape[1:])), lengths)
    parts[comm.rank].copy_(tensor.detach())
    return parts


def _lengths_of(name: str, tensor: torch.Tensor, lengths: Sequence[int] | None, p: int) -> list[int]:
    if lengths is None:
        return even_lengths(len(tensor), p)
    lengths = _check_lengths(name, lengths, p)
    if sum(lengths) != len(tensor):
        raise ValueError(f"{name}: lengths={lengths} are {sum(lengths)} rows together, but the tensor has {len(tensor)}")
    return lengths


def _averaged(total: torch.Tensor, op: str, p: int) -> torch.Tensor:
    """A mean was summed on its way: divide it, once."""
    return total.div_(p) if op == "mean" else total


# -- arguments --------------------------------------------------------------------------------------------------------


def check_algorithm(op: str, algorithm: str) -> None:
    """Raise an error unless `op` can be done by `algorithm`."""
    if op not in ALGORITHMS:
        raise ValueError(f"op={op!r}: an operation is one of {', '.join(ALGORITHMS)}")
    if algorithm not in ALGORITHMS[op] and algorithm != "auto":
        raise ValueError(f"{op}(algorithm={algorithm!r}): {op} can be done by {', '.join(ALGORITHMS[op])}, or auto")


def _run(op: str, algorithm: str, comm: Communicator, nbytes: int, *arguments: Any) -> None:
    check_algorithm(op, algorithm)
    do = ALGORITHMS[op][choose_for(comm, op, nbytes) if algorithm == "auto" else algorithm]
    with comm.ahead():
        do(comm, *arguments)


def _check_tensor(name: str, tensor: torch.Tensor, cut: bool = False) -> None:
    if not isinstance(tensor, torch.Tensor):
        raise TypeError(f"{name} takes a tensor, not {type(tensor).__name__}")
    if tensor.layout != torch.strided:
        raise TypeError(f"{name} takes a dense tensor, not one of layout {tensor.layout}: call .to_dense() first")
    if cut and tensor.dim() == 0:
        raise ValueError(f"{name} works along dim 0, and a scalar has none: pass tensor.reshape(1)")


def _check_root(name: str, root: int, p: int) -> None:
    if type(root) is not int:
        raise TypeError(f"{name}(root={root!r}): a rank is an int, not {type(root).__name__}")
    if not 0 <= root < p:
        raise ValueError(f"{name}(root={root}): there is no rank {root}; ranks are 0 … {p - 1}")


def _check_op(name: str, op: str, dtype: torch.dtype) -> None:
    if op not in OPS:
        raise ValueError(f"{name}(op={op!r}): a reduction is one of {', '.join(OPS)}")
    if dtype in REDUCIBLE[op]:
        return
    allowed = ", ".join(_name(kind) for kind in REDUCIBLE[op])
    if op == "mean" and dtype in _INTEGERS:
        hint = ": a mean of integers is no integer. Convert with tensor.float() first, or sum and divide as you need"
    elif op in ("min", "max") and dtype in _COMPLEX:
        hint = ": complex numbers have no order"
    else:
        hint = ""
    raise TypeError(f"{name}(op={op!r}) of {_name(dtype)}{hint}; {op} goes with {allowed}")


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _check_lengths(name: str, lengths: Sequence[int], p: int) -> list[int]:
    lengths = list(lengths)
    if len(lengths) != p or any(type(rows) is not int or rows < 0 for rows in lengths):
        raise ValueError(f"{name}(lengths={lengths}): one whole number of rows, 0 or more, for each of {p} ranks")
    return lengths
