"""What of the library a lab keeps from its students while they are graded, because it holds answers.

A lab whose name is that of a module withholds this module. Where it withholds more, or less, its checks say so:

    WITHHELD = {"mlsyslab.pipeline": Withheld(kept=("mlsyslab.pipeline.schedule",))}
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec


@dataclass(frozen=True)
class Withheld:
    """A module that is withheld.

    kept: modules in it that students have all the same.
    asked: functions of it that they may call, which the grader runs in their place: what they do is seen, how it is not.
    """

    kept: tuple[str, ...] = ()
    asked: tuple[str, ...] = ()


def withheld(lab: str) -> dict[str, Withheld]:
    """The modules that a lab withholds, by name."""
    if find_spec(f"mlsyslab.check.{lab}") is not None:
        rules = getattr(import_module(f"mlsyslab.check.{lab}"), "WITHHELD", None)
        if rules is not None:
            return rules
    name = f"mlsyslab.{lab}"
    return {name: Withheld()} if find_spec(name) is not None else {}
