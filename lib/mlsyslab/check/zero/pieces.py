"""Judging where a flat shard lies in a list of parameters."""

from __future__ import annotations

from random import Random
from typing import Any

import torch

from mlsyslab.check.exercise import Case
from mlsyslab.check.messages import article, is_whole
from mlsyslab.check.zero.formulas import Unaided

Pieces = list[tuple[int, int, int]]


class ShardOf(Unaided):
    name = "shard_of"

    def cases(self, rng: Random) -> list[Case]:
        models = [([5, 2, 4], 2), ([6, 2, 4], 3), ([30, 1, 1, 1, 2], 4), ([3, 0, 5], 3), ([2, 1], 5), ([17], 4),
                  ([1] * 9, 2), ([4, 4], 1), ([rng.randint(0, 12) for _ in range(rng.randint(2, 9))], rng.randint(2, 8))]
        return [self.case(lengths, p, r) for lengths, p in models for r in reversed(range(p))]

    def case(self, lengths: list[int], p: int, r: int) -> Case:
        """What `tensor_split` gives of the numbered elements, read off element by element."""
        owners = torch.cat([torch.full((length,), i) for i, length in enumerate(lengths)]).tensor_split(p)[r].tolist()
        places = torch.cat([torch.arange(length) for length in lengths]).tensor_split(p)[r].tolist()
        mine = {i: [place for owner, place in zip(owners, places, strict=True) if owner == i] for i in dict.fromkeys(owners)}
        pieces = [(i, within[0], within[-1] + 1) for i, within in mine.items()]
        return Case((lengths, p, r), pieces, {"world size": p, "rank": r, "parameters": lengths, "length": sum(lengths)})

    def compare(self, came, case):
        lengths, p, r = case.arguments
        right: Pieces = case.expected
        if not isinstance(came, (list, tuple)) or not all(map(is_piece, came)):
            return (f"it returned {article(type(came).__name__)}, {came!r}; expected a list of triples "
                    "(parameter, start, stop)")
        came = [tuple(map(int, piece)) for piece in came]
        if came == right:
            return None
        text = f"shard_of({lengths}, {p}, {r}) came as {came}\n  expected {right}"
        likely = mistake(came, right, lengths, p, r)
        return f"{text}\n  {likely}" if likely else text


def is_piece(piece: Any) -> bool:
    return isinstance(piece, (list, tuple)) and len(piece) == 3 and all(map(is_whole, piece))


def mistake(came: Pieces, right: Pieces, lengths: list[int], p: int, r: int) -> str | None:
    M = sum(lengths)
    if beyond := next((piece for piece in came if not 0 <= piece[0] < len(lengths)
                       or not 0 <= piece[1] <= piece[2] <= lengths[piece[0]]), None):
        return (f"{beyond} lies outside of the parameters: start and stop count within one parameter, from 0 to its length.")
    if empty := next((piece for piece in came if piece[1] >= piece[2]), None):
        return f"{empty} is empty, and should be left out."
    if [(i, start, stop - 1) for i, start, stop in right if stop - 1 > start] == came:
        return "stop is the first element that doesn't belong to the piece any more, as in Python's slices."
    if sorted(came) == right:
        return "The pieces come in the order of the flat vector."
    quotient = M // p
    for shard, words in (
            ((r * quotient, M if r == p - 1 else (r + 1) * quotient),
             "Here the last shard takes all that is left over. tensor_split makes the first ones longer by one."),
            ((r * -(-M // p), min(M, (r + 1) * -(-M // p))),
             "Here all shards but the last are longer. tensor_split makes only the first M % p of them longer by one."),
            ((r * quotient, (r + 1) * quotient),
             "Here every shard has M // p elements, and some elements belong to nobody.")):
        if came == cut(lengths, *shard):
            return words
    parts = [torch.arange(length).tensor_split(p)[r].tolist() for length in lengths]
    if came == [(i, part[0], part[-1] + 1) for i, part in enumerate(parts) if part]:
        return ("That cuts each parameter by itself, and what is left over goes to the first ranks every time. Lay them "
                "end to end, and cut once.")
    whole = [(i, 0, lengths[i]) for i in dict.fromkeys(i for i, *_ in came)]
    if came == whole and M:
        return ("These are whole parameters. A shard may begin and end in the middle of one: otherwise the largest "
                "parameter would set the size of the shards.")
    return None


def cut(lengths: list[int], first: int, last: int) -> Pieces:
    """The pieces of elements first … last-1 of the flat vector."""
    pieces, offset = [], 0
    for i, length in enumerate(lengths):
        start, stop = max(first - offset, 0), min(last - offset, length)
        if start < stop:
            pieces.append((i, start, stop))
        offset += length
    return pieces
