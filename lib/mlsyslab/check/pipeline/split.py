"""Judging the two halves of a backward pass: the gradient of the input (I) and those of the weights (W)."""

from __future__ import annotations

from abc import abstractmethod
from random import Random
from typing import Any

import torch

from mlsyslab import pipeline
from mlsyslab.check import inputs
from mlsyslab.check.exercise import Case
from mlsyslab.check.messages import alike, article, count, values
from mlsyslab.check.watched import Watched
from mlsyslab.comm.communicator import describe

Tensors = list[torch.Tensor]


def stage(rng: Random, layers: int, rows: int) -> tuple[Tensors, Tensors, torch.Tensor, torch.Tensor, Tensors]:
    """A stage of linear layers with relu between them, run forward and backward by hand.

    Returns its weights, the input of every layer, the gradient of the output, that of the input, and the gradient that
    arrives at the output of each layer's matrix product.
    """
    widths = [rng.randint(2, 5) for _ in range(layers + 1)]
    weights = [inputs.tensor(rng, shape, torch.float64, range(-2, 3)) for shape in zip(widths, widths[1:], strict=False)]
    given = [inputs.tensor(rng, (rows, widths[0]), torch.float64)]
    for weight in weights[:-1]:
        given.append((given[-1] @ weight).relu())
    gradient = inputs.tensor(rng, (rows, widths[-1]), torch.float64)
    arrived, back = [gradient], gradient @ weights[-1].T
    for layer in range(layers - 1, 0, -1):
        arrived.insert(0, torch.where(given[layer] > 0, back, 0.0))
        back = arrived[0] @ weights[layer - 1].T
    return weights, given, gradient, back, arrived


class Half(Watched):
    """Either half. Each takes one matrix product a layer; that it takes no more is what makes them halves."""

    packages = (pipeline,)
    too_many: str  # what to say where it takes more products than layers

    def cases(self, rng: Random) -> list[Case]:
        return [self.case(rng, layers, rows) for layers, rows in
                ((3, 4), (2, 3), (1, 5), (4, 1), (2, 8), (rng.randint(2, 5), rng.randint(2, 6)))]

    @abstractmethod
    def case(self, rng: Random, layers: int, rows: int) -> Case:
        """One stage."""

    def wrong_way(self, case):
        layers = case.traits["layers"]
        if self.products > layers:
            return (f"it computed {count(self.products, 'matrix product')} for {count(layers, 'layer')}; this half needs "
                    f"one a layer. {self.too_many}")
        return None


class BackwardInput(Half):
    name = "backward_input"
    too_many = "Those of the weights' gradients are W's work, and no layer has to be computed forward again."

    def case(self, rng, layers, rows):
        weights, given, gradient, back, arrived = stage(rng, layers, rows)
        return Case((weights, given, gradient), (back, arrived), {"layers": layers, "rows": rows})

    def wrong_values(self, came, case):
        if not isinstance(came, (tuple, list)) or len(came) != 2 or not isinstance(came[1], (list, tuple)):
            return (f"it returned {article(type(came).__name__)}; expected (input gradient, arrived): a tensor, and a list "
                    "of "
                    "one tensor a layer")
        weights, given, gradient = case.arguments
        back, arrived = case.expected
        if wrong := differ("arrived", came[1], arrived):
            if len(came[1]) == len(arrived) and all(map(alike, came[1], arrived[::-1])):
                return "`arrived` stands in reverse: entry l belongs to layer l, of which layer 0 is the first."
            likely = self.mistake(came, case)
            return f"{wrong}\n  {likely}" if likely else wrong
        wrong = differ("the input gradient", [came[0]], [back], numbered=False)
        if wrong and alike(came[0], arrived[0]):
            return (f"{wrong}\n  That is G_0, at the output of layer 0's matrix product; one more product takes it to the "
                    "input.")
        if wrong and alike(came[0], back * (given[0] > 0)):
            return f"{wrong}\n  x_0 is the stage's input, and came through no relu of this stage."
        return wrong

    def mistake(self, came: Any, case: Case) -> str | None:
        """Which slip makes these gradients, where it can be told."""
        weights, given, gradient = case.arguments
        ways = [
            (lambda g, l: g, "relu's part is left out: where a layer's input is 0, relu let nothing through, and no "
                             "gradient "
                             "goes back."),
            (lambda g, l: g * given[l], "relu's derivative is 0 or 1, not relu's value: multiply by (input of layer l > "
                                        "0)."),
            (lambda g, l: g.relu(), "relu's derivative goes by the sign of what went forward, not by that of the gradient."),
            (lambda g, l: g * (given[l] <= 0), "That lets the gradient through where relu was 0, and nowhere else."),
        ]
        for through, words in ways:
            arrived, back = [gradient], gradient @ weights[-1].T
            for layer in range(len(weights) - 1, 0, -1):
                arrived.insert(0, through(back, layer))
                back = arrived[0] @ weights[layer - 1].T
            if all(map(alike, came[1], arrived)) and len(came[1]) == len(arrived):
                return words
        return None


class BackwardWeights(Half):
    name = "backward_weights"
    too_many = "The gradients that it needs have arrived already: nothing has to go back through the layers again."

    def case(self, rng, layers, rows):
        _, given, _, _, arrived = stage(rng, layers, rows)
        right = [x.T @ g for x, g in zip(given, arrived, strict=True)]
        return Case((given, arrived), right, {"layers": layers, "rows": rows})

    def wrong_values(self, came, case):
        if not isinstance(came, (tuple, list)):
            return f"it returned {article(type(came).__name__)}; expected a list of one tensor a layer"
        right, rows = case.expected, case.traits["rows"]
        wrong = differ("the weight gradient", came, right)
        if wrong and len(came) == len(right) and all(isinstance(a, torch.Tensor) for a in came):
            if all(map(alike, came, right[::-1])):
                return "The gradients stand in reverse: entry l belongs to layer l, of which layer 0 is the first."
            if all(map(alike, came, [g.T for g in right])):
                return f"{wrong}\n  Those are transposed: a weight of shape (in, out) has a gradient of shape (in, out)."
            if rows > 1 and all(torch.allclose(a * rows, b) for a, b in zip(came, right, strict=True) if a.shape == b.shape):
                return (f"{wrong}\n  Those are divided by the {rows} rows. The loss has been averaged already, where the "
                        "gradient began: here the rows are added up.")
        return wrong


def differ(what: str, came: Any, right: Tensors, numbered: bool = True) -> str | None:
    """The first tensor that isn't what it should be."""
    if len(came) != len(right):
        return f"{what} has {len(came)} entries; expected one for each of the {count(len(right), 'layer')}"
    for layer, (a, b) in enumerate(zip(came, right, strict=True)):
        name = f"{what} of layer {layer}" if numbered else what
        if not isinstance(a, torch.Tensor):
            return f"{name} is {article(type(a).__name__)}; expected a tensor: {describe(b)}"
        if a.shape != b.shape or a.dtype != b.dtype:
            return f"{name} is {describe(a)}; expected {describe(b)}"
        if not torch.allclose(a, b):
            return f"{name} came as {values(a)}\n  expected {values(b)}"
    return None
