"""Judging the two formulas of ZeRO: the bytes that a rank keeps, and the elements that it sends in a step."""

from __future__ import annotations

from collections.abc import Mapping
from random import Random
from typing import Any

from mlsyslab import zero
from mlsyslab.check.exercise import Case, Formula
from mlsyslab.check.messages import article, is_number, is_whole
from mlsyslab.check.unaided import unaided

PARTS = ("parameters", "gradients", "optimizer")
#: From which stage on each of them is cut.
CUT_FROM = {"parameters": 3, "gradients": 2, "optimizer": 1}
#: Bytes of a parameter, of a gradient and of a master copy.
BYTES = {"mixed": (2, 2, 4), "single": (4, 4, 0)}
#: Numbers of 4 bytes that an optimizer remembers for each parameter.
NUMBERS = {"adam": 2, "momentum": 1, "sgd": 0}


class Unaided(Formula):
    """The check of a function of plain data that may not ask `mlsyslab.zero` for the answer."""

    def problem(self, fn, case):
        return super().problem(unaided(fn, zero), case)


class StateBytes(Unaided):
    name = "state_bytes"

    def cases(self, rng: Random) -> list[Case]:
        chosen = [self.case(7_500_000_000, 64, stage, "mixed", "adam") for stage in (0, 1, 2, 3)]
        chosen += [self.case(1_000_003, p, stage, precision, optimizer) for p in (4, 3, 1) for stage in (3, 2, 1, 0)
                   for precision, optimizer in (("mixed", "adam"), ("single", "adam"), ("mixed", "momentum"),
                                                ("single", "sgd"), ("mixed", "sgd"), ("single", "momentum"))]
        return chosen + [self.case(rng.randint(1, 10**9), rng.randint(2, 1024), rng.randint(0, 3), rng.choice(list(BYTES)),
                                   rng.choice(list(NUMBERS))) for _ in range(8)]

    def case(self, M: int, p: int, stage: int, precision: str, optimizer: str) -> Case:
        traits = {"world size": p, "parameters": M, "stage": stage, "precision": precision, "optimizer": optimizer}
        return Case((M, p, stage, precision, optimizer), expected(M, p, stage, precision, optimizer), traits)

    def compare(self, came, case):
        if not isinstance(came, Mapping) or set(came) != set(PARTS):
            return (f"it returned {came!r}; expected a dict with the keys "
                    '"parameters", "gradients" and "optimizer"')
        if part := next((part for part in PARTS if not is_number(came[part])), None):
            return f"{part} came as {article(type(came[part]).__name__)}, {came[part]!r}; expected a number of bytes"
        wrong = next((part for part in PARTS if came[part] != case.expected[part]), None)
        if wrong is None:
            return None
        text = f"the {wrong} came as {came[wrong]:,} bytes, expected {case.expected[wrong]:,}"
        likely = state_mistake(wrong, came, *case.arguments)
        return f"{text}\n  {likely}" if likely else text


