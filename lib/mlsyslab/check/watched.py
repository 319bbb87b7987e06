"""Exercises that make tensors: judged by their values, and by the memory and the products that these took."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from random import Random
from types import ModuleType
from typing import Any

import torch

from mlsyslab.check.elsewhere import Elsewhere
from mlsyslab.check.exercise import Case, Formula
from mlsyslab.check.live import Live
from mlsyslab.check.products import Products
from mlsyslab.check.runs import copied, same
from mlsyslab.check.unaided import unaided

#: The largest share of a difference that counts as rounding: a quotient of whole numbers is a float32 in torch.
CLOSE = 1e-6


class Watched(Formula):
    """A function of tensors whose memory is watched. After a call: `products`, `peak` in bytes, `changed`.

    packages: of the library, which it may not ask for help.  counter: what looks at products.  counted: it, after a call
    that ran here.
    """

    packages: tuple[ModuleType, ...]
    counter: type[Products] = Products
    counted: Products | None
    products: int
    peak: int
    changed: bool
    timeout = 20.0

    @abstractmethod
    def wrong_values(self, came: Any, case: Case) -> str | None:
        """What is wrong with what came."""

    @abstractmethod
    def wrong_way(self, case: Case) -> str | None:
        """What is wrong with memory or products, where the values are right."""

    def problem(self, fn, case):
        return super().problem(self.watched(unaided(fn, *self.packages)), case)

    def watched(self, fn: Callable[..., Any]) -> Callable[..., Any]:
        """`fn`, noting what it took."""
        def call(*given):
            self.counted = None
            if isinstance(fn, Elsewhere):
                came, self.products, self.peak, self.changed = fn.watched(*given)
                return came
            before = copied(given)
            with self.counter() as self.counted, Live() as live:
                came = fn(*given)
            self.products, self.peak, self.changed = self.counted.number, live.peak, not same(before, given)
            return came
        return call

    def compare(self, came, case):
        if wrong := self.wrong_values(came, case):
            return wrong
        if self.changed:
            return "the values are right, but a tensor that was given was changed: don't compute in place on those"
        wrong = self.wrong_way(case)
        return f"the values are right, but not the way they came: {wrong}" if wrong else None


def normal(rng: Random, *shape: int) -> torch.Tensor:
    """Random numbers of mean 0 and variance 1, in float64."""
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(rng.getrandbits(32)))


def near(came: Any, right: torch.Tensor) -> bool:
    return (isinstance(came, torch.Tensor) and came.shape == right.shape and came.dtype == right.dtype
            and torch.allclose(came, right, CLOSE, CLOSE))
