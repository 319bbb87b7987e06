"""What the runs that go wrong have in common and the right ones don't: often the mistake itself."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

Traits = Mapping[str, Any]


def power_of_two(p: int) -> bool:
    return p & (p - 1) == 0


def size(traits: Traits) -> int:
    """The world size; 1 where an exercise has none."""
    return traits.get("world size", 1)


#: (what holds in the runs that are right, how that reads, which mistake it points to)
CONTRASTS: list[tuple[Callable[[Traits], bool], str, str]] = [
    (lambda t: power_of_two(size(t)), "the world size is a power of two", "a power of two is assumed"),
    (lambda t: size(t) % 2 == 0, "the world size is even", "an even world size is assumed"),
    (lambda t: t.get("root", 0) == 0, "the root is rank 0", "is `root` used? Rank 0 seems to be taken for it"),
    (lambda t: t.get("length", 0) % size(t) == 0, "the world size divides the length",
     "parts of one length are assumed; torch.tensor_split makes the first ones longer by one"),
    (lambda t: t.get("length", size(t)) >= size(t), "every rank has at least one element",
     "with fewer elements than ranks some parts are empty: they still have to be handled"),
    (lambda t: t.get("op", "sum") == "sum", "op is \"sum\"", "is `op` used? A sum seems to be taken for every op"),
    (lambda t: t.get("dtype", "float32").startswith(("float", "bfloat")), "the dtype is a floating-point one",
     "integers have to work too"),
    (lambda t: t.get("vector") == "long", "the vector is longer than at the crossover",
     "is \"mst\" taken too rarely, or never?"),
    (lambda t: t.get("vector") == "short", "the vector is shorter than at the crossover",
     "is \"ring\" taken too rarely, or never?"),
    (lambda t: t.get("columns", 1) == 1, "the tensor has one dimension", "only dimension 0 is cut; keep the others"),
    (lambda t: t.get("microbatches", size(t)) >= size(t), "there are at least as many microbatches as ranks",
     "with fewer, nothing can be done that waits for a microbatch that doesn't come: min(m, …)"),
    (lambda t: t.get("microbatches", 0) % size(t) == 0, "the world size divides the number of microbatches",
     "any m >= 1 has to work, and every microbatch has to come"),
    (lambda t: t.get("chunks", 2) == 2, "every rank holds 2 chunks", "is v used?"),
    (lambda t: t.get("rank", 0) == 0, "the rank is 0", "is r used? What a rank does depends on how far it is from the end"),
    (lambda t: t.get("stages", "equal") == "equal", "all stages take the same time", "they need not"),
    (lambda t: t.get("backward", "B") == "B", "backward is in one piece (B)", "an activation is there until its W is done"),
    (lambda t: t.get("backwards", "in order") == "in order", "backwards come in the order of the forwards",
     "the schedule may take another order: find what a microbatch left by its number"),
    (lambda t: t.get("layers", 1) == 1, "there is one layer", "is every layer dealt with?"),
]


def contrast(runs: Sequence[tuple[Traits, bool]]) -> str | None:
    """Name the condition that best divides right runs from wrong ones; None when there is none.

    runs: (traits, right) of every run. A condition divides them if every run that meets it is right. Runs with one rank
    are left out, for there nearly everything is right; unless only they are wrong.
    """
    several = [(case, right) for case, right in runs if case.get("world size") != 1]
    alone = [right for case, right in runs if case.get("world size") == 1]
    if alone and not all(alone) and all(right for _, right in several):
        return "It is right for 2 and more ranks, and wrong for one: what should happen when there is nobody to talk to?"
    sizes = {case.get("world size") for case, right in several if right}
    if len(sizes) == 1 and sizes <= {4, 8}:
        return f"It is right for world size {min(sizes)} only: is that number written into the code?"
    best, share = None, 0.5  # a condition that explains less than half of what is wrong explains nothing
    for holds, reading, mistake in CONTRASTS:
        met = [right for case, right in several if holds(case)]
        unmet = [right for case, right in several if not holds(case)]
        if len(met) > 1 and all(met) and unmet and unmet.count(False) / len(unmet) > share:
            best, share = f"It is right whenever {reading}, and wrong otherwise: {mistake}", unmet.count(False) / len(unmet)
    return best if best is None or best.endswith("?") else f"{best}."
