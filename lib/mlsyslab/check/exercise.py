"""How every exercise is checked: run it on many inputs, judge values and trace, and say what the mistake looks like."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any

import torch

from mlsyslab.check import inputs
from mlsyslab.check.contrast import contrast
from mlsyslab.check.messages import Wrong, difference, failure, listing, traits
from mlsyslab.check.runs import Outcome, run
from mlsyslab.comm import Deadlock, Link, RankFailed

#: Every message takes one second, whatever its length, so that virtual time counts rounds.
ROUNDS = Link(alpha=1.0)


@dataclass(frozen=True)
class Case:
    """One run of an exercise.

    arguments: what each rank's function is called with after `comm`.  expected: what each rank should return.
    traits: what tells this run from others ("world size" always among them), in the words of a message.
    """

    arguments: Sequence[tuple]
    expected: Sequence[torch.Tensor]
    traits: Mapping[str, Any] = field(default_factory=dict)

    @property
    def p(self) -> int:
        """The world size."""
        return len(self.arguments)


@dataclass(frozen=True)
class Problem:
    """What is wrong with one run. costly: finding it out took long, so don't look for it again in other runs."""

    text: str
    costly: bool = False


class Exercise(ABC):
    """The check of one exercise whose answer is a function that every rank runs.

    A lab's test cell calls it: `check.NAME(function)`, and with `hidden=True` for inputs from the secret seed.
    It prints one line when all is right, and raises `Wrong` at the first run that isn't.

    name: of the student's function.  forbidden: the functions of `mlsyslab.collectives` that it may not call
    (None: all of them).  timeout: seconds after which a run that still goes on is ended.
    """

    name: str
    forbidden: Sequence[str] | None = None
    timeout: float = 10.0
    link = ROUNDS

    @abstractmethod
    def cases(self, rng: Random) -> list[Case]:
        """The runs to judge, the most telling first."""

    @abstractmethod
    def judge(self, case: Case, outcome: Outcome) -> str | None:
        """What is wrong with the messages of a run whose values are right; None when nothing is."""

    def diagnose(self, case: Case, outcome: Outcome, fn: Callable[..., Any]) -> str | None:
        """The likely mistake behind wrong values, where the exercise can tell."""
        return None

    def advise(self, error: RankFailed | Deadlock) -> str | None:
        """The likely mistake behind a run that did not end well, where the exercise can tell."""
        return None

    def __call__(self, fn: Callable[..., Any], hidden: bool = False) -> None:
        if not callable(fn):
            raise Wrong(f"{self.name}: give the function itself, check.{self.name}({self.name}), not {fn!r}")
        cases = self.cases(inputs.source(self.name, hidden))
        for case in cases:
            problem = self.problem(fn, case)
            if problem is not None:
                raise Wrong(self._message(fn, case, cases, problem))
        sizes = listing(sorted({case.p for case in cases}))
        print(f"{self.name}: right in {len(cases)} runs, values and messages, for world sizes {sizes}.")

    def run(self, fn: Callable[..., Any], arguments: Sequence[tuple]) -> Outcome:
        """One run under this exercise's rules."""
        return run(fn, arguments, self.link, self.forbidden, self.timeout)

    def problem(self, fn: Callable[..., Any], case: Case) -> Problem | None:
        """What is wrong with one run of `fn`."""
        try:
            outcome = self.run(fn, case.arguments)
        except (RankFailed, Deadlock) as error:
            advice = self.advise(error)
            text = failure(self.name, error) + (f"\n  {advice}" if advice else "")
            return Problem(text, costly=isinstance(error, Deadlock) and bool(error.why))
        for rank, (came, expected) in enumerate(zip(outcome.results, case.expected, strict=True)):
            if wrong := difference(rank, came, expected):
                likely = self.diagnose(case, outcome, fn)
                return Problem(wrong + (f"\n  {likely}" if likely else ""))
        if outcome.changed:
            return Problem(f"the values are right, but rank {outcome.changed[0]}'s input was changed by the run: "
                           "work on a copy (tensor.clone()) and receive into new tensors")
        wrong = self.judge(case, outcome)
        return Problem(f"the values are right, but not the way they came: {wrong}") if wrong else None

    def _message(self, fn: Callable[..., Any], case: Case, cases: Sequence[Case], problem: Problem) -> str:
        text = f"{self.name}, {traits(case.traits)}:\n  {problem.text}"
        if problem.costly or "not written yet" in problem.text:
            return text
        likely = contrast([(other.traits, self._right(fn, other)) for other in cases])
        return f"{text}\n  {likely}" if likely else text

    def _right(self, fn: Callable[..., Any], case: Case) -> bool:
        problem = self.problem(fn, case)
        return problem is None
