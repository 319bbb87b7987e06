"""Memory over time: every buffer has a size and a lifetime, and what is held at one moment is the sum of those alive.

Time is counted in phases: embed, each block forward, logits, loss, and back again, then the update. Weights and the
optimizer's state live throughout, an activation from its block's forward to its block's backward, a gradient from its
block's backward to the update, a workspace for one phase.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

import torch

from mlsyslab.memory.activations import Kept, saved, saved_total
from mlsyslab.memory.states import RECIPES, recipe
from mlsyslab.memory.units import whole
from mlsyslab.model.config import Config
from mlsyslab.model.flops import RECOMPUTE, tokens_of
from mlsyslab.model.parameters import parameter_table, parameters

KINDS = ("weights", "optimizer", "gradients", "activations", "workspace")
#: type of the activations under a recipe (`states.RECIPES`)
ACTIVATIONS = {"fp32": torch.float32, "mixed": torch.bfloat16, "bf16": torch.bfloat16}


@dataclass(frozen=True)
class Buffer:
    """`bytes` held from phase `start` to phase `end`, both included."""

    name: str
    kind: str
    bytes: int
    start: int
    end: int


@dataclass(frozen=True)
class Timeline:
    """All buffers of a run, and the names of its phases."""

    phases: tuple[str, ...]
    buffers: tuple[Buffer, ...]

    def at(self, phase: int) -> dict[str, int]:
        """Bytes of each kind held in that phase."""
        held = dict.fromkeys(KINDS, 0)
        for buffer in self.buffers:
            if buffer.start <= phase <= buffer.end:
                held[buffer.kind] += buffer.bytes
        return held

    @cached_property
    def totals(self) -> list[int]:
        """Bytes held in each phase."""
        return [sum(self.at(phase).values()) for phase in range(len(self.phases))]

    @property
    def peak(self) -> int:
        """The most bytes that are held at once."""
        return max(self.totals)

    @property
    def peak_phase(self) -> str:
        """Where that is."""
        return self.phases[self.totals.index(self.peak)]


def inference(config: Config, batch: int, sequence: int | None = None, *, dtype: torch.dtype = torch.bfloat16,
              core: str = "written") -> Timeline:
    """A forward pass that keeps nothing: a block's buffers are free for the next one, so layers cost weights alone."""
    size = _Sizes(config, batch, tokens_of(config, batch, sequence), dtype, core)
    L = config.layers
    phases = ("embed", *(f"block {l + 1}" for l in range(L)), "logits")
    buffers = [Buffer("weights", "weights", parameters(config) * dtype.itemsize, 0, L + 1)]
    for l in range(L + 1):
        name = f"input of block {l + 1}" if l < L else "output of the blocks"
        buffers.append(Buffer(name, "activations", size.wide, l, l + 1))
    buffers += [Buffer(f"inside block {l + 1}", "workspace", size.forward_workspace, l + 1, l + 1) for l in range(L)]
    buffers.append(Buffer("logits", "workspace", size.logits + size.wide, L + 1, L + 1))
    return Timeline(phases, tuple(buffers))


def training(config: Config, batch: int, sequence: int | None = None, *, precision: str = "fp32", core: str = "written",
             recompute: str | None = None, every: int = 1, swapped: bool = False, device: str = "cpu") -> Timeline:
    """One training step with Adam, from the second on (in the first, the optimizer's state isn't there yet).

    precision: "fp32", "mixed" or "bf16" (`states.RECIPES`).  core: "written" or "fused".
    recompute: None, "selective" or "full" with a checkpoint every so many blocks.  swapped: activations are away between a
    block's forward and its backward (with nothing recomputed).  device: "cpu" or "cuda".
    """
    if recompute not in RECOMPUTE:
        raise ValueError(f"training(recompute={recompute!r}): recompute is None, 'selective' or 'full'")
    if precision not in ACTIVATIONS:
        raise ValueError(f"training(precision={precision!r}): precision is one of {', '.join(ACTIVATIONS)}"
                         + ("; under autocast, activations of both types are held" if precision in RECIPES else ""))
    if swapped and recompute:
        raise ValueError(f"training(recompute={recompute!r}, swapped=True): choose one of them")
    if whole("every", every) > config.layers:
        raise ValueError(f"training(every={every}): the model has {config.layers} layers")
    dtype, s = ACTIVATIONS[precision], tokens_of(config, batch, sequence)
    size = _Sizes(config, batch, s, dtype, core)
    kept = saved(config, batch, s, dtype=dtype, core=core, device=device)
    return _Step(config, size, kept, precision, recompute, every, swapped).timeline()


class _Sizes:
    """Bytes of what a phase works with. Letters as everywhere: n = B s tokens."""

    def __init__(self, c: Config, batch: int, s: int, dtype: torch.dtype, core: str):
        n, item = batch * s, dtype.itemsize
        self.wide, self.ffn = n * c.hidden * item, n * c.ffn * item
        self.heads = n * c.attention_width * item
        self.weights = batch * c.heads * s * s * item if core == "written" else 0
        self.logits, self.logits_32 = n * c.vocabulary * item, 4 * n * c.vocabulary
        self.converted = self.logits_32 if item < 4 else 0  # the loss is computed in 32 bits
        self.up = self.ffn * (2 if c.mlp == "swiglu" else 1)

    @property
    def forward_workspace(self) -> int:
        """Of a forward pass that keeps nothing: attention's scores, twice while they change, or the MLP's inside."""
        return max(4 * self.heads + 2 * self.weights, self.up + self.ffn) + self.wide


