"""Training without waiting: weights are updated while the pipeline runs, and every action names the version that it uses.

Which version an action computes with is written in the schedule (`2F5@3`: version 3). That alone makes the difference
between the methods; what is here carries it out:

- AMPNet (Gaunt et al. 2017) keeps one version. A microbatch goes forward with the weights of the moment and backward with
  the weights of a later one, so what comes out is the gradient of no function.
- PipeDream (Narayanan et al. 2019) stashes the version of each forward for its backward: a true gradient, but a late one.
- PipeDream-2BW (Narayanan et al. 2021) gathers the gradients of m microbatches and keeps two versions:
  W(t+1) = W(t) - lr grad(W(t-1)).
- PipeMare (Yang et al. 2021) keeps one version, lowers the rate of stages by their delay and, for the backward, estimates
  from a running mean of the updates what the weights of the forward were.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import nn

from mlsyslab.comm.communicator import Communicator
from mlsyslab.pipeline.execute import Executor, Loss, Step
from mlsyslab.pipeline.microbatches import Batch, updates
from mlsyslab.pipeline.schedule import Action, Schedule

#: Makes the optimizer of a stage, as `lambda parameters: torch.optim.SGD(parameters, lr=0.1)` does.
MakeOptimizer = Callable[[Sequence[nn.Parameter]], torch.optim.Optimizer]


@dataclass
class Training(Step):
    """A run of an asynchronous schedule.  weight_versions: the most that this rank held of one stage's weights at once."""

    weight_versions: int = 1


@dataclass(frozen=True)
class PipeMare:
    """PipeMare's two techniques (Yang et al. 2021, sections 3.1 and 3.2).

    The forward of stage s of p is tau = (2(p-s)-1)/N updates older than the update that its gradient goes into, with N
    microbatches to an update; the backward is not older at all.

    anneal: K. T1, learning-rate rescheduling: at update k a stage's rate is divided by tau^(1 - min(k/K, 1)). 0: never.
    decay:  D. T2, discrepancy correction: the backward uses w - tau delta in place of w; after each update
            delta := gamma delta + (1 - gamma)(w_new - w_old), with gamma = D^(1/tau). None: no correction.
    """

    anneal: int
    decay: float | None = 0.135

    def __post_init__(self):
        if self.anneal < 0 or (self.decay is not None and not 0 <= self.decay < 1):
            raise ValueError(f"PipeMare(anneal={self.anneal}, decay={self.decay}): anneal is a number of updates, 0 or "
                             "more; decay is None, or at least 0 and less than 1")


def train(comm: Communicator, stages: Mapping[int, nn.Module], schedule: Schedule, inputs: Batch | None,
          targets: Batch | None, loss_fn: Loss, optimizer: MakeOptimizer, *, pipemare: PipeMare | None = None,
          shapes: Mapping[int, Batch] | None = None, seconds: Callable[[Action], float] | None = None) -> Training:
    """Run an asynchronous schedule to its end, weights being updated where it says so; what one rank does.

    optimizer: makes the optimizer of one stage's parameters. An update takes the mean gradient of its microbatches.
    pipemare:  what PipeMare does besides following its schedule.
    All else is as for `execute`. The modules end with their newest weights.
    """
    if not schedule.asynchronous:
        raise ValueError(f"{schedule.name} has no updates in it: use `execute`, and run the optimizer after it")
    replicated = [stage for stage, ranks in enumerate(schedule.placement) if len(ranks) > 1]
    if replicated:
        raise ValueError(f"stage {replicated[0]} is on several ranks; asynchronous training takes one rank for each stage")
    weights = StashedWeights(stages, schedule, optimizer) if pipemare is None else \
        CorrectedWeights(stages, schedule, optimizer, pipemare)
    step = Executor(comm, stages, schedule, loss_fn, shapes=shapes, seconds=seconds, weights=weights).step(inputs, targets)
    weights.finish()
    return Training(**vars(step), weight_versions=weights.peak)


