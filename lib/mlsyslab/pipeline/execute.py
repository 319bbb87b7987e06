"""Run a schedule for real: stage modules, microbatches, messages.

The executor is an interpreter. It takes one action after the other and knows what F, B, I, W and U mean; which schedule it
is running it does not know.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

import torch
from torch import nn

from mlsyslab.comm.communicator import Communicator, describe
from mlsyslab.pipeline.backward import backward_input
from mlsyslab.pipeline.columns import Columns
from mlsyslab.pipeline.copies import Copies, Tied
from mlsyslab.pipeline.exchange import Exchange, Like
from mlsyslab.pipeline.microbatches import Batch, cut, shares, updates
from mlsyslab.pipeline.schedule import BACKWARD, Action, Schedule
from mlsyslab.pipeline.validate import validate

#: The mean loss over the rows of a microbatch: (output of the last stage, target) -> scalar.
Loss = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]



class Weights(Protocol):
    """Where an asynchronous schedule gets the weights that an action computes with."""

    def load(self, action: Action) -> None:
        """Put the version that `action` computes with into the stage's module."""

    def update(self, action: Action) -> None:
        """Make the next version."""


@dataclass
class Step:
    """What one rank has of a step.

    losses: by microbatch, the mean over its rows, where this rank holds the last stage.
    loss: their mean over all rows of the batch (with two directions, this rank's share of it; the ranks' shares add up).
    outputs: by microbatch, what the last stage gave, when the schedule has no backward.
    peak_activations: the most forwards whose backward (B, or W) was still to come, or was running, at one time.
    """

    losses: dict[int, torch.Tensor] = field(default_factory=dict)
    loss: torch.Tensor | None = None
    outputs: dict[int, torch.Tensor] = field(default_factory=dict)
    peak_activations: int = 0


def execute(comm: Communicator, stages: Mapping[int, nn.Module], schedule: Schedule, inputs: Batch | None = None,
            targets: Batch | None = None, loss_fn: Loss | None = None, *, tied: Sequence[Tied] = (),
            shapes: Mapping[int, Batch] | None = None, seconds: Callable[[Action], float] | None = None) -> Step:
    """Run one step of a synchronous schedule; what one rank does. Gradients are added to `.grad`; no optimizer is run.

    stages:  this rank's stage modules, by stage: those of `schedule.held[comm.rank]`. Each takes and gives one floating-
             point tensor (the first may take any). When the schedule has token slices, `module(x, state) -> (y, state)`: the
             state, None at first and then a tuple of tensors, is what a slice leaves for the slices after it.
    inputs:  the batch, (N, …), on ranks that hold the first stage; targets: (N, …), on ranks that hold the last.
             A tensor is cut into m microbatches by `torch.tensor_split`; give a list to cut otherwise.
    loss_fn: the mean loss of a microbatch. Gradients are those of the mean over all N rows, however they are cut.
    tied:    weights that several stages share, each as {stage: parameter's name}: their gradients are summed.
    shapes:  for each stage but the last, a batch (on the meta device, say) like the one that it gives out. Without it the
             first step finds out, by a small message before each activation.
    seconds: what the simulated clock charges for an action.

    Raises InvalidSchedule for a broken schedule, ValueError for wrong stages or batches; an error in a stage is raised on,
    with a note of which stage, action and input it was.
    """
    return Executor(comm, stages, schedule, loss_fn, tied=tied, shapes=shapes, seconds=seconds).step(inputs, targets)


@dataclass
class _Kept:
    """What a forward leaves for its backward: the inputs and outputs of the graph; between I and W, what W will do."""

    inputs: list[torch.Tensor]
    outputs: list[torch.Tensor]
    bytes: int
    backward_weights: Callable[[], None] | None = None


class _Todo(NamedTuple):
    """An action of this rank: its number in the whole schedule, its label in the trace, its modelled seconds."""

    number: int
    action: Action
    label: str
    seconds: float

    @property
    def key(self) -> tuple[int, int, int]:
        """(stage, microbatch, slice)."""
        return self.action.stage, self.action.microbatch, self.action.slice