class _Step:
    """The buffers of a training step."""

    def __init__(self, config: Config, size: _Sizes, kept: list[Kept], precision: str, recompute: str | None, every: int,
                 swapped: bool):
        self.c, self.size, self.recipe, self.L, self.swapped = config, size, recipe(precision), config.layers, swapped
        self.every = every if recompute == "full" else 0
        of = {part: saved_total([k for k in kept if k.part == part])
              for part in ("embedding", "block", "attention", "core", "MLP", "output")}
        self.embedding, self.output = of["embedding"], of["output"]
        self.core, self.mlp = of["core"] // self.L, of["MLP"] // self.L
        self.branch_mask = next((k.bytes for k in kept if k.name == "dropout mask of a branch"), 0)
        self.again = self.core if recompute == "selective" else 0
        self.block = (of["block"] + of["attention"] + of["core"] + of["MLP"]) // self.L - self.again
        table = parameter_table(config)
        outside = table["tokens"] + table["positions"] + table["output"]
        self.gradient = {"output": (table["output"] or table["tokens"]) * self.recipe.gradient,
                         "block": (parameters(config) - outside) // self.L * self.recipe.gradient,
                         "embedding": (table["positions"] + (0 if config.tied else table["tokens"])) * self.recipe.gradient}
        self.logits_forward, self.last = self.L + 1, 2 * self.L + 6

    def timeline(self) -> Timeline:
        L = self.L
        phases = ("embed", *(f"block {l + 1} forward" for l in range(L)), "logits", "loss", "loss backward",
                  "logits backward", *(f"block {l + 1} backward" for l in reversed(range(L))), "embed backward", "update")
        buffers = *self._states(), *self._activations(), *self._gradients(), *self._workspaces()
        return Timeline(phases, tuple(buffer for buffer in buffers if buffer.bytes))

    def _forward(self, l: int) -> int:
        return 1 + l

    def _backward(self, l: int) -> int:
        return self.last - 2 - l

    def _states(self) -> Iterable[Buffer]:
        n, r = parameters(self.c), self.recipe
        yield Buffer("weights", "weights", n * r.weight, 0, self.last)
        yield Buffer("optimizer's state", "optimizer", n * (r.master + r.momentum + r.variance), 0, self.last)

    def _activations(self) -> Iterable[Buffer]:
        yield Buffer("embedding", "activations", self.embedding, 0, self.last - 1)
        for l in range(self.L):
            if self.swapped:
                # they leave and come one by one, with one on its way: the two of the MLP, or the core's, are the widest
                for phase in (self._forward(l), self._backward(l)):
                    yield Buffer(f"block {l + 1}, on its way", "activations", max(self.mlp, self.core), phase, phase)
                continue
            if not self.every:
                yield Buffer(f"block {l + 1}", "activations", self.block, self._forward(l), self._backward(l))
                continue
            first = l - l % self.every
            last = min(first + self.every, self.L) - 1
            if l == first:
                start = self._forward(l) - 1
                yield Buffer(f"input of block {l + 1}", "activations", self.size.wide, start, self._backward(l))
            yield Buffer(f"block {l + 1}, again", "activations", self.block, self._backward(last), self._backward(l))
        yield Buffer("output", "activations", self.output, self.logits_forward, self.logits_forward + 3)

    def _gradients(self) -> Iterable[Buffer]:
        yield Buffer("output", "gradients", self.gradient["output"], self.logits_forward + 3, self.last)
        for l in range(self.L):
            yield Buffer(f"block {l + 1}", "gradients", self.gradient["block"], self._backward(l), self.last)
        yield Buffer("embedding", "gradients", self.gradient["embedding"], self.last - 1, self.last)

    @property
    def backward_workspace(self) -> int:
        """What a block's backward adds to what the block has kept: gradients of its widest tensors, while others are freed.

        In the MLP: the gradient of the inside, and of the residual sum, before and after dropout. In attention: those of the
        weights (before softmax and after it, unless what dropout kept is freed between), of its result, its values and the
        residual sum; by then all that the MLP and its norm have kept is free, but the core may have to be computed again.
        """
        size, dropout = self.size, self.c.dropout > 0
        mlp = size.up + size.wide * (2 if dropout else 1)
        of_weights = size.weights * (1 if dropout else 2)
        attention = self.again + of_weights + size.heads - size.wide - self.mlp - 2 * self.branch_mask
        return max(mlp, attention)

    def _workspaces(self) -> Iterable[Buffer]:
        size, out = self.size, self.logits_forward
        yield Buffer("logits", "workspace", size.logits, out, out)
        yield Buffer("logits, in 32 bits", "workspace", size.logits_32, out + 1, out + 1)
        yield Buffer("two gradients of logits", "workspace", 2 * size.logits_32, out + 2, out + 2)
        yield Buffer("gradient of logits", "workspace", size.logits + size.wide, out + 3, out + 3)
        for l in range(self.L):
            phase = self._backward(l)
            yield Buffer(f"gradients inside block {l + 1}", "workspace", self.backward_workspace, phase, phase)
        tied = self.gradient["output"] if self.c.tied else 0
        yield Buffer("second gradient of the embedding", "workspace", tied, self.last - 1, self.last - 1)