def expected(M: int, p: int, stage: int, precision: str, optimizer: str) -> dict[str, int]:
    each, shard = each_parameter(precision, optimizer), -(-M // p)
    return {part: each[part] * (shard if stage >= CUT_FROM[part] else M) for part in PARTS}


def each_parameter(precision: str, optimizer: str) -> dict[str, int]:
    """The bytes of each part for one parameter."""
    parameter, gradient, master = BYTES[precision]
    return {"parameters": parameter, "gradients": gradient, "optimizer": master + 4 * NUMBERS[optimizer]}


def state_mistake(part: str, came: Mapping[str, Any], M: int, p: int, stage: int, precision: str,
                  optimizer: str) -> str | None:
    """Which mistake gives this number of bytes."""
    value, each = came[part], each_parameter(precision, optimizer)[part]
    cut = stage >= CUT_FROM[part]
    if value == each * (M // p) and cut:
        return ("That is the shortest shard: where p doesn't divide M, the first ranks' are longer by one, so that rank 0 "
                "has ceil(M / p) elements.")
    if abs(value - each * M / p) < 1 and cut:
        return "That is the mean of all ranks: a shard has a whole number of elements, and rank 0's are ceil(M / p)."
    if cut and value == each * M:
        verb = "is" if part == "optimizer" else "are"
        return f"From stage {CUT_FROM[part]} on the {part} {verb} cut: rank 0 has ceil(M / p) elements."
    if not cut and value in (each * -(-M // p), each * (M // p)):
        return (f"In stage {stage} the {part} are not cut yet: stage 1 cuts the optimizer, stage 2 the gradients too, "
                "stage 3 the parameters too.")
    if part == "optimizer":
        elements, master, numbers = -(-M // p) if cut else M, BYTES[precision][2], NUMBERS[optimizer]
        for instead, words in (
                (4 * numbers, "The master copy is left out, or the state counted with 2 bytes a number: the optimizer "
                              "works in 4 bytes throughout."),
                (4 + 4 * numbers, "A master copy is needed only where the parameters have 2 bytes."),
                (master + 8, "That is Adam's state: momentum remembers one number for each parameter, and plain SGD none."),
                (master + 4, "Adam remembers two numbers for each parameter: a mean and a mean of squares.")):
            if value == instead * elements:
                return words
    if precision == "single" and value * 2 == each * (-(-M // p) if cut else M):
        return "In single precision parameters and gradients have 4 bytes."
    return None


class ElementsSent(Unaided):
    name = "elements_sent"

    def cases(self, rng: Random) -> list[Case]:
        grid = [(stage, k) for k in (1, 4) for stage in (0, 1, 2, 3)]
        return [*(self.case(2400, p, stage, k) for p in (5, 3, 2, 8, 1) for stage, k in grid),
                *(self.case(p * rng.randint(1, 10**6), p, rng.randint(0, 3), rng.randint(1, 9))
                  for p in (rng.randint(2, 100) for _ in range(8)))]

    def case(self, M: int, p: int, stage: int, k: int) -> Case:
        traits = {"world size": p, "parameters": M, "stage": stage, "k": k}
        return Case((M, p, stage, k), times(stage, k) * (p - 1) * M // p, traits)

    def compare(self, came, case):
        if not is_number(came):
            return f"it returned {article(type(came).__name__)}, {came!r}; expected a number of elements"
        M, p, stage, k = case.arguments
        if abs(came - case.expected) <= 1e-9 * case.expected:
            return None
        shown = f"{came:,}" if is_whole(came) else f"{came:,.6g}"
        text = f"elements_sent({M}, {p}, {stage}, {k}) came as {shown}, expected {case.expected:,}"
        likely = traffic_mistake(came, M, p, stage, k)
        return f"{text}\n  {likely}" if likely else text


def times(stage: int, k: int) -> int:
    """How often all parameters' number of elements goes round the ring."""
    return {0: 2, 1: 2, 2: k + 1, 3: 3 * k}[stage]


def traffic_mistake(came: float, M: int, p: int, stage: int, k: int) -> str | None:
    """Which mistake gives this number of elements."""
    c = (p - 1) / p
    ways = [
        ({0: 2, 1: 2, 2: 2, 3: 3}[stage] * M * c,
         "That is right for one microbatch. Stage 2 reduce-scatters after each of the k, and stage 3 gathers for each "
         "forward and each backward too."),
        ({0: 2, 1: 2, 2: 2, 3: 3}[stage] * k * M * c,
         "What is sent only once a step is counted for each microbatch: stages 0 and 1 reduce the sum once, and stages 1 "
         "and 2 gather the parameters once, after the update."),
        (times(stage, k) * M, "Round a ring of p ranks a reduce-scatter or all-gather sends (p-1)/p of the vector a rank, "
                              "not all of it: a rank's own part stays."),
        (times(stage, k) * M * (p - 1), "That is what all ranks send together."),
        (times(stage, k) * M / p, "That is one part of the vector; a rank sends p-1 of them."),
        (2 * times(stage, k) * M * c, "That is twice as much: does it count what a rank receives too? Or bytes of 2?"),
        ({3: 2 * k}.get(stage, 0) * M * c, "Stage 3 gathers the parameters twice for a microbatch, for its forward and "
                                           "again for its backward."),
        ({3: 3 * k + 1}.get(stage, 0) * M * c, "After stage 3's update nothing is gathered: the next forward does that."),
        ({2: k}.get(stage, 0) * M * c, "Stage 2's new parameters have to reach all ranks: that is an all-gather after the "
                                       "update."),
        ({1: 3, 2: 2 * k + 1}.get(stage, 0) * M * c, "A reduce-scatter is half of an all-reduce: the gradients needn't come "
                                                     "together again."),
        ({0: 1, 1: 1}.get(stage, 0) * M * c, "An all-reduce is a reduce-scatter and an all-gather: each sends (p-1)/p M."),
    ]
    return next((words for value, words in ways if abs(came - value) <= 1e-9 * value), None)