class Executor:
    """`execute` for many steps: what follows from the schedule alone is worked out once. Arguments as there.

    weights: of an asynchronous schedule, what loads the version that an action computes with, and updates.
    """

    def __init__(self, comm: Communicator, stages: Mapping[int, nn.Module], schedule: Schedule,
                 loss_fn: Loss | None = None, *, tied: Sequence[Tied] = (), shapes: Mapping[int, Batch] | None = None,
                 seconds: Callable[[Action], float] | None = None, weights: Weights | None = None):
        _check(comm, stages, schedule, weights)
        self.comm, self.stages, self.schedule, self.loss_fn, self.weights = comm, dict(stages), schedule, loss_fn, weights
        self.trains, self.last, self.last_slice = schedule.trains, schedule.stages - 1, max(0, len(schedule.slices) - 1)
        columns = Columns(schedule)
        first = int(columns.first[comm.rank])
        self.program = [_Todo(first + i, action, str(action), seconds(action) if seconds else 0.0)
                        for i, action in enumerate(schedule.actions[comm.rank])]
        self.backward_of = {todo.key: todo.number for todo in self.program if todo.action.kind in BACKWARD}
        self.exchange = Exchange(comm, columns, _likes(columns, shapes) if shapes is not None else None)
        self.copies = Copies(comm, stages, schedule, tied)
        self.do = {"F": self._forward, "B": self._backward, "I": self._backward_input, "W": self._backward_weights,
                   "U": self._update}

    def step(self, inputs: Batch | None = None, targets: Batch | None = None) -> Step:
        """One step: every action of the schedule, then the sums of the gradients that several ranks hold."""
        self._take(inputs, targets)
        self.result = Step()
        self.kept: dict[tuple, _Kept] = {}  # by (stage, microbatch, slice)
        self.here: dict[tuple, torch.Tensor] = {}  # from one stage of this rank to another, by the action that takes it in
        self.state: dict[tuple, tuple[torch.Tensor, ...]] = {}  # from one slice to the next
        self.state_gradient: dict[tuple, list[torch.Tensor | None]] = {}  # from one slice to the one before
        self.exchange.begin()
        self.copies.begin()
        for todo in self.program:
            self.do[todo.action.kind](todo)
        self.exchange.finish()
        self.copies.finish()
        return self.result

    # -- the five kinds of action -------------------------------------------------------------------------------------

    def _forward(self, todo: _Todo) -> None:
        stage, _, microbatch, slice, *_ = todo.action
        x = self._receive(todo) if stage else self.inputs[microbatch][slice]
        state = self.state.pop(todo.key, ())
        if self.trains:
            for tensor in (x, *state) if stage else state:
                tensor.requires_grad_()
        start = self.comm.now()
        with self._work(todo, x), torch.set_grad_enabled(self.trains):
            y, left = self._call(stage, x, state)
            output = self._loss(todo.action, y) if stage == self.last and self.trains else y
        if slice < self.last_slice:
            self.state[stage, microbatch, slice + 1] = tuple(tensor.detach() for tensor in left)
        if self.trains:
            self._keep(todo, start, _Kept([x, *state], [output, *left][:1 + len(left) * (slice < self.last_slice)],
                                          x.nbytes + y.nbytes))
            if stage < self.last:
                self.exchange.expect(self.backward_of[todo.key], y)
        if stage < self.last:
            self._send(todo, stage + 1, y.detach())
        elif not self.trains:
            before = self.result.outputs.get(microbatch)
            self.result.outputs[microbatch] = y if before is None else torch.cat([before, y], dim=1)

    def _backward(self, todo: _Todo) -> None:
        kept, gradients = self._arrived(todo)
        with self._work(todo, kept.inputs[0]):
            torch.autograd.backward(*_that_count(kept.outputs, gradients))
        self._hand_back(todo, [x.grad if x.requires_grad else None for x in kept.inputs])
        self._free(todo)

    def _backward_input(self, todo: _Todo) -> None:
        kept, gradients = self._arrived(todo)
        with self._work(todo, kept.inputs[0]):
            found, kept.backward_weights = backward_input(*_that_count(kept.outputs, gradients), kept.inputs)
        kept.outputs = []  # what led from the last weights to the output is not needed any more
        self._hand_back(todo, found)

    def _backward_weights(self, todo: _Todo) -> None:
        kept = self.kept[todo.key]
        with self._work(todo, kept.inputs[0]):
            kept.backward_weights()
        self._free(todo)

    def _update(self, todo: _Todo) -> None:
        with self._work(todo):
            self.weights.update(todo.action)

    # -- what comes in and goes out -----------------------------------------------------------------------------------

    def _receive(self, todo: _Todo) -> torch.Tensor:
        if todo.number in self.exchange.source:
            return self.exchange.receive(todo.number)
        return self.here.pop((todo.key, todo.action.kind == "F"))

    def _send(self, todo: _Todo, stage: int, tensor: torch.Tensor) -> None:
        """Give `tensor` to the same microbatch's forward, or backward, on another stage."""
        if todo.number in self.exchange.taker:
            self.exchange.send(todo.number, tensor)
        else:
            _, microbatch, slice = todo.key
            self.here[(stage, microbatch, slice), todo.action.kind == "F"] = tensor

    def _arrived(self, todo: _Todo) -> tuple[_Kept, list[torch.Tensor | None]]:
        """What the forward kept, and the gradients of its outputs."""
        gradient = self._receive(todo) if todo.action.stage < self.last else None
        return self.kept[todo.key], [gradient, *self.state_gradient.pop(todo.key, ())]

    def _hand_back(self, todo: _Todo, gradients: list[torch.Tensor | None]) -> None:
        """Pass on the gradients of the inputs, to the stage before and to the slice before."""
        stage, _, microbatch, slice, *_ = todo.action
        if slice:
            self.state_gradient[stage, microbatch, slice - 1] = gradients[1:]
        if stage:
            if gradients[0] is None:
                raise ValueError(f"stage {stage} has no gradient to hand back for microbatch {microbatch}: "
                                 "its output doesn't depend on its input by anything that can be differentiated")
            self._send(todo, stage - 1, gradients[0])

    def _keep(self, todo: _Todo, since: float, kept: _Kept) -> None:
        self.kept[todo.key] = kept
        self.result.peak_activations = max(self.result.peak_activations, len(self.kept))
        self.comm.record("alloc", since, since, kept.bytes, label=todo.label)

    def _free(self, todo: _Todo) -> None:
        kept, now = self.kept.pop(todo.key), self.comm.now()
        self.comm.record("free", now, now, kept.bytes, label=todo.label)

    # -- the stage's own work -----------------------------------------------------------------------------------------

    @contextmanager
    def _work(self, todo: _Todo, x: torch.Tensor | None = None) -> Iterator[None]:
        """Computing that is recorded, with the right weights, and whose errors say where it was."""
        if self.weights is not None:
            self.weights.load(todo.action)
        try:
            with self.comm.work(todo.label, todo.seconds):
                yield
        except Exception as error:
            of = "" if x is None else f", for an input of {describe(x)}"
            error.add_note(f"in {todo.label}: {_WORK[todo.action.kind]} of stage {todo.action.stage}, "
                           f"microbatch {todo.action.microbatch}, on rank {self.comm.rank}{of}")
            raise

    def _call(self, stage: int, x: torch.Tensor, state: tuple) -> tuple[torch.Tensor, tuple[torch.Tensor, ...]]:
        """The output of a stage module, and the state that it leaves for the next slice."""
        given = self.stages[stage](x, state or None) if self.schedule.slices else self.stages[stage](x)
        y, left = given if self.schedule.slices else (given, ())
        if not isinstance(y, torch.Tensor) or not y.is_floating_point():
            what = describe(y) if isinstance(y, torch.Tensor) else type(y).__name__
            raise TypeError(f"a stage gives one floating-point tensor, not {what}")
        return y, tuple(left)

    def _loss(self, action: Action, y: torch.Tensor) -> torch.Tensor:
        """This piece's share of the batch's loss, from which its backward starts."""
        _, _, microbatch, slice, *_ = action
        loss = self.loss_fn(y, self.targets[microbatch][slice])
        if loss.numel() != 1:
            raise ValueError(f"loss_fn gives the mean over a microbatch, a single number, not {describe(loss)}")
        share, result = self.shares[microbatch][slice], self.result
        loss = loss.reshape(()) * share
        result.losses[microbatch] = result.losses.get(microbatch, 0) + loss.detach() / sum(self.shares[microbatch])
        result.loss = loss.detach() + (0 if result.loss is None else result.loss)
        return loss

    def _take(self, inputs: Batch | None, targets: Batch | None) -> None:
        """Cut the batch, on the ranks that need it."""
        schedule, held = self.schedule, self.schedule.held[self.comm.rank]
        if 0 in held:
            if inputs is None:
                raise ValueError(f"rank {self.comm.rank} holds stage 0, so it needs the inputs")
            self.inputs = cut(inputs, schedule.microbatches, schedule.slices, "inputs")
        if self.last in held and self.trains:
            if targets is None or self.loss_fn is None:
                raise ValueError(f"rank {self.comm.rank} holds the last stage, so it needs targets and loss_fn")
            self.targets = cut(targets, schedule.microbatches, schedule.slices, "targets")
            self.shares = shares(self.targets, updates(schedule))


