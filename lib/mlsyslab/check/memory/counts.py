"""Judging answers that are one number: parameters, activation bytes, the best spacing of checkpoints."""

from __future__ import annotations

import math
from random import Random

from mlsyslab import memory, model
from mlsyslab.check import number
from mlsyslab.check.exercise import Case
from mlsyslab.check.messages import is_whole


class Number(number.Number):
    packages = (memory,)


class Parameters(Number):
    name, noun, packages = "parameters", "parameters", (model,)

    def cases(self, rng: Random) -> list[Case]:
        shapes = [(12, 768, 50_257, 1024, True), (1, 8, 11, 5, True), (2, 8, 11, 5, False),
                  (96, 12_288, 50_257, 2048, False), (3, 1, 2, 1, True)]
        return [self.case(*shape) for shape in shapes] + [
            self.case(rng.randint(1, 99), rng.randint(1, 9000), rng.randint(2, 99_999), rng.randint(1, 9999),
                      rng.random() < 0.5) for _ in range(6)]

    def case(self, L: int, h: int, V: int, s: int, tied: bool) -> Case:
        config = model.Config(layers=L, hidden=h, heads=1, vocabulary=V, sequence=s, tied=tied)
        return Case((L, h, V, s, tied), model.parameters(config), {"L": L, "h": h, "V": V, "s": s, "tied": tied})

    def slips(self, L, h, V, s, tied):
        right = parameters(L, h, V, s, tied)
        return [
            (right - 9 * L * h, "The biases of the linear layers seem to be left out: a linear layer has one for each "
                                "output."),
            (right - (13 * L + 2) * h, "Biases and norms are left out: that is 12 L h² and the embeddings."),
            (right - 2 * h, "The last layer norm, behind all layers, is left out."),
            (right - (4 * L + 2) * h, "The layer norms are left out: each has a gain and a bias, 2 h numbers."),
            (right - 4 * L * h, "The layer norms of the layers are left out: each has a gain and a bias, 2 h numbers."),
            (right - (2 * L + 1) * h, "A layer norm has a gain and a bias: 2 h numbers."),
            (right - 2 * L * h, "There are two layer norms in a layer."),
            (right - s * h, "The embedding of the positions is left out."),
            (parameters(L, h, V, s, not tied), "Is `tied` used the right way? If it is true there is no other matrix for "
                                               "the "
                                               "output."),
            (right - L * 2 * (h * h + h), "Queries, keys and values each have a matrix: h to 3h."),
            (right + (0 if tied else V), "The output matrix has no bias."),
            (right + V, "The output matrix has no bias."),
            (right - (L - 1) * (12 * h * h + 13 * h), "That has one layer: is `L` used?"),
        ]


def parameters(L: int, h: int, V: int, s: int, tied: bool) -> int:
    return (V + s) * h + L * (12 * h * h + 13 * h) + 2 * h + (0 if tied else V * h)


class ActivationBytes(Number):
    name, noun = "activation_bytes", "bytes"

    def cases(self, rng: Random) -> list[Case]:
        gpt3 = (2048, 1, 12_288, 96)
        ways = [(2, True, None), (2, True, "selective"), (2, True, "full"), (4, True, None), (2, False, None),
                (4, False, "selective"), (4, True, "full"), (4, False, None)]
        drawn = [(rng.randint(1, 4096), rng.randint(1, 64), rng.randint(1, 128) * 64, rng.randint(1, 64)) for _ in range(3)]
        return [self.case(*shape, *way) for shape in (gpt3, (3, 5, 8, 2), *drawn) for way in ways]

    def case(self, s: int, b: int, h: int, a: int, item: int, dropout: bool, recompute: str | None) -> Case:
        traits = {"s": s, "b": b, "h": h, "a": a, "item": item, "dropout": dropout, "recompute": recompute}
        return Case((s, b, h, a, item, dropout, recompute), activation_bytes(s, b, h, a, item, dropout, recompute), traits)

    def slips(self, s, b, h, a, item, dropout, recompute):
        wide, square = s * b * h, a * s * s * b
        right = activation_bytes(s, b, h, a, item, dropout, recompute)
        return [
            *([] if not dropout or recompute == "full" else [
                (activation_bytes(s, b, h, a, item, False, recompute), "Is dropout left out? It keeps masks, and behind the "
                                                                       "softmax its output too."),
                (right + (item - 1) * (2 * wide + (square if recompute is None else 0)),
                 "A mask has one byte for each element, whatever `item` is."),
            ]),
            *([(right + 2 * wide, "Without dropout there are no masks."),
               (activation_bytes(s, b, h, a, item, True, recompute), "Without dropout there are no masks, and nothing "
                                                                     "behind "
                                                                     "the softmax but itself.")] if not dropout else []),
            (activation_bytes(s, b, h, a, 2, dropout, recompute), "Is `item` used?"),
            (activation_bytes(s, b, h, a, item, dropout, None), "Is `recompute` used? \"selective\" leaves out what is s × "
                                                                "s; "
                                                                '"full" keeps the layer\'s input only.'),
            (right + square * (item + ((1 + item) if dropout else 0)) * (recompute == "selective"),
             '"selective" keeps nothing that is s × s.'),
            (right - square * item, "One of the s × s matrices is missing: the softmax's output is kept, and with dropout "
                                    "what multiplies the values as well."),
            (right - square * (a - 1) * (item + ((1 + item) if dropout else 0)) // a, "There is an s × s matrix for each "
                                                                                      "head."),
            (right - 6 * wide * item, "The GELU's input and output are 4 h wide each."),
            (right - 3 * wide * item, "GELU's input *and* output are 4 h wide; or are queries, keys and values left out?"),
            (right - 2 * wide * item, "Queries, keys and values are three tensors; or are the norms' inputs left out?"),
            (right + 2 * wide * item, "The norm's output is kept once, though queries, keys and values are all computed "
                                      "from "
                                      "it."),
            (right - 4 * wide * item, "The GELU keeps its input, and the product behind it the GELU's output: 4 h wide "
                                      "each."),
            (16 * wide * item, "Only what is h (or 4 h) wide is there; the s × s matrices and masks are missing."),
        ]


