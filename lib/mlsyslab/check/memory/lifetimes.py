"""Judging how much is held in each phase."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from mlsyslab import memory
from mlsyslab.check.exercise import Case, Formula
from mlsyslab.check.messages import article, count, is_number
from mlsyslab.check.unaided import unaided

#: (bytes, first phase, last phase)
Buffer = tuple[int, int, int]


class Held(Formula):
    name = "held"

    def problem(self, fn, case):
        return super().problem(unaided(fn, memory), case)

    def cases(self, rng: Random) -> list[Case]:
        fixed = [([100, 200, 400], [1, 2, 4, 8], 10_000), ([5], [3, 7], 20), ([7, 7], [0, 5, 0], 0)]
        drawn = [([rng.randint(1, 10**9) for _ in range(L)], [rng.randint(1, 10**9) for _ in range(L + 1)],
                  rng.randint(1, 10**10)) for L in (1, 2, 5, rng.randint(6, 30))]
        return [self.case(weights, xs, state if training else 0, training)
                for training in (True, False) for weights, xs, state in fixed + drawn]

    def case(self, weights: list[int], xs: list[int], state: int, training: bool) -> Case:
        phases = 2 * len(weights) + 1 if training else len(weights)
        return Case((weights, xs, state, training), total(buffers(weights, xs, state, training), phases),
                    {"run": "training" if training else "inference", "layers": len(weights)})

    def compare(self, came, case):
        weights, xs, state, training = case.arguments
        L, right = len(weights), case.expected
        if not isinstance(came, (list, tuple)) or not all(map(is_number, came)):
            return f"it returned {article(type(came).__name__)}, {came!r}; expected a list of numbers, one a phase"
        if len(came) != len(right):
            phases = "L forward, L backward, and the update" if training else "one for each layer"
            return f"it returned {count(len(came), 'number')}; expected {len(right)}: {phases}"
        phase = next((i for i, (one, other) in enumerate(zip(came, right, strict=True)) if one != other), None)
        if phase is None:
            return None
        text = f"in phase {phase} ({name_of(phase, L, training)}) there are {came[phase]:,} bytes, expected {right[phase]:,}"
        likely = mistake(list(came), weights, xs, state, training)
        return f"{text}\n  {likely}" if likely else text


def name_of(phase: int, L: int, training: bool) -> str:
    if phase == 2 * L:
        return "the update"
    return f"forward of layer {phase}" if phase < L else f"backward of layer {2 * L - 1 - phase}"


def total(of: Sequence[Buffer], phases: int) -> list[int]:
    """Bytes held in each phase."""
    return [sum(nbytes for nbytes, first, last in of if first <= phase <= last) for phase in range(phases)]


def buffers(weights: Sequence[int], xs: Sequence[int], state: int, training: bool, *, longer: int = 0,
            needs_output: bool = True, gradients_from: str = "backward", gradients_to: int = 0,
            of_activations: int = 2) -> list[Buffer]:
    """Every buffer with its lifetime; the keywords are for mistakes.

    longer: phases by which an activation outlives its last use.  needs_output: whether backward of l reads x_{l+1}.
    gradients_from: "backward" or "start"; gradients_to: by how many phases they end before the update.
    of_activations: for how many phases an activation's gradient is there.
    """
    L = len(weights)
    last = 2 * L if training else L - 1
    found = [(sum(weights) + state, 0, last)]

    def back(layer: int) -> int:
        return 2 * L - 1 - layer

    for l, x in enumerate(xs):
        made = max(l - 1, 0)
        if not training:
            found.append((x, made, min(l, L - 1)))
            continue
        reader = back(l if not needs_output or l == 0 else l - 1)
        found.append((x, made, max(min(reader + longer, 2 * L - 1), made)))
        if of_activations:
            first = back(l) if l < L else L
            found.append((x, first, min(first + of_activations - 1, back(l - 1) if l else back(0))))
    if training:
        found += [(W, back(l) if gradients_from == "backward" else 0, last - gradients_to) for l, W in enumerate(weights)]
    return found


def mistake(came: list[int], weights: list[int], xs: list[int], state: int, training: bool) -> str | None:
    """Which other lifetimes give these numbers."""
    def as_if(**other) -> list[int]:
        return total(buffers(weights, xs, state, training, **other), len(came))

    L = len(weights)
    if not training:
        everything = [sum(weights) + sum(xs[:l + 2]) for l in range(L)]
        ways = [(everything, "In inference no activation is needed twice: only what the layer at work reads and writes is "
                             "there."),
                ([sum(weights) + xs[l + 1] for l in range(L)], "The layer at work reads its input: that is there too."),
                ([sum(weights) + xs[l] for l in range(L)], "The layer at work writes its output: that is there too."),
                ([weights[l] + xs[l] + xs[l + 1] for l in range(L)], "All weights are there throughout, not only those of "
                                                                     "the "
                                                                     "layer at work.")]
    else:
        ways = [(as_if(longer=2 * L), "The activations are let go one by one in backward: x_l is there until the backward "
                                      "of "
                                      "layer l-1, which reads it last."),
                (as_if(needs_output=False), "The backward of layer l reads x_{l+1} too: it is still there in that phase."),
                (as_if(of_activations=0), "In the backward of layer l the gradients of x_l and x_{l+1} are there."),
                (as_if(of_activations=1), "In the backward of layer l the gradients of x_l *and* x_{l+1} are there: one is "
                                          "read, the other made."),
                (as_if(gradients_from="start"), "The gradient of W_l is there from the backward of layer l on, not before."),
                (as_if(gradients_to=1), "The update reads the gradients of all weights: they are there in that phase."),
                ([n - state for n in as_if()], "Is `state` used? The optimizer's state is there throughout."),
                ([n - g for n, g in zip(as_if(), gradients_of(weights), strict=True)], "The gradients of the weights are "
                                                                                       "left "
                                                                                       "out."),
                ([n - g + w for n, g, w in zip(as_if(), gradients_of(weights), alone(weights), strict=True)],
                 "The gradient of W_l stays until the update: in a phase of backward those of all later layers are there "
                 "too.")]
    return next((words for value, words in ways if value == came), None)


def gradients_of(weights: Sequence[int]) -> list[int]:
    """Bytes of the weights' gradients in each phase of training."""
    L = len(weights)
    return [0] * L + [sum(weights[l:]) for l in reversed(range(L))] + [sum(weights)]


def alone(weights: Sequence[int]) -> list[int]:
    """The same, if each were let go after its phase."""
    return [0] * len(weights) + list(reversed(weights)) + [0]