_WORK = {"F": "forward", "B": "backward", "I": "input gradient", "W": "weight gradient", "U": "update"}


def _that_count(outputs: list[torch.Tensor], gradients: list[torch.Tensor | None]) -> tuple[list, list]:
    """Outputs through which a gradient comes, with their gradients: None for a loss, which is where it starts."""
    gradients = gradients + [None] * (len(outputs) - len(gradients))
    pairs = [(y, g) for y, g in zip(outputs, gradients, strict=True) if y.requires_grad and (g is not None or y.dim() == 0)]
    return [y for y, _ in pairs], [g for _, g in pairs]


def _check(comm: Communicator, stages: Mapping[int, nn.Module], schedule: Schedule, weights: Weights | None) -> None:
    validate(schedule)
    if comm.size != schedule.ranks:
        raise ValueError(f"the schedule is for {schedule.ranks} ranks, and there are {comm.size}")
    held = schedule.held[comm.rank]
    if sorted(stages) != list(held):
        given = ", ".join(map(str, sorted(stages))) or "none"
        raise ValueError(f"rank {comm.rank} was given the modules of stages {given}; in this schedule it holds stages "
                         f"{', '.join(map(str, held))}")
    if schedule.asynchronous and weights is None:
        raise ValueError(f"{schedule.name} updates the weights while it runs: use `train`, which takes an optimizer")


def _likes(columns: Columns, shapes: Mapping[int, Batch]) -> dict[int, Like]:
    """(shape, dtype) of what every forward and backward gives out, by action, from the batch that each stage gives out."""
    schedule = columns.schedule
    missing = [stage for stage in range(schedule.stages - 1) if stage not in shapes]
    if missing:
        raise ValueError(f"shapes lacks stage {missing[0]}: give what every stage but the last hands on, or no shapes")
    pieces = {stage: cut(shapes[stage], schedule.microbatches, schedule.slices, f"shapes[{stage}]")
              for stage in range(schedule.stages - 1)}
    likes = {}
    for i, (stage, kind, microbatch, slice, *_) in enumerate(schedule):
        border = stage if kind == "F" else stage - 1
        if kind in "FBI" and border in pieces:
            piece = pieces[border][microbatch][slice]
            likes[i] = piece.shape, piece.dtype
    return likes
