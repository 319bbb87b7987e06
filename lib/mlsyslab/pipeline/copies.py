"""Parameters that live in more than one place: tied weights, and the stages that two directions of a pipeline both hold.

Each place has the gradient of its own uses only; the gradient of the parameter is their sum, and every place gets it, so
that optimizers which start alike stay alike.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import nn

from mlsyslab.comm.communicator import Communicator
from mlsyslab.pipeline.schedule import Schedule

#: One weight under the names that it has in several stages: {stage: parameter's name}.
Tied = Mapping[int, str]


class Copies:
    """The shared parameters of one rank, and whom it shares them with."""

    def __init__(self, comm: Communicator, stages: Mapping[int, nn.Module], schedule: Schedule, tied: Sequence[Tied] = ()):
        self.comm = comm
        #: by group of ranks and dtype, the parameters that exactly these ranks share: of each, the copies on this rank
        self.shared: dict[tuple[tuple[int, ...], torch.dtype], list[list[nn.Parameter]]] = {}
        self.before: dict[nn.Parameter, torch.Tensor] = {}
        for names in tied:
            ranks = sorted({rank for stage in names for rank in schedule.placement[stage]})
            self._share(ranks, [_parameter(stages[stage], stage, name) for stage, name in names.items() if stage in stages])
        tied_names = {(stage, name) for names in tied for stage, name in names.items()}
        for stage, module in sorted(stages.items()):
            for name, parameter in module.named_parameters():
                if (stage, name) not in tied_names:
                    self._share(schedule.placement[stage], [parameter])

    def _share(self, ranks: Sequence[int], parameters: list[nn.Parameter]) -> None:
        distinct = [p for p in dict.fromkeys(parameters) if p.requires_grad]
        if distinct and (len(ranks) > 1 or len(distinct) > 1):
            self.shared.setdefault((tuple(ranks), distinct[0].dtype), []).append(distinct)

    def begin(self) -> None:
        """Set aside the gradients of earlier steps, which have been summed already."""
        for parameters in self.shared.values():
            for parameter in (p for copies in parameters for p in copies):
                if parameter.grad is not None:
                    self.before[parameter], parameter.grad = parameter.grad, None

    def finish(self) -> None:
        """Sum this step's gradients over all copies, and add those of earlier steps."""
        for (ranks, _), parameters in sorted(self.shared.items(), key=lambda item: (item[0][0], str(item[0][1]))):
            own = torch.cat([_sum_of_gradients(copies).reshape(-1) for copies in parameters])
            total = self._sum(own, ranks)
            for copies, part in zip(parameters, total.split([copies[0].numel() for copies in parameters]), strict=True):
                for parameter in copies:
                    before = self.before.pop(parameter, None)
                    grad = part.view_as(parameter)
                    parameter.grad = grad.clone() if before is None else before.add_(grad)

    def _sum(self, own: torch.Tensor, ranks: tuple[int, ...]) -> torch.Tensor:
        """The sum over `ranks`, added up in their order on each of them, so that it is the same to the last bit."""
        comm = self.comm
        parts = {rank: own if rank == comm.rank else torch.empty_like(own) for rank in ranks}
        others = [rank for rank in ranks if rank != comm.rank]
        comm.wait_all([comm.irecv(parts[rank], rank) for rank in others] + [comm.isend(own, rank) for rank in others])
        total = parts[ranks[0]].clone()
        for rank in ranks[1:]:
            comm.combine(total, parts[rank])
        return total


def _parameter(module: nn.Module, stage: int, name: str) -> nn.Parameter:
    found = dict(module.named_parameters(remove_duplicate=False)).get(name)
    if found is None:
        raise ValueError(f"tied: stage {stage} has no parameter {name!r}; it has "
                         f"{', '.join(n for n, _ in module.named_parameters()) or 'none'}")
    return found


def _sum_of_gradients(copies: list[nn.Parameter]) -> torch.Tensor:
    grads = [p.grad for p in copies if p.grad is not None]
    return sum(grads[1:], start=grads[0]) if grads else torch.zeros_like(copies[0])
