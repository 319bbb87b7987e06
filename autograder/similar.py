"""Submissions that are more alike than chance explains: something for a person to look at, and no proof of anything.

Code is compared as sequences of tokens in which names, texts and layout don't count, so that renaming and reformatting
change nothing (fingerprints of k tokens, as in Schleimer, Wilkerson and Aiken, Winnowing, 2003). What many have written
says little: a fingerprint found in d of N submissions weighs log(N/d). What the lab itself gives counts for nothing.
"""

from __future__ import annotations

import io
import keyword
import math
import tokenize
from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import combinations

K = 9  # tokens of a fingerprint: about a line of code
LEAST = 12  # fingerprints of its own that a submission needs before it can be compared
ALIKE = 0.8  # from here on a pair is named


@dataclass(frozen=True)
class Pair:
    """Two submissions, or one and the reference, and which share of their rarer fingerprints is in both (0 … 1)."""

    first: str
    second: str
    share: float
    word_for_word: bool


def tokens(source: str) -> list[str]:
    """Its tokens: every name is NAME, every text TEXT; comments and layout are left out."""
    found = []
    try:
        for token in tokenize.generate_tokens(io.StringIO(source).readline):
            if token.type == tokenize.NAME:
                found.append(token.string if keyword.iskeyword(token.string) else "NAME")
            elif token.type == tokenize.STRING:
                found.append("TEXT")
            elif token.type in (tokenize.OP, tokenize.NUMBER):
                found.append(token.string)
            elif token.type in (tokenize.INDENT, tokenize.DEDENT):
                found.append(token.type)
    except (tokenize.TokenError, SyntaxError):  # what comes before the mistake is compared
        pass
    return [str(token) for token in found]


def fingerprints(sources: Mapping[str, str]) -> set[int]:
    """The sequences of K tokens in the cells of a submission, each with the name of its exercise."""
    found = set()
    for exercise, source in sources.items():
        words = tokens(source)
        found |= {hash((exercise, *words[at:at + K])) for at in range(len(words) - K + 1)}
    return found


def pairs(submissions: Mapping[str, Mapping[str, str]], given: Mapping[str, str], reference: Mapping[str, str],
          most: int = 30) -> list[Pair]:
    """The pairs that are most alike, the most alike first; the reference is one of those compared.

    submissions: by student, the code of each exercise.  given: that of the released lab.  reference: that of the solutions.
    """
    empty = fingerprints(given)
    known = {name: fingerprints(sources) - empty for name, sources in submissions.items()}
    known = {name: marks for name, marks in known.items() if len(marks) >= LEAST}
    count = Counter(mark for marks in known.values() for mark in marks)
    rare = max(2, len(known) / 2)  # what more than half of all have written tells no two of them apart
    weight = {mark: math.log((1 + len(known)) / number) for mark, number in count.items() if number <= rare}
    total = {name: sum(weight.get(mark, 0) for mark in marks) for name, marks in known.items()}
    shared: dict[tuple[str, str], float] = defaultdict(float)
    holders = defaultdict(list)
    for name in sorted(known):
        for mark in known[name] & weight.keys():
            holders[mark].append(name)
    for mark, names in holders.items():
        for pair in combinations(names, 2):
            shared[pair] += weight[mark]
    found = [Pair(a, b, value / (total[a] + total[b] - value), same(submissions[a], submissions[b], given))
             for (a, b), value in shared.items()]
    solution = fingerprints(reference) - empty
    found += [Pair(name, "the reference", len(marks & solution) / len(marks | solution),
                   same(submissions[name], reference, given)) for name, marks in known.items()]
    found = [pair for pair in found if pair.share >= ALIKE or pair.word_for_word]
    return sorted(found, key=lambda pair: (-pair.share, pair.first, pair.second))[:most]


def same(first: Mapping[str, str], second: Mapping[str, str], given: Mapping[str, str]) -> bool:
    """Whether most of what both have written is the same to the letter, but for white space and comments of the lab."""
    written = [name for name in first if name in second and first[name].split() != given.get(name, "").split()]
    alike = [name for name in written if first[name].split() == second[name].split()]
    return len(alike) > len(written) / 2
