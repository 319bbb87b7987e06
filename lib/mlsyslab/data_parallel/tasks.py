"""Two small real tasks to train: one convex, one not."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import nn

Values = Mapping[str, torch.Tensor]


@dataclass(frozen=True)
class Task:
    """What workers learn together.

    start: {name: tensor} to begin with.  x: (N, …), y: (N,): all points; worker w of W has the w-th part of them.
    predict: (values, x) -> logits, (N,) for two classes, (N, classes) for more.  rows: the points of one iteration.
    """

    start: dict[str, torch.Tensor]
    x: torch.Tensor
    y: torch.Tensor
    predict: Callable[[Values, torch.Tensor], torch.Tensor]
    workers: int
    rows: int

    def batch(self, worker: int, clock: int) -> tuple[torch.Tensor, torch.Tensor]:
        """The points of a worker's iteration: it goes round its part, `rows` at a time."""
        x, y = (all.tensor_split(self.workers)[worker] for all in (self.x, self.y))
        chosen = (clock * self.rows + torch.arange(self.rows)) % len(x)
        return x[chosen], y[chosen]

    def mean_loss(self, values: Values, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        """The mean cross-entropy on these points."""
        logits = self.predict(values, x)
        if logits.dim() == 1:
            return nn.functional.binary_cross_entropy_with_logits(logits, y.to(logits.dtype))
        return nn.functional.cross_entropy(logits, y)

    def gradient(self, values: Values, worker: int, clock: int) -> tuple[float, dict[str, torch.Tensor]]:
        """The mean loss on a worker's points of one iteration, and its gradient."""
        variables = {name: value.detach().requires_grad_() for name, value in values.items()}
        loss = self.mean_loss(variables, *self.batch(worker, clock))
        return loss.item(), dict(zip(variables, torch.autograd.grad(loss, list(variables.values())), strict=True))

    def loss(self, values: Values) -> float:
        """The mean loss on all points."""
        with torch.no_grad():
            return self.mean_loss(values, self.x, self.y).item()


def logistic(workers: int, points: int = 512, dimensions: int = 16, rows: int = 4, seed: int = 0) -> Task:
    """Logistic regression: a convex loss, and gradients no longer than 1, since no point is further than 1 from zero."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(points, dimensions, generator=generator, dtype=torch.float64)
    x = x / x.norm(dim=1, keepdim=True)
    direction = torch.randn(dimensions, generator=generator, dtype=torch.float64)
    noise = 1.5 * torch.randn(points, generator=generator, dtype=torch.float64)
    y = (x @ direction + noise > 0).long()
    start = {"w": torch.zeros(dimensions, dtype=torch.float64)}
    return Task(start, x, y, lambda values, x: x @ values["w"], workers, rows)


def spirals(workers: int, points: int = 512, width: int = 32, rows: int = 16, seed: int = 0) -> Task:
    """Which of two spirals a point in the plane is on, learned by a network of three layers."""
    generator = torch.Generator().manual_seed(seed)
    way, y = torch.rand(points, generator=generator), torch.arange(points) % 2
    angle = math.pi * (1.5 * way + y)
    x = (0.15 + 0.85 * way)[:, None] * torch.stack([angle.cos(), angle.sin()], dim=1)
    x = x + 0.02 * torch.randn(points, 2, generator=generator)
    start, shapes = {}, {"1": (width, 2), "2": (width, width), "3": (2, width)}
    for name, (outputs, inputs) in shapes.items():
        start[f"weight{name}"] = torch.randn(outputs, inputs, generator=generator) * math.sqrt(2 / inputs)
        start[f"bias{name}"] = torch.randn(outputs, generator=generator) * (0.5 if name == "1" else 0)
    return Task(start, x, y, _three_layers, workers, rows)


def _three_layers(values: Values, x: torch.Tensor) -> torch.Tensor:
    for name in "12":
        x = torch.relu(nn.functional.linear(x, values[f"weight{name}"], values[f"bias{name}"]))
    return nn.functional.linear(x, values["weight3"], values["bias3"])
