"""The base of this lab's checks: an answer is a dict, each of whose fields is judged by itself."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from mlsyslab import measure, mfu, model
from mlsyslab.check.exercise import Case, Formula
from mlsyslab.check.messages import article, is_number, is_whole, listing
from mlsyslab.check.number import Slip
from mlsyslab.check.unaided import unaided

#: What holds answers: the topic's package, the model, which can count, and the instruments.
PACKAGES = (mfu, model, measure)
#: The largest share of a difference that counts as rounding.
CLOSE = 1e-6


class Unaided(Formula):
    """A function of plain data that may ask none of PACKAGES."""

    def problem(self, fn, case):
        return super().problem(unaided(fn, *PACKAGES), case)


class Fields(Unaided):
    """A function that returns a dict.

    nouns: what each field is a number of, where it is one.  exact: whether numbers have to be equal, or close.
    """

    nouns: Mapping[str, str]
    exact = False

    @abstractmethod
    def slips(self, field: str, *arguments) -> Sequence[Slip]:
        """What known mistakes give in a field, the likeliest first."""

    def compare(self, came, case):
        if wrong := unlike(came, list(self.nouns)):
            return f"it returned {wrong}"
        return compared(came, case.expected, self.nouns, self.exact, lambda field: self.slips(field, *case.arguments))


def unlike(came: Any, fields: Sequence[str]) -> str | None:
    """How something isn't a dict with these keys."""
    if isinstance(came, Mapping) and set(came) == set(fields):
        return None
    return f"{came!r:.200}; expected a dict with the keys {listing(map(quoted, fields))}"


def compared(came: Mapping[str, Any], right: Mapping[str, Any], nouns: Mapping[str, str], exact: bool,
             slips: Callable[[str], Sequence[Slip]]) -> str | None:
    """What is wrong with the first field that isn't right, and which mistake gives that."""
    for field, noun in nouns.items():
        one, expected = came[field], right[field]
        if alike(one, expected, exact):
            continue
        text = f"{quoted(field)} came as {told(one)}, expected {told(expected)}"
        if one is not None and is_number(expected) and not is_number(one):
            text = f"{quoted(field)} came as {article(type(one).__name__)}, {one!r:.80}; expected a number: {noun}"
        likely = next((words for value, words in slips(field) if alike(one, value, exact)), None)
        return f"{text}\n  {likely}" if likely else text
    return None


def alike(came: Any, right: Any, exact: bool) -> bool:
    """Whether two numbers, or two texts, are the same, NumPy's too; None is like None alone."""
    if is_number(came) and is_number(right):
        return came == right if exact else math.isclose(came, right, rel_tol=CLOSE)
    return came is None and right is None or isinstance(came, str) and came == right


def told(value: Any) -> str:
    if not is_number(value):
        return quoted(value) if isinstance(value, str) else repr(value)
    return f"{value:,}" if is_whole(value) else f"{float(value):.6g}"


def quoted(name: str) -> str:
    return f'"{name}"'


def case(arguments: Sequence[Any], expected: Any, names: str, **more: Any) -> Case:
    """A case whose traits are its arguments, by these names."""
    return Case(tuple(arguments), expected, dict(zip(names.split(), arguments, strict=True)) | more)