def activation_bytes(s: int, b: int, h: int, a: int, item: int, dropout: bool, recompute: str | None) -> int:
    """s b h (16 item + masks) + a s² b (…): Korthikanti's 34 and 5, with the bytes of a number left open."""
    if recompute == "full":
        return s * b * h * item
    core = 0 if recompute == "selective" else a * s * s * b * (2 * item + 1 if dropout else item)
    return s * b * h * (16 * item + 2 * dropout) + core


class BestSpacing(Number):
    name, noun = "best_spacing", "layers"

    def cases(self, rng: Random) -> list[Case]:
        chosen = [(60, 10, 1), (96, 1, 1), (96, 50, 860), (24, 1, 1), (12, 1, 1), (7, 1, 1), (48, 3, 1), (30, 1, 100),
                  (30, 100, 1), (2, 1, 1), (1, 5, 5), (100, 1, 1), (40, 2, 3), (10, 1, 1)]
        drawn = [(rng.randint(5, 500), rng.randint(1, 100), rng.randint(1, 300)) for _ in range(12)]
        return [Case(way, memory.best_spacing(*way), dict(zip(("L", "boundary", "inside"), way, strict=True)))
                for way in chosen + drawn]

    def slips(self, L, boundary, inside):
        def best(cost, order=range(L, 0, -1)):
            return min(order, key=cost)

        root = math.sqrt(L * boundary / inside)
        return [
            (best(lambda k: math.ceil(L / k) * boundary + k * inside, range(1, L + 1)),
             "That holds as little, but of several that are equally good take the largest k."),
            (best(lambda k: L // k * boundary + k * inside), "The last segment may be shorter: there are ceil(L/k) "
                                                             "segments, "
                                                             "not L // k."),
            (best(lambda k: L / k * boundary + k * inside), "There is a whole number of segments: ceil(L/k)."),
            (best(lambda k: math.ceil(L / k) * inside + k * boundary), "Boundary and inside are exchanged."),
            (best(lambda k: math.ceil(L / k) + k), "Are `boundary` and `inside` used? An input and a layer's inside needn't "
                                                   "be "
                                                   "equally large."),
            *((value, "The root is where a smooth curve is least; the best whole k is near it, but ceil(L/k) jumps. Try "
                      "them.")
              for value in (round(root), math.floor(root), math.ceil(root), root)),
            *((value, "The square root of L alone holds for an input as large as a layer's inside.")
              for value in (round(math.sqrt(L)), math.isqrt(L), math.sqrt(L))),
            (math.ceil(L / memory.best_spacing(L, boundary, inside)), "That is the number of segments; k is their length."),
        ]

    def compare(self, came, case):
        wrong = super().compare(came, case)
        if wrong and is_whole(came) and 1 <= came <= case.arguments[0]:
            L, boundary, inside = case.arguments
            held = [math.ceil(L / k) * boundary + k * inside for k in (came, case.expected)]
            first, *rest = wrong.split("\n")
            return "\n".join([f"{first}: with {came} it holds {held[0]:,} bytes, with {case.expected} {held[1]:,}", *rest])
        return wrong
