"""Whether all ranks have the same model, found out before the first message goes wrong."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import nn

from mlsyslab.collectives import broadcast
from mlsyslab.comm import Communicator
from mlsyslab.comm.communicator import describe
from mlsyslab.data_parallel.buckets import MIB, PART, assign


def check_same(comm: Communicator, module: nn.Module) -> None:
    """Raise ValueError, with parameter and rank, where this rank's model differs from rank 0's."""
    here = _description(module)
    there = _from_rank_0(comm, here)
    for mine, rank_0s in zip(here, there, strict=False):
        if mine != rank_0s:
            raise ValueError(f"rank {comm.rank} has another model than rank 0: here {mine}, there {rank_0s}")
    if len(here) != len(there):
        longer, who = (here, f"rank {comm.rank}") if len(here) > len(there) else (there, "rank 0")
        first = longer[min(len(here), len(there))]
        raise ValueError(f"rank {comm.rank} has another model than rank 0: only {who} has {first}")


def copy_from_rank_0(comm: Communicator, tensors: Sequence[torch.Tensor]) -> None:
    """Let every rank have rank 0's values: some tensors of a dtype at a time, about 1 MiB."""
    for together in assign([tensor.nbytes for tensor in tensors], MIB, MIB, [tensor.dtype for tensor in tensors]):
        chosen = [tensors[i] for i in together]
        row = torch.cat([tensor.detach().reshape(-1) for tensor in chosen])
        for piece in row.split(PART // row.itemsize):
            piece.copy_(broadcast(comm, piece))
        if comm.rank:
            for tensor, values in zip(chosen, row.split([tensor.numel() for tensor in chosen]), strict=True):
                tensor.detach().copy_(values.view(tensor.shape))


def _description(module: nn.Module) -> list[str]:
    """One line for each parameter and buffer; a parameter that has two names is one."""
    return [f"parameter {name!r}, {describe(p)}{'' if p.requires_grad else ', frozen'}"
            for name, p in module.named_parameters()] + \
           [f"buffer {name!r}, {describe(b)}" for name, b in module.named_buffers()]


def _from_rank_0(comm: Communicator, lines: list[str]) -> list[str]:
    """Rank 0's lines, on every rank."""
    text = "\n".join(lines).encode()
    length = broadcast(comm, torch.tensor([len(text)], device=comm.device)).item()
    data = torch.frombuffer(bytearray(text.ljust(length, b" ")[:length]), dtype=torch.uint8).to(comm.device)
    return broadcast(comm, data).cpu().numpy().tobytes().decode().split("\n")
