"""Known-wrong solutions of a lab's exercises: mistakes that people make, each with words that its message must hold."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable


class KnownWrong(defaultdict):
    """For each exercise: (the wrong solution, a phrase of the message that names its mistake)."""

    def __init__(self):
        super().__init__(list)

    def __call__(self, exercise: str, phrase: str) -> Callable[[Callable], Callable]:
        """Enter the decorated function as a wrong solution of `exercise`."""
        def enter(fn):
            self[exercise].append((fn, phrase))
            return fn
        return enter
