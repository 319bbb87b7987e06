"""Stage 3: of the parameters, too, a rank keeps its shard, and gathers a layer when it computes with it (P_os+g+p)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn
from torch.utils._pytree import tree_leaves

from mlsyslab.comm import Communicator
from mlsyslab.zero.engine import Engine
from mlsyslab.zero.flat import Flat, Named
from mlsyslab.zero.gradient import Gradient
from mlsyslab.zero.own import MakeOptimizer
from mlsyslab.zero.stage2 import UNDER_WAY
from mlsyslab.zero.units import Unit, units_of


class Stage3(Engine):
    """Gather, use, free: hooks around every unit's forward and backward.

    A unit's parameters are gathered before its forward and freed after it, gathered again before its backward, and freed
    when its gradients have been reduced to shards: 3M (p-1)/p elements a step, 1/p of everything that is kept.

    While a unit computes, the next one's all-gather is under way: which is next has been seen in the pass before. Every
    rank has to run the same units in the same order.
    """

    stage = 3

    def __init__(self, comm: Communicator, model: nn.Module, optimizer: MakeOptimizer,
                 units: Sequence[nn.Module] | None = None, prefetch: int = 1, overlap: bool = True, offload: bool = False):
        self.chosen, self.prefetch = units, prefetch
        self.arriving: set[Flat] = set()  # flats whose all-gather is under way
        self.entered: list[Unit] = []  # units that backward is in
        self.unreduced: list[Unit] = []  # units whose gradients this backward has not reduced yet
        self.reducing = 0  # reduce-scatters under way
        self.next: dict[Unit, Unit] = {}  # which unit was run after a unit, in the last forward
        self.before: dict[Unit, Unit] = {}
        self.last_run: Unit | None = None
        super().__init__(comm, model, optimizer, overlap, offload)
        self.gradient_of = {gradient.flat: gradient for gradient in self.gradients}
        self._hook()

    def _lay_out(self, parameters: list[Named]) -> list[Flat]:
        self.units = units_of(self.model, self.chosen, parameters, self.comm.size)
        return [flat for unit in self.units for flat in unit.flats]

    def _shard(self, flat: Flat) -> torch.Tensor:
        shard = flat.parts(flat.whole)[self.comm.rank].clone()
        self.ledger.take("parameters", shard.nbytes)
        flat.close()
        return shard

    def _hook(self) -> None:
        self.model.register_forward_pre_hook(lambda *_: self._begin_forward())
        for unit in self.units:
            unit.module.register_forward_pre_hook(lambda *_, unit=unit: self._enter_forward(unit))
            unit.module.register_forward_hook(lambda _module, _given, output, unit=unit: self._leave_forward(unit, output))
        self.model.register_forward_hook(lambda *_: self._free_all())

    # -- gather and free ----------------------------------------------------------------------------------------------

    def _gather(self, unit: Unit) -> None:
        """Begin to make the parameters of `unit` whole, where they aren't yet and nothing has begun."""
        if self._is_open(unit):
            return
        for flat in unit.flats:
            flat.open()
            self.ledger.take("parameters", flat.nbytes)
            flat.parts(flat.whole)[self.comm.rank].copy_(self.shards[flat])
            self.arriving.add(flat)
            self._all_gather(flat, lambda flat=flat: self._show(flat))

    def _show(self, flat: Flat) -> None:
        """The all-gather of `flat` has ended."""
        self.arriving.discard(flat)
        flat.show()

    def _need(self, unit: Unit) -> None:
        """Return when the parameters of `unit` are whole."""
        self._gather(unit)
        self._arrive(unit)

    def _arrive(self, unit: Unit) -> None:
        while not self.arriving.isdisjoint(unit.flats):
            self.lane.wait_one()

    def _free(self, unit: Unit) -> None:
        """Keep of `unit` this rank's shard alone."""
        if self._is_open(unit):
            self._arrive(unit)
            for flat in unit.flats:
                flat.close()
                self.ledger.give("parameters", flat.nbytes)

    def _free_all(self) -> None:
        """Free what no backward is in: units that were gathered ahead and not run, or whose forward failed."""
        for unit in self.units:
            if unit not in self.entered:
                self._free(unit)

    def _is_open(self, unit: Unit) -> bool:
        return any(flat.is_open for flat in unit.flats)

    # -- forward ------------------------------------------------------------------------------------------------------

    def _begin_forward(self) -> None:
        self._free_all()
        self.last_run = None

    def _enter_forward(self, unit: Unit) -> None:
        if unit not in self.entered:  # else backward recomputes a forward
            if self.last_run is not None:
                self.next[self.last_run], self.before[unit] = unit, self.last_run
            self.last_run = unit
        self._need(unit)
        self._prefetch(unit, self.next)

    def _leave_forward(self, unit: Unit, output: Any) -> None:
        if unit in self.entered:
            return
        self._free(unit)
        outputs = tensors_in(unit, output)
        if any(tensor.requires_grad for tensor in outputs):
            unit.uses += 1
            torch.autograd.graph.register_multi_grad_hook(
                [tensor for tensor in outputs if tensor.requires_grad], lambda _: self._enter_backward(unit), mode="any")

    def _prefetch(self, unit: Unit, following: dict) -> None:
        for _ in range(self.prefetch):
            unit = following.get(unit)
            if unit is None:
                return
            self._gather(unit)

    # -- backward -----------------------------------------------------------------------------------------------------

    def _enter_backward(self, unit: Unit) -> None:
        """Backward has come to the output of `unit`, so it is through with all that was run after it."""
        for other in [other for other in self.entered if not (other.holds(unit) or unit.holds(other))]:
            self._leave_backward(other)
        unit.uses -= 1
        if unit not in self.entered:
            self.entered.append(unit)
        self._need(unit)
        self._prefetch(unit, self.before)

    def _leave_backward(self, unit: Unit) -> None:
        self.entered.remove(unit)
        self._free(unit)
        if unit.uses <= 0:  # else it was run several times, and the rest of its gradient is still to come
            self._reduce(unit)

    def _take(self, gradient: Gradient, i: int, found: torch.Tensor) -> None:
        gradient.hold(i, found)

    def _reduce(self, unit: Unit) -> None:
        """Sum up the gradients of `unit` over all ranks, and keep this rank's shard."""
        if unit not in self.unreduced:
            return
        self.unreduced.remove(unit)
        for flat in unit.flats:
            if flat.trained:
                self._reduce_flat(self.gradient_of[flat])

    def _reduce_flat(self, gradient: Gradient) -> None:
        while self.reducing >= UNDER_WAY:
            self.lane.wait_one()
        self.reducing += 1
        self._reduce_scatter(gradient, lambda: self._reduced(gradient))

    def _reduced(self, gradient: Gradient) -> None:
        self.reducing -= 1
        gradient.keep(self.comm.rank)

    def _begin_backward(self) -> None:
        super()._begin_backward()
        self.unreduced = list(self.units)

    def _end_backward(self) -> None:
        for unit in list(self.entered):
            self._leave_backward(unit)
        for unit in list(self.unreduced):
            self._reduce(unit)
        self.lane.wait()
        self._free_all()

    @contextmanager
    def whole(self) -> Iterator[None]:
        for unit in self.units:
            self._need(unit)
        try:
            yield
        finally:
            self._free_all()


def tensors_in(unit: Unit, output: Any) -> list[torch.Tensor]:
    """The tensors that a unit gives out: backward enters it by their gradients."""
    found = [leaf for leaf in tree_leaves(output) if isinstance(leaf, torch.Tensor)]
    if not found:
        raise TypeError(f"{unit.name or 'the model'} gives {type(output).__name__}, in which stage 3 finds no tensor: let "
                        "it give tensors, in tuples, lists or dicts, or choose other `units`")
    return found