class StashedWeights:
    """The weights of a rank's stages, in every version that is still needed.

    A module holds one version (`loaded`); the others are stashed. To load another, the two change places in memory, so that
    whatever autograd kept of the parameters is what is loaded now: a backward computes with the version that its action
    names, even where its forward used another.
    """

    def __init__(self, stages: Mapping[int, nn.Module], schedule: Schedule, optimizer: MakeOptimizer):
        self.parameters = {stage: list(module.parameters()) for stage, module in stages.items()}
        # Optimizers write through parameters of their own on the same memory: autograd, which refuses the backward of a
        # forward whose parameters have been written to since, doesn't see it.
        self.written = {stage: [nn.Parameter(p.data) for p in parameters] for stage, parameters in self.parameters.items()}
        self.optimizers = {stage: optimizer(written) for stage, written in self.written.items() if written}
        self.to_come = Counter((a.stage, a.version) for a in schedule if a.kind != "U" and a.stage in stages)
        self.latest = dict.fromkeys(stages, 0)
        self.loaded = dict.fromkeys(stages, 0)
        self.stash: dict[int, dict[int, list[torch.Tensor]]] = {stage: {} for stage in stages}
        self.peak = 1

    def load(self, action: Action) -> None:
        """Have the version that `action` computes with in its stage's module: for an update, the newest."""
        if action.kind == "U":
            self._swap(action.stage, self.latest[action.stage])
        else:
            self._swap(action.stage, action.version)
            self.to_come[action.stage, action.version] -= 1

    def update(self, action: Action) -> None:
        """Make a new version of the newest one, in its place unless some action is still to use it."""
        stage = action.stage
        if self.to_come[stage, self.latest[stage]]:
            self.stash[stage][self.latest[stage]] = [p.detach().clone() for p in self.parameters[stage]]
        if stage in self.optimizers:
            for parameter, written in zip(self.parameters[stage], self.written[stage], strict=True):
                written.grad, parameter.grad = parameter.grad, None
            self.optimizers[stage].step()
        self.latest[stage] = self.loaded[stage] = action.version
        self.peak = max(self.peak, 1 + len(self.stash[stage]))

    def finish(self) -> None:
        """Leave the newest weights in the modules."""
        for stage in self.stash:
            self._swap(stage, self.latest[stage])

    def _swap(self, stage: int, version: int) -> None:
        loaded, stash = self.loaded[stage], self.stash[stage]
        if version == loaded:
            return
        wanted = stash.pop(version)
        if loaded == self.latest[stage] or self.to_come[stage, loaded]:
            stash[loaded] = [p.detach().clone() for p in self.parameters[stage]]
        _put(wanted, self.parameters[stage])
        self.loaded[stage] = version


class CorrectedWeights(StashedWeights):
    """PipeMare: one version, a rate for each stage, and for the backward an estimate of what the forward's weights were."""

    def __init__(self, stages: Mapping[int, nn.Module], schedule: Schedule, optimizer: MakeOptimizer, pipemare: PipeMare):
        super().__init__(stages, schedule, optimizer)
        self.pipemare = pipemare
        self.rates = {stage: [group["lr"] for group in o.param_groups] for stage, o in self.optimizers.items()}
        N = max(map(len, updates(schedule)))
        self.tau = {stage: (2 * (schedule.stages - stage) - 1) / N for stage in stages}
        self.delta = {stage: [torch.zeros_like(p) for p in parameters] for stage, parameters in self.parameters.items()}
        self.exact: dict[int, list[torch.Tensor]] = {}  # the weights themselves, while their correction is loaded

    def load(self, action: Action) -> None:
        super().load(action)
        stage = action.stage
        if stage in self.exact:
            _put(self.exact.pop(stage), self.parameters[stage])
        if action.kind == "B" and self.pipemare.decay is not None:
            self.exact[stage] = [p.detach().clone() for p in self.parameters[stage]]
            _put([w - self.tau[stage] * delta for w, delta in zip(self.exact[stage], self.delta[stage], strict=True)],
                 self.parameters[stage])

    def update(self, action: Action) -> None:
        stage, k, K = action.stage, self.latest[action.stage], self.pipemare.anneal
        tau = self.tau[stage]
        if stage in self.optimizers:
            for group, rate in zip(self.optimizers[stage].param_groups, self.rates[stage], strict=True):
                group["lr"] = rate / tau ** (1 - min(k / K, 1) if K else 0)
        before = [p.detach().clone() for p in self.parameters[stage]]
        super().update(action)
        if self.pipemare.decay is not None:
            gamma = self.pipemare.decay ** (1 / tau)
            for delta, old, p in zip(self.delta[stage], before, self.parameters[stage], strict=True):
                delta.mul_(gamma).add_((1 - gamma) * (p.detach() - old))

    def finish(self) -> None:
        for stage, exact in self.exact.items():
            _put(exact, self.parameters[stage])
        super().finish()


def _put(values: Sequence[torch.Tensor], parameters: Sequence[nn.Parameter]) -> None:
    """Write values into parameters where they stand, unseen by autograd."""
    for value, parameter in zip(values, parameters, strict=True):
        parameter.data.copy_(value)
