"""The page about a class. It needs nothing but a browser, runs nothing and loads nothing."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from itertools import starmap

from autograder.judge.lab import Exercise
from autograder.outcome import GRADED, PERSON
from autograder.pages import POLICY, UNSAFE
from autograder.similar import Pair
from autograder.statistics import Question, Row, Spread, question, spread
from autograder.tables import reasons

STYLE = """
:root { color-scheme: light dark; --ink: #1a1a1a; --paper: #fff; --bar: #2b6cb0; --line: #bbb; }
@media (prefers-color-scheme: dark) { :root { --ink: #e8e8e8; --paper: #161616; --bar: #6ea8e0; --line: #555; } }
body { font: 16px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--paper); max-width: 62rem; margin: auto;
       padding: 1rem; }
div.wide { overflow-x: auto; }
table { border-collapse: collapse; }
td, th { padding: .25rem .6rem; border-bottom: 1px solid var(--line); text-align: left; vertical-align: top; }
td:first-child { white-space: nowrap; } td.long { overflow-wrap: anywhere; min-width: 10rem; }
td.n, th.n { text-align: right; font-variant-numeric: tabular-nums; }
svg { max-width: 100%; height: auto; }
svg text { fill: var(--ink); font: 12px system-ui, sans-serif; } svg rect { fill: var(--bar); }
"""


def page(lab: str, exercises: Sequence[Exercise], rows: Sequence[Row], pairs: Sequence[Pair], unsafe: bool = False) -> str:
    """unsafe: whether anything was graded without a sandbox, which the page then says."""
    most = sum(exercise.most for exercise in exercises)
    complete = [row for row in rows if row.kind != PERSON]
    questions = [question(exercise, complete) for exercise in exercises]
    parts = [f'<p role="alert"><strong>{escape(UNSAFE)}</strong></p>' if unsafe else "",
             f"<h1>{escape(lab)}: {len(rows)} submissions</h1>",
             distribution(spread([row.total for row in complete], most), most, len(complete)) if complete else "",
             "<h2>Questions</h2>", by_question(questions), "<h2>What failed most</h2>", failures(questions),
             "<h2>To look at</h2>", looks(rows), "<h2>More alike than chance</h2>", alike(pairs),
             "<h2>All</h2>", everybody(exercises, rows)]
    return ('<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
            f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">'
            '<meta name="viewport" content="width=device-width, initial-scale=1">'
            f"<title>{escape(lab)}</title><style>{STYLE}</style></head><body><main>\n" + "\n".join(parts)
            + "\n</main></body></html>\n")


def distribution(of: Spread, most: float, number: int) -> str:
    low, median, high = of.quartiles
    width, height, highest = 56, 120, max(of.bins)
    bars = "".join(f'<rect x="{at * width}" y="{height - bar:g}" width="{width - 6}" height="{bar:g}"/>'
                   f'<text x="{at * width}" y="{height + 16}">{at * most / 10:g}</text>'
                   f'<text x="{at * width}" y="{height - bar - 4:g}">{count or ""}</text>'
                   for at, count in enumerate(of.bins) for bar in [100 * count / highest])
    told = (f"{number} graded, of {most:g} points: median {median:g} (quartiles {low:g} and {high:g}), mean {of.mean:.1f}, "
            f"standard deviation {of.deviation:.1f}, from {of.lowest:g} to {of.highest:g}.")
    return (f'<p>{told}</p><div class="wide" tabindex="0"><svg role="img" aria-label="How many have how many points" '
            f'width="{10 * width}" height="{height + 20}" viewBox="0 -16 {10 * width} {height + 36}">{bars}</svg></div>')


def by_question(questions: Sequence[Question]) -> str:
    def shown(number: int, of: Question) -> list[object]:
        told = "–" if of.discrimination is None else f"{of.discrimination:.2f}"
        return [f"{number} {of.exercise.name}", f"{of.exercise.most:g}", f"{of.difficulty:.0%}", of.full, of.none, told]

    head = ["question", "points", "earned", "full points", "no points", "discrimination"]
    return ("<p>Earned is the mean share of a question's points. Discrimination is the correlation of its points with those "
            "of all others: near 0 it doesn't tell those who know from those who don't, below 0 something is wrong with it. "
            "Below, questions go by their numbers.</p>" + table(head, starmap(shown, enumerate(questions, 1)), 1))


def failures(questions: Sequence[Question]) -> str:
    rows = [[number, why, count] for number, question in enumerate(questions, 1) for why, count in question.failures]
    return table(["question", "what its tests said", "times"], sorted(rows, key=lambda row: -row[2])[:20], 2) if rows \
        else "<p>Nothing did.</p>"


def looks(rows: Sequence[Row]) -> str:
    """Whoever needs a person, or went beyond a limit, or handed in something odd."""
    odd = [[row.student, row.kind, reasons(row), "; ".join(row.notes)] for row in rows
           if row.kind != GRADED or row.notes]
    return table(["student", "outcome", "why", "notes"], odd) if odd else "<p>Nobody.</p>"


def alike(pairs: Sequence[Pair]) -> str:
    if not pairs:
        return "<p>No two.</p>"
    rows = [[pair.first, pair.second, f"{pair.share:.0%}", "yes" if pair.word_for_word else ""] for pair in pairs]
    return ("<p>How much of their rarer code two submissions share, names and layout left out. Short exercises have few "
            "right answers: look before you ask.</p>" + table(["student", "and", "alike", "word for word"], rows))


def everybody(exercises: Sequence[Exercise], rows: Sequence[Row]) -> str:
    def shown(points: float | None) -> str:
        return "–" if points is None else f"{points:g}"

    head = ["student", *(str(number) for number in range(1, len(exercises) + 1)), "total", "outcome"]
    body = [[row.student, *(shown(row.points[exercise.name]) for exercise in exercises), f"{row.total:g}", row.kind]
            for row in rows]
    return table(head, body, 1)


def table(head: Sequence[str], rows: Iterable[Sequence[object]], numbers: int | None = None) -> str:
    """numbers: the first column that is set to the right.  Long texts wrap, and keep a width that can be read."""
    def kind(at: int, value: object) -> str:
        return " class=n" if numbers is not None and at >= numbers else " class=long" if len(str(value)) > 30 else ""

    def cells(tag: str, row: Sequence[object]) -> str:
        return "".join(f"<{tag}{kind(at, value)}>{escape(str(value))}</{tag}>" for at, value in enumerate(row))

    body = "".join(f"<tr>{cells('td', row)}</tr>" for row in rows)
    top = f"<thead><tr>{cells('th', head)}</tr></thead>"
    return f'<div class="wide" tabindex="0"><table>{top}<tbody>{body}</tbody></table></div>'
