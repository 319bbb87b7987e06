"""Judging a step with a dynamic loss scale."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

import torch

from mlsyslab.check.exercise import Case
from mlsyslab.check.memory.watched import Watched
from mlsyslab.check.messages import article, is_number, values

OVERFLOWS = {"infinity": torch.inf, "minus infinity": -torch.inf, "NaN": torch.nan}
#: The largest number of float16, and one whose double is no longer one.
LARGEST, LARGE = 65504.0, 40_000.0


class ScaledStep(Watched):
    name = "scaled_step"

    def cases(self, rng: Random) -> list[Case]:
        found = []
        for good, interval in ((0, 5), (3, 5), (4, 5), (0, 1), (rng.randint(0, 50), 100)):
            for what in ("finite", "tiny", "large", *OVERFLOWS):
                found.append(self.case(rng, what, 2.0 ** rng.randint(10, 20), good, interval))
        return found

    def case(self, rng: Random, what: str, scale: float, good: int, interval: int) -> Case:
        n, lr = rng.randint(3, 8), 2.0 if what == "large" else rng.choice((0.5, 0.25, 2.0))
        master = torch.tensor([rng.randint(-8, 8) / 8 for _ in range(n)], dtype=torch.float32)
        size = 1e-3 if what == "tiny" else 100.0
        gradient = torch.tensor([size * rng.choice((-1, 1)) * rng.uniform(0.5, 1) for _ in range(n)], dtype=torch.float16)
        if what == "tiny":
            master.zero_()  # so that what is added to it can be seen
        if what == "large":  # of one sign, so that not even their sum is a number of float16
            gradient.fill_(LARGE)[rng.randrange(n)] = LARGEST
            gradient *= rng.choice((-1, 1))
        if what in OVERFLOWS:
            gradient[rng.randrange(n)] = OVERFLOWS[what]
        return Case((master, gradient, scale, good, lr, interval), stepped(master, gradient, scale, good, lr, interval),
                    {"gradient": what, "good": good, "interval": interval})

    def wrong_values(self, came, case):
        if not isinstance(came, (list, tuple)) or len(came) != 3:
            return f"it returned {article(type(came).__name__)}, {came!r}; expected three: master, scale, good"
        master, scale, good = came
        right = case.expected
        overflow = case.traits["gradient"] in OVERFLOWS
        if not isinstance(master, torch.Tensor) or master.shape != right[0].shape:
            return f"master came as {master!r}; expected a tensor of shape {tuple(right[0].shape)}"
        if master.dtype != torch.float32:
            return f"master came in {str(master.dtype).removeprefix('torch.')}: the master weights stay in float32"
        if not torch.allclose(master, right[0], 1e-5, 1e-15):
            text = f"master came as {values(master)}\n  expected       {values(right[0])}"
            likely = of_master(master, case, overflow)
            return f"{text}\n  {likely}" if likely else text
        for name, value, expected in (("scale", scale, right[1]), ("good", good, right[2])):
            value = value.item() if isinstance(value, torch.Tensor) and value.numel() == 1 else value
            if not is_number(value):
                return f"{name} came as {article(type(value).__name__)}, {value!r}; expected a number"
            if value != expected:
                text = f"{name} came as {value:g}, expected {expected:g}"
                likely = of_number(name, value, case, overflow)
                return f"{text}\n  {likely}" if likely else text
        return None

    def wrong_way(self, case):
        return None


def stepped(master: torch.Tensor, gradient: torch.Tensor, scale: float, good: int, lr: float,
            interval: int) -> tuple[torch.Tensor, float, int]:
    if not gradient.isfinite().all():
        return master, scale / 2, 0
    new = master - lr * gradient.float() / scale
    return (new, scale, good + 1) if good + 1 < interval else (new, 2 * scale, 0)


def of_master(came: torch.Tensor, case: Case, overflow: bool) -> str | None:
    master, gradient, scale, _, lr, _ = case.arguments
    if overflow:
        return ("When an element of the gradient is infinite or NaN there is no update: the master weights stay as they "
                "were "
                "(torch.isfinite says no to both).")
    ways: Sequence[tuple[torch.Tensor, str]] = [
        (master - lr * (gradient / scale).float(), "The gradient is divided by the scale in float16, where it becomes 0 or "
                                                   "loses "
                                                   "its bits: make it float32 first."),
        (master - lr * gradient.float(), "The gradient is that of the scaled loss: divide it by `scale`."),
        (master - lr * gradient.float() * scale, "The gradient is to be divided by `scale`, not multiplied."),
        (master + lr * gradient.float() / scale, "That is a step uphill."),
        (master - gradient.float() / scale, "Is `lr` used?"),
        (master - lr * gradient.float() / (2 * scale), "The scale changes after the step: divide by the one the loss was "
                                                       "multiplied by."),
        (master, "There is no update, though all elements are finite. Is that asked of each of them? In float16 a sum, or a "
                 "square, may be infinite where they are not; and the largest number is 65504."),
    ]
    if case.traits["gradient"] == "large" and not came.isfinite().all():
        return "lr times the gradient is computed in float16, where it overflows: make the gradient float32 first."
    return next((words for value, words in ways if torch.allclose(came, value, 1e-5, 1e-15)), None)


def of_number(name: str, value: float, case: Case, overflow: bool) -> str | None:
    _, _, scale, good, _, interval = case.arguments
    if name == "scale":
        if overflow:
            return {scale: "After an overflow the scale is halved.", scale * 2: "After an overflow the scale is halved, not "
                                                                                "doubled."}.get(value)
        if good + 1 == interval:
            return {scale: f"This is good step number {interval} in a row: now the scale is doubled.",
                    scale / 2: "The scale is halved after an overflow only."}.get(value)
        return {2 * scale: f"The scale is doubled after {interval} good steps in a row; this is number {good + 1}.",
                scale / 2: "The scale is halved after an overflow only."}.get(value)
    if overflow:
        return "An overflow ends the row of good steps: it counts from 0 again."
    if good + 1 == interval:
        return "When the scale is doubled, the count begins at 0 again."
    return "This step was a good one: count it." if value == good else None
