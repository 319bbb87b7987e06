"""Bytes that a parameter takes: the weight itself, its gradient, and what the optimizer remembers."""

from __future__ import annotations

from dataclasses import dataclass

from mlsyslab.memory.units import whole


@dataclass(frozen=True)
class Recipe:
    """A precision recipe for Adam: bytes a parameter of each part.

    weight, gradient: as the model holds them.  master: 32-bit copy that is updated, where the model's weight has fewer bits.
    momentum, variance: Adam's two averages.  copy: the 16-bit copy that autocast makes of a 32-bit weight for the products.
    """

    name: str
    weight: int
    gradient: int
    master: int
    momentum: int
    variance: int
    copy: int = 0

    @property
    def bytes_a_parameter(self) -> int:
        return self.weight + self.gradient + self.master + self.momentum + self.variance + self.copy


RECIPES = {recipe.name: recipe for recipe in (
    Recipe("fp32", weight=4, gradient=4, master=0, momentum=4, variance=4),
    Recipe("autocast", weight=4, gradient=4, master=0, momentum=4, variance=4, copy=2),
    Recipe("mixed", weight=2, gradient=2, master=4, momentum=4, variance=4),  # the 2 + 2 + 12 of Rajbhandari et al. 2020
    Recipe("bf16", weight=2, gradient=2, master=0, momentum=2, variance=2),
)}


def recipe(name: str) -> Recipe:
    """The recipe of that name."""
    if name not in RECIPES:
        raise ValueError(f"recipe({name!r}): there are {', '.join(RECIPES)}")
    return RECIPES[name]


def state_bytes(parameters: int, name: str = "mixed") -> dict[str, int]:
    """Bytes of weights, gradients and optimizer state of a model trained with Adam; activations come on top."""
    r, n = recipe(name), whole("parameters", parameters)
    return {"weights": n * (r.weight + r.copy), "gradients": n * r.gradient,
            "optimizer": n * (r.master + r.momentum + r.variance)}
