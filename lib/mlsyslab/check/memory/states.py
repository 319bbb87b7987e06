"""Judging the bytes of model states."""

from __future__ import annotations

from collections.abc import Mapping
from random import Random

from mlsyslab import memory
from mlsyslab.check.exercise import Case, Formula
from mlsyslab.check.messages import article, is_number
from mlsyslab.check.unaided import unaided

PARTS = ("weights", "gradients", "optimizer")
PRECISIONS = ("mixed", "fp32", "bf16", "autocast")
#: Numbers that an optimizer remembers for each parameter.
NUMBERS = {"adam": 2, "momentum": 1, "sgd": 0}


class StateBytes(Formula):
    name = "state_bytes"

    def problem(self, fn, case):
        return super().problem(unaided(fn, memory), case)

    def cases(self, rng: Random) -> list[Case]:
        telling = [("mixed", "sgd"), ("fp32", "sgd"), ("mixed", "momentum"), ("fp32", "adam")]
        ns = (1_000_000_000, 7, rng.randint(1, 10**12))
        return [self.case(ns[0], *way) for way in telling] + [
            self.case(n, precision, optimizer) for n in ns for optimizer in NUMBERS for precision in PRECISIONS]

    def case(self, n: int, precision: str, optimizer: str) -> Case:
        return Case((n, precision, optimizer), {part: n * each for part, each in bytes_each(precision, optimizer).items()},
                    {"parameters": n, "precision": precision, "optimizer": optimizer})

    def compare(self, came, case):
        if not isinstance(came, Mapping) or set(came) != set(PARTS):
            return f'it returned {came!r}; expected a dict with the keys "weights", "gradients" and "optimizer"'
        if part := next((part for part in PARTS if not is_number(came[part])), None):
            return f"{part} came as {article(type(came[part]).__name__)}, {came[part]!r}; expected a number of bytes"
        wrong = next((part for part in PARTS if came[part] != case.expected[part]), None)
        if wrong is None:
            return None
        text = f"the {wrong} came as {came[wrong]:,} bytes, expected {case.expected[wrong]:,}"
        n, precision, optimizer = case.arguments
        likely = mistake(wrong, came[wrong] / n, precision, optimizer)
        return f"{text}\n  {likely}" if likely else text


def bytes_each(precision: str, optimizer: str) -> dict[str, int]:
    """The bytes of each part for one parameter, from the library's recipe for Adam."""
    r = memory.recipe(precision)
    return {"weights": r.weight + r.copy, "gradients": r.gradient, "optimizer": r.master + NUMBERS[optimizer] * r.momentum}


def mistake(part: str, each: float, precision: str, optimizer: str) -> str | None:
    """Which mistake gives so many bytes a parameter."""
    right = bytes_each(precision, optimizer)[part]
    if each == 8 * right:
        return "Bits, not bytes?"
    if part == "weights":
        return {("autocast", 4): "Autocast keeps a 16-bit copy of the weights besides the 32-bit ones: 4 + 2 bytes.",
                ("autocast", 2): "Autocast's weights have 32 bits; the 16-bit copy comes on top: 4 + 2 bytes.",
                ("mixed", 6): "In mixed precision the 32-bit copy is the optimizer's: count it there.",
                ("mixed", 4): "In mixed precision the weights have 16 bits; the 32-bit copy is the optimizer's."
                }.get((precision, each))
    if part == "gradients":
        return {"autocast": "Under autocast the gradients have the type of the weights: 32 bits.",
                "mixed": "In mixed precision the gradients have 16 bits, as the weights."}.get(precision)
    numbers = NUMBERS[optimizer]
    item = 2 if precision == "bf16" else 4
    if each == 4 * numbers and precision == "mixed":
        return "The master copy of the weights is left out: in mixed precision the optimizer keeps one, 4 bytes."
    if each in (4 + 2 * numbers, 2 * numbers) and precision == "mixed":
        return "In mixed precision the optimizer works in 32 bits: its numbers have 4 bytes each."
    if each == 4 * numbers and precision == "bf16":
        return "In bf16 everything has 16 bits, the optimizer's numbers too."
    if each == 4 + item * numbers:
        return "A master copy is there in mixed precision only: elsewhere the weights themselves are updated."
    if each == right + bytes_each(precision, optimizer)["gradients"]:
        return "The gradient is counted with the optimizer: it isn't the optimizer's, and is counted by itself."
    if each == bytes_each(precision, "adam")["optimizer"]:
        return "That is Adam's: momentum remembers one number a parameter, and plain SGD none."
    if each == right - item and numbers == 2:
        return "Adam remembers two numbers a parameter: a mean, and a mean of squares."
    return None
