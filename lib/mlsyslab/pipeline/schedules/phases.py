"""A rank's row written phase by phase, for schedules in which a rank works on two stages."""

from collections import deque
from collections.abc import Iterator

from mlsyslab.pipeline.schedule import Action


class Phases:
    """The row of a rank that holds two stages, or two chunks, called 0 and 1.

    stages: the stage behind each.  step, first: microbatches of chunk c are first[c], first[c] + step, … .
    """

    def __init__(self, stages: tuple[int, int], first: tuple[int, int] = (0, 0), step: int = 1):
        self.row: list[Action] = []
        self._stages, self._step = stages, step
        self._next = {(kind, chunk): first[chunk] for kind in "FBW" for chunk in (0, 1)}
        self._held_back: deque[int] = deque()

    def do(self, pattern: str, times: int) -> None:
        """Repeat a pattern, as "F0 I1 W1 F1", each action with the next microbatch of its kind and chunk.

        "W" alone is the weight gradient that has waited longest, of either chunk, or nothing when none waits. "F0&B1" runs
        both at the same time.
        """
        for _ in range(times):
            for word in pattern.split():
                actions = [action for part in word.split("&") for action in self._actions(part)]
                self.row += [action._replace(joined=True) for action in actions[:-1]] + actions[-1:]

    def _actions(self, part: str) -> Iterator[Action]:
        if part == "W" and not self._held_back:
            return
        kind, chunk = part[0], int(part[1:] or self._held_back[0])
        yield Action(self._stages[chunk], kind, self._take("B" if kind == "I" else kind, chunk))
        if kind == "I":
            self._held_back.append(chunk)
        elif kind == "W":
            self._held_back.remove(chunk)
        elif kind == "B":
            self._take("W", chunk)

    def _take(self, counter: str, chunk: int) -> int:
        microbatch = self._next[counter, chunk]
        self._next[counter, chunk] += self._step
        return microbatch
