"""How actions look in the timetables of pipelines, and the legend that says so.

Kinds differ by colour and by brightness (blue F, green B, yellow I, dark W), chunks and directions by tint.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from mlsyslab.draw.lanes import TINTS
from mlsyslab.draw.picture import STYLE, Picture, number

#: Fill of each kind, and what it is called. They differ in lightness as well.
KINDS = {"F": ("#a3cdf0", "forward"), "B": ("#58b890", "backward"), "I": ("#f9e08b", "input gradient"),
         "W": ("#8a4a7f", "weight gradient")}
LANE = 24  # px: height of a lane
LEGEND = 19  # px: height of a line of the legend


def _mix(colour: str, white: float) -> str:
    """The colour with so much white in it."""
    parts = (int(colour[i:i + 2], 16) for i in (1, 3, 5))
    return "#" + "".join(f"{round(part + (255 - part) * white):02x}" for part in parts)


# A cell is a thick stroke over a darker one, which shows round it as an outline: half the characters of a box.
CSS = (STYLE + "".join(f".mls path.{kind}{tint}{{stroke:{_mix(colour, 0.66 * tint / (TINTS - 1))}}}"
                       for kind, (colour, _) in KINDS.items() for tint in range(TINTS))
       + f".mls path.cell{{stroke-width:{LANE - 1}}}.mls path.half{{stroke-width:{LANE / 2 - 1}}}"
       f".mls path.under{{stroke:#26323e;stroke-width:{LANE}}}"
       f".mls path.hatch{{stroke:var(--quiet-edge);stroke-opacity:.6;stroke-width:{LANE};stroke-dasharray:1 5}}"
       ".mls path.sample{stroke-width:11}.mls path.under.sample{stroke-width:12}"
       ".mls text.in{fill:#111a22;text-anchor:middle}.mls text.white{fill:#fff}"
       ".mls path.update{stroke:var(--ink);stroke-width:2.4}"
       ".mls path.kept{fill:var(--quiet-edge);fill-opacity:.42;stroke:var(--quiet-edge)}"
       ".mls path.way{stroke:var(--ink);stroke-width:.8;opacity:.6}")


# -- the legend -------------------------------------------------------------------------------------------------------

#: A sample: (classes, path) of each stroke, and what it means.
Entry = tuple[Sequence[tuple[str, str]], str]


def _sample(name: str, words: str) -> Entry:
    return (("under sample", "m0 -4.5h15"), (f"cell sample {name}", "m.5 -4.5h14")), words


def samples(kinds: Iterable[str]) -> list[Entry]:
    return [_sample(f"{kind}0", KINDS[kind][1]) for kind in kinds]


TINTED = {"chunk": _sample(f"F{TINTS - 1}", "lighter: later chunk of the model"),
           "direction": _sample(f"F{TINTS - 1}", "lighter: the other direction")}
UPDATE: Entry = ((("update", "m8 -11v13"),), "weight update")
IDLE: Entry = ((("hatch sample", "m0 -4.5h16"),), "idle")
HELD: dict[str, Entry] = {memory: ((("kept", "v-5h5v-4h5v3h5v6z"),), f"{memory} held")
                           for memory in ("activations", "bytes")}


def _entry_width(words: str) -> float:
    return 40 + 5.7 * len(words)


def in_lines(entries: Sequence[Entry], wide: float) -> list[list[Entry]]:
    """The entries of a legend in lines of `wide` px."""
    lines, x = [[]], 0.0
    for entry in entries:
        if x + _entry_width(entry[1]) > wide and lines[-1]:
            lines.append([])
            x = 0.0
        lines[-1].append(entry)
        x += _entry_width(entry[1])
    return lines


def write(picture: Picture, lines: Sequence[Sequence[Entry]], left: float, first: float) -> None:
    """Write the lines of a legend from x = `left` on, the first of them with its baseline at y = `first`."""
    for k, line in enumerate(lines):
        x, y = left, first + LEGEND * k
        for strokes, words in line:
            for classes, path in strokes:
                picture._add("path", classes, d=f"M{number(x)} {number(y)}{path}")
            picture.text(x + 21, y, words, "soft small")
            x += _entry_width(words)


def legend() -> Picture:
    """What everything in a timetable means."""
    entries = [*samples(KINDS), *TINTED.values(), UPDATE, IDLE, HELD["activations"]]
    return _Legend(entries, in_lines(entries, _Legend.WIDTH))


class _Legend(Picture):
    css = CSS
    WIDTH = 620  # px

    def __init__(self, entries: Sequence[Entry], lines: Sequence[Sequence[Entry]]):
        words = ", ".join(words for _, words in entries)
        super().__init__(self.WIDTH, LEGEND * len(lines) + 2, "legend of the timetables", words)
        write(self, lines, 4, LEGEND - 5)
