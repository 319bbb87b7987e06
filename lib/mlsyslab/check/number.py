"""Judging answers that are one whole number, a count."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from types import ModuleType
from typing import Any

from mlsyslab.check.exercise import Formula
from mlsyslab.check.messages import article, is_number, is_whole
from mlsyslab.check.unaided import unaided

#: What a mistake gives, and words for the mistake.
Slip = tuple[Any, str]


class Number(Formula):
    """The check of a function whose answer is one whole number, and which may not ask `packages` for it."""

    packages: tuple[ModuleType, ...]
    noun: str  # what the number counts

    def problem(self, fn, case):
        return super().problem(unaided(fn, *self.packages), case)

    @abstractmethod
    def slips(self, *arguments) -> Sequence[Slip]:
        """What known mistakes give, the likeliest first."""

    def compare(self, came, case):
        if not is_number(came):
            return f"it returned {article(type(came).__name__)}, {came!r}; expected a number of {self.noun}"
        if came == case.expected:
            return None
        given = ", ".join(map(repr, case.arguments))
        text = f"{self.name}({given}) came as {shown(came)}, expected {case.expected:,}"
        likely = next((words for value, words in self.slips(*case.arguments) if value == came), None)
        return f"{text}\n  {likely}" if likely else text


def shown(number: float) -> str:
    """With commas, and of a fraction eight digits."""
    return f"{number:,}" if is_whole(number) else f"{float(number):,.8g}"
