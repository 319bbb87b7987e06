"""How every exercise is checked: call it on many inputs, judge what comes, and say what the mistake looks like."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from copy import copy, deepcopy
from dataclasses import dataclass, field
from functools import lru_cache
from random import Random
from typing import TYPE_CHECKING, Any

import torch

from mlsyslab.check import inputs
from mlsyslab.check.contrast import contrast
from mlsyslab.check.messages import Wrong, difference, failure, listing, stub, traits
from mlsyslab.check.runs import Outcome, call, run, same
from mlsyslab.check.show import show
from mlsyslab.comm import Deadlock, Link, Network, RankFailed, Trace

if TYPE_CHECKING:
    from mlsyslab.draw import Picture

#: Every message takes one second, whatever its length, so that virtual time counts rounds.
ROUNDS = Link(alpha=1.0)
#: Seconds after which a call that still goes on is ended where it is only tried to find out what goes wrong when.
BRIEF = 2.0


@dataclass(frozen=True)
class Case:
    """One input of an exercise.

    arguments: what each rank's function is called with after `comm`, by rank; of a formula, its arguments.
    expected: what each rank should return, by rank; of a formula, the answer.
    traits: what tells this case from others, in the words of a message; "world size" among them wherever there are ranks.
    link: what messages cost.
    """

    arguments: Sequence[Any]
    expected: Any
    traits: Mapping[str, Any] = field(default_factory=dict)
    link: Network = ROUNDS

    @property
    def p(self) -> int:
        """The world size."""
        return self.traits["world size"]


@dataclass(frozen=True)
class Problem:
    """What is wrong in one case. unwritten: there is no solution yet.  endless: the call had to be ended."""

    text: str
    unwritten: bool = False
    endless: bool = False


class Check(ABC):
    """The check of one exercise: `check.NAME(function)` in a lab's test cell.

    It prints one line when all is right, and raises `Wrong` at the first case that isn't. `hidden=True` draws the cases
    from the secret seed.

    name: of the student's function.  timeout: seconds after which a call that still goes on is ended.
    forbidden: the functions of a withheld module that it may not ask for while it is graded (None: all of them).
    """

    name: str
    timeout: float = 10.0
    forbidden: Sequence[str] | None = ()

    @abstractmethod
    def cases(self, rng: Random) -> list[Case]:
        """What to try, the most telling first."""

    @abstractmethod
    def problem(self, fn: Callable[..., Any], case: Case) -> Problem | None:
        """What is wrong with `fn` in one case."""

    def __call__(self, fn: Callable[..., Any], hidden: bool = False) -> None:
        if not callable(fn):
            raise Wrong(f"{self.name}: give the function itself, check.{self.name}({self.name}), not {fn!r}")
        cases = drawn(self, inputs.seed(self.name, hidden))
        for case in cases:
            problem = self.problem(fn, case)
            if problem is not None:
                raise Wrong(self._message(fn, case, cases, problem))
        sizes = sorted({case.p for case in cases if "world size" in case.traits})
        print(f"{self.name}: right in {len(cases)} cases" + (f", for world sizes {listing(sizes)}." if sizes else "."))

    def _message(self, fn: Callable[..., Any], case: Case, cases: Sequence[Case], problem: Problem) -> str:
        if problem.unwritten:
            return problem.text
        text = f"{self.name}, {traits(case.traits)}:\n  {problem.text}"
        if problem.endless:
            return text
        likely = self._likely(fn, cases)
        return f"{text}\n  {likely}" if likely else text

    def _likely(self, fn: Callable[..., Any], cases: Sequence[Case]) -> str | None:
        """What the cases that go wrong have in common; None too where one has no end, since to wait for more takes long."""
        brief, found = copy(self), []
        brief.timeout = min(BRIEF, self.timeout)
        for case in cases:
            problem = brief.problem(fn, case)
            if problem is not None and problem.endless:
                return None
            found.append((case.traits, problem is None))
        return contrast(found)

    def _failed(self, error: RankFailed | Deadlock, advice: str | None = None) -> Problem:
        """A call that did not come to its end."""
        text = failure(self.name, error) + (f"\n  {advice}" if advice else "")
        return Problem(text, unwritten=stub(error), endless=isinstance(error, Deadlock) and bool(error.why))


@lru_cache(256)
def drawn(check: Check, seed: str) -> list[Case]:
    """The cases of a check, which take longer to make than to look at what a stub says to the first."""
    return check.cases(Random(seed))


class Exercise(Check):
    """The check of an exercise whose answer is a function that every rank runs.

    forbidden: the functions of `mlsyslab.collectives` that it may not call (None: all of them).
    """

    forbidden: Sequence[str] | None = None

    @abstractmethod
    def judge(self, case: Case, outcome: Outcome) -> str | None:
        """What is wrong with the messages of a run whose values are right; None when nothing is."""

    def differ(self, rank: int, came: Any, expected: Any) -> str | None:
        """How what a rank returned differs from what it should have returned; None when it doesn't."""
        return difference(rank, came, expected)

    def diagnose(self, case: Case, outcome: Outcome, fn: Callable[..., Any]) -> str | None:
        """The likely mistake behind tensors of the right dtype with wrong values or of wrong shape, where it can be told."""
        return None

    def advise(self, error: RankFailed | Deadlock) -> str | None:
        """The likely mistake behind a run that did not come to its end, where it can be told."""
        return None

    def run(self, fn: Callable[..., Any], arguments: Sequence[tuple], link: Network = ROUNDS) -> Outcome:
        """One run under this exercise's rules."""
        return run(fn, arguments, link, self.forbidden, self.timeout)

    @abstractmethod
    def example(self, p: int) -> Case:
        """A case on p ranks to look at."""

    def show(self, fn: Callable[..., Any], p: int = 4) -> Picture | None:
        """Draw a run of `fn` on p ranks, with 1 µs a message and 1 µs for a rank's part of the tensor.

        A run that doesn't come to its end is drawn up to there, and what stopped it is printed.
        """
        if type(p) is not int or not 1 <= p <= 32:
            raise ValueError(f"check.{self.name}.show(p={p!r}): draws 1 … 32 ranks")
        return show(self.name, fn, self.example(p).arguments, self.forbidden, self.timeout, self.picture)

    def picture(self, trace: Trace, title: str) -> Picture:
        """How a run is drawn."""
        from mlsyslab import draw  # brings matplotlib and ipywidgets, which a bare node may lack

        return draw.timeline(trace, title=title)

    def problem(self, fn, case):
        try:
            outcome = self.run(fn, case.arguments, case.link)
        except (RankFailed, Deadlock) as error:
            return self._failed(error, self.advise(error))
        for rank, (came, expected) in enumerate(zip(outcome.results, case.expected, strict=True)):
            if wrong := self.differ(rank, came, expected):
                likely = self.diagnose(case, outcome, fn) if self._comparable(case, outcome) else None
                return Problem(f"{wrong}\n  {likely}" if likely else wrong)
        if outcome.changed:
            return Problem(f"the values are right, but the input of rank {outcome.changed[0]} was changed: "
                           "work on a copy (tensor.clone()) and receive into new tensors")
        wrong = self.judge(case, outcome)
        return Problem(f"the values are right, but not the way they came: {wrong}") if wrong else None

    def _comparable(self, case: Case, outcome: Outcome) -> bool:
        """Whether every rank returned a tensor of the right dtype, so that it can be told what it holds."""
        return all(isinstance(came, torch.Tensor) and came.dtype == right.dtype
                   for came, right in zip(outcome.results, case.expected, strict=True))


class Formula(Check):
    """The check of an exercise whose answer is a function of plain data, called once a case: no ranks take part."""

    @abstractmethod
    def compare(self, came: Any, case: Case) -> str | None:
        """What is wrong with an answer, and where it can be told, why; None when nothing is."""

    def problem(self, fn, case):
        given = deepcopy(tuple(case.arguments))
        try:
            came = call(fn, given, self.timeout)
        except (RankFailed, Deadlock) as error:
            return self._failed(error)
        if came is None:
            return Problem("it returned None: end with `return …` (printing a result does not return it)")
        wrong = self.compare(came, case)
        if wrong is None and not same(given, tuple(case.arguments)):
            wrong = "the answer is right, but an argument was changed: work on a copy"
        return Problem(wrong) if wrong else None
