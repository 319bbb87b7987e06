"""Judging the weight versions of PipeDream, by the library's schedule."""

from __future__ import annotations

from random import Random

from mlsyslab import pipeline
from mlsyslab.check.exercise import Case
from mlsyslab.check.messages import article, is_whole
from mlsyslab.check.pipeline.unaided import Unaided

#: p ranks, m microbatches
GRID = ((4, 8), (3, 5), (2, 6), (5, 3), (8, 12), (1, 4))


class PipedreamVersions(Unaided):
    name = "pipedream_versions"

    def cases(self, rng: Random) -> list[Case]:
        grid = (*GRID, (rng.randint(3, 9), rng.randint(5, 20)))
        return [self.case(5, 3, 8), *(self.case(p, r, m) for p, m in grid for r in sorted({0, p // 2, p - 1}))]

    def case(self, p: int, r: int, m: int) -> Case:
        row = pipeline.schedule("PipeDream", p, m).actions[r]
        used = {kind: {a.microbatch: a.version for a in row if a.kind == kind} for kind in "FB"}
        pairs = [(used["F"][i], used["B"][i]) for i in range(m)]
        return Case((p, r, m), pairs, {"world size": p, "rank": r, "microbatches": m})

    def compare(self, came, case):
        p, r, m = case.arguments
        if not isinstance(came, (list, tuple)) or not all(isinstance(pair, (list, tuple)) and len(pair) == 2
                                                          for pair in came):
            return f"it returned {article(type(came).__name__)}, {came!r}; expected a list of {m} pairs (forward, backward)"
        if len(came) != m:
            return f"it returned {len(came)} pairs; expected one for each of the {m} microbatches"
        came, right = list(map(tuple, came)), case.expected
        wrong = next((i for i in range(m) if came[i] != right[i]), None)
        if wrong is None:
            return None
        text = (f"microbatch {wrong} came as version {came[wrong][0]} forward and {came[wrong][1]} backward, "
                f"expected {right[wrong][0]} and {right[wrong][1]}")
        likely = mistake(came, right, p, r, m)
        return f"{text}\n  {likely}" if likely else text


def mistake(came: list[tuple], right: list[tuple], p: int, r: int, m: int) -> str | None:
    forward, backward = ([pair[k] for pair in came] for k in (0, 1))
    versions = [pair[0] for pair in right]
    if any(not is_whole(version) or version < 0 for pair in came for version in pair):
        return "Versions are counted from 0, and the first forwards all use version 0: nothing has been updated yet."
    if forward == versions:
        if backward == list(range(m)):
            return ("That is the newest version when the backward comes. PipeDream stashes the one that the forward used, "
                    "so "
                    "that the gradient is that of one function.")
        return "The backward uses the version that the forward used: it was stashed for that."
    if [b - a for a, b in zip(forward, versions, strict=True)] == [-1] * m:
        return "Versions are counted from 0."
    if backward != forward:
        return "Forward and backward of a microbatch use one version on a rank: it is stashed."
    for ahead, words in ((p - 1, "That is so on rank 0 only, the furthest from the loss."),
                         (p - r, "That is one forward too many before the first update."),
                         (0, "That is so on the last rank only, where each backward follows its forward at once."),
                         (r, "It is the first rank that is furthest from the loss, so its forwards are the furthest "
                             "ahead.")):
        if ahead != p - 1 - r and forward == [max(0, i - ahead) for i in range(m)]:
            return (f"{words} Rank r does p-1-r forwards (here {p - 1 - r}) before its first pair of forward and backward, "
                    "and "
                    "updates after every backward.")
    if forward == [0] * m:
        return ("The weights are updated after every backward, not at the end: forwards after the first update find newer "
                "ones.")
    return None


class VersionsHeld(Unaided):
    name = "versions_held"

    def cases(self, rng: Random) -> list[Case]:
        return [self.case(p, r) for p in (4, 3, 2, 5, 8, rng.randint(6, 12), 1) for r in range(p)]

    def case(self, p: int, r: int) -> Case:
        long_run = pipeline.schedule("PipeDream", p, 3 * p)
        return Case((p, r), pipeline.weight_versions(long_run)[r], {"world size": p, "rank": r})

    def compare(self, came, case):
        if not is_whole(came):
            return f"it returned {article(type(came).__name__)}, {came!r}; expected a whole number of versions"
        (p, r), right = case.arguments, case.expected
        if came == right:
            return None
        text = f"versions_held({p}, {r}) came as {came}, expected {right}"
        likely = next((words for value, words in (
            (p, "Only rank 0 has p microbatches in flight."),
            (r + 1, "It is the first rank that keeps the most: its backwards come last."),
            (right - 1, "The newest weights, with which the next forward computes, are a version too."),
            (right + 1, "The version that nobody needs any more is gone: the update that follows its last backward is in "
                        "place."),
            (2, "Two versions are enough for PipeDream-2BW, which updates once in p microbatches; PipeDream updates after "
                "each."),
        ) if came == value), None)
        return f"{text}\n  {likely}" if likely else text
