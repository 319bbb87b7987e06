"""The names under which schedules are found."""

from __future__ import annotations

import gc
import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from mlsyslab.pipeline.schedule import Schedule

_GENERATORS: dict[str, Callable[..., Schedule]] = {}


def register(name: str) -> Callable[[Callable[..., Schedule]], Callable[..., Schedule]]:
    """Make a generator, a function `(p, m, …) -> Schedule`, known under `name`."""

    def add(generator: Callable[..., Schedule]) -> Callable[..., Schedule]:
        _GENERATORS[name] = generator
        return generator

    return add


def names() -> list[str]:
    """Every schedule there is."""
    return list(_GENERATORS)


def schedule(name: str, stages: int, microbatches: int, chunks: int | None = None, **options) -> Schedule:
    """The schedule `name` for p = `stages` ranks, one pipeline stage each, and m = `microbatches`.

    chunks: v, how many parts of the model each rank holds, where the schedule lets you choose (interleaved, looped BFS);
    the model is then cut into p v stages, numbered from 0.  options: what the generator of that schedule takes besides.
    Capitals, blanks and hyphens in the name don't matter. Raises ValueError that says what the schedule needs.
    """
    generator = _find(name)
    for what, count in (("stages", stages), ("microbatches", microbatches), ("chunks", 1 if chunks is None else chunks)):
        if not isinstance(count, int) or isinstance(count, bool) or count < 1:
            raise ValueError(f"{what}={count!r}: a whole number, 1 or more")
    taken = list(inspect.signature(generator).parameters)[2:]
    if chunks is not None and ("chunks" in taken or chunks != 1):
        options["chunks"] = chunks
    for option in options:
        if option not in taken:
            choice = f"it takes {', '.join(taken)}" if taken else "it has no options"
            raise ValueError(f"{name} takes no {option}; {choice}")
    with _collector_at_rest():
        return generator(stages, microbatches, **options)


@contextmanager
def _collector_at_rest() -> Iterator[None]:
    """Without cyclic garbage collection, which would search all actions made so far, again and again, for cycles."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def _find(name: str) -> Callable[..., Schedule]:
    def plain(text: str) -> str:
        return "".join(letter for letter in text.lower() if letter.isalnum())

    for known, generator in _GENERATORS.items():
        if plain(known) == plain(name):
            return generator
    raise ValueError(f"no schedule is called {name!r}; there are {', '.join(_GENERATORS)}")
