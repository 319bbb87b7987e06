"""What each rank holds, and the messages of one step: ranks side by side on a line, a row for each chunk.

A chunk's box is filled from the ranks whose data it holds: rank 0's share is the first stripe from the left and orange,
rank 1's the second and blue, and so on; a chunk that every rank has added to is dark and marked Σ. Messages to the right
bend above the boxes, messages to the left below, so that no arrow hides another direction.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from mlsyslab.draw.picture import STYLE, Picture
from mlsyslab.draw.watch import Holding, Message, Piece, Watched

LETTERS = "abcdefgh"  # the vectors of ranks 0 … 7
#: A class and a colour (Okabe and Ito 2008, grey for black) for each rank's data, and for a finished sum.
RANKS = {"ra": "#e69f00", "rb": "#56b4e9", "rc": "#009e73", "rd": "#f0e442", "re": "#0072b2", "rf": "#d55e00",
         "rg": "#cc79a7", "rh": "#999999"}
_DARK_GROUND = {"re", "sum"}  # on which letters are white
SUM = "#3d4752"

HIGH, GAP = 20, 3  # px: height of a box, and the space below it
HEAD, LEAST = 20, 330  # px: a line of text above everything; the least width of a picture with messages

CSS = (STYLE + ".mls .has path,.mls .new{fill:none}" + "".join(f".mls .{name}{{stroke:{colour}}}" for name, colour in RANKS.items())
       + f".mls .sum{{stroke:{SUM}}}.mls .stale{{opacity:.2}}"
       ".mls .room{stroke:var(--rule);opacity:.55}.mls .new{stroke:var(--ink);stroke-width:1.8;fill:none}"
       ".mls .msg{stroke:var(--ink);stroke-width:1.5}.mls path.head{fill:var(--ink);stroke:none}"
       ".mls .on text,.mls text.on{fill:#111;text-anchor:middle;font-size:12px}.mls text.on.white{fill:#fff}"
       ".mls .halo{stroke:var(--pst-color-background,var(--jp-layout-color0,#fff));stroke-width:4;paint-order:stroke}")


class Boxes(Picture):
    """A picture with grids of boxes in it: ranks side by side, chunks below one another.

    wide, gap: px, the width of a box and the space to the next rank's.
    """

    css = CSS
    #: Are boxes filled by shares? Where nothing is reduced, or nothing is half reduced, they are filled whole.
    striped = True

    def __init__(self, watched: Watched, width: float, height: float, title: str, description: str,
                 wide: float = 40, gap: float = 14):
        super().__init__(width, height, title, description)
        self.watched, self.wide, self.gap = watched, wide, gap

    def grid(self, left: float, top: float, state: Sequence[Holding], live: Sequence[frozenset[int]] | None = None) -> None:
        """Draw what every rank holds; slots that are not `live` are pale.  left, top: px, of the first box."""
        self.left, self.top, self.bottom = left, top, top + len(state[0]) * (HIGH + GAP) - GAP
        self._frame(len(state[0]))
        self._fill(state, live)

    def x(self, rank: int) -> float:
        """The left edge of a rank's boxes."""
        return self.left + rank * (self.wide + self.gap)

    def y(self, row: int) -> float:
        """The middle of a row of boxes."""
        return self.top + row * (HIGH + GAP) + HIGH / 2

    def _frame(self, rows: int) -> None:
        """Names of ranks and chunks, and an empty box for each."""
        for rank in range(self.watched.p):
            name = f"rank {rank}" if rank == 0 and self.wide >= 40 else str(rank)
            self.text(self.x(rank) + self.wide / 2, self.top - 6, name, "soft small mid")
        for row in range(rows) if rows > 1 else ():
            self.text(self.left - 6, self.y(row) + 4, str(row), "soft small end")
        columns = "".join(f"M{self.x(r) + self.wide / 2:g} {self.top:g}v{self.bottom - self.top:g}"
                          for r in range(self.watched.p))
        self._add("path", "room", d=columns, stroke_width=self.wide, stroke_dasharray=f"{HIGH} {GAP}")

    def _fill(self, state: Sequence[Holding], live: Sequence[frozenset[int]] | None) -> None:
        strokes: dict[tuple[bool, str], str] = defaultdict(str)
        letters: dict[tuple[bool, bool], list[tuple[float, float, str]]] = defaultdict(list)
        for rank, holding in enumerate(state):
            for row, piece in enumerate(holding):
                if piece is None:
                    continue
                pale = live is not None and row not in live[rank]
                for name, left, width, letter in self._stripes(piece):
                    strokes[pale, name] += f"M{self.x(rank) + left:g} {self.y(row):g}h{width:g}"
                    if letter:
                        where = self.x(rank) + left + width / 2, self.y(row) + 4, letter
                        letters[pale, name in _DARK_GROUND].append(where)
        for pale in (True, False):
            inside = "".join(f'<path class="{name}" d="{d}"/>' for (is_pale, name), d in strokes.items() if is_pale == pale)
            inside += "".join(_letters(at, "on white" if white else "on")
                              for (is_pale, white), at in letters.items() if is_pale == pale)
            if inside:
                self._add("g", "has stale" if pale else "has", inside, stroke_width=HIGH)

    def _stripes(self, piece: Piece) -> list[tuple[str, float, float, str]]:
        """A box as (class, left edge, width, letter) of each part of its filling."""
        names, p = list(RANKS), self.watched.p
        if len(piece.ranks) == p > 1:
            return [("sum", 0, self.wide, "Σ")]
        if len(piece.ranks) == 1 and not (self.striped and self.watched.reducing):
            (rank,) = piece.ranks
            return [(names[rank], 0, self.wide, LETTERS[rank])]
        wide = self.wide / p
        return [(names[r], round(r * wide, 1), round(wide, 1), LETTERS[r] if wide >= 8 else "") for r in sorted(piece.ranks)]


class Holdings(Boxes):
    """What every rank holds after one step of a watched run, and the messages of that step.

    title: stands at the left above the picture.  note: stands at the right.
    """

    def __init__(self, watched: Watched, step: int, title: str, note: str = ""):
        above = max((reach(m) for m in watched.messages if m.to > m.source), default=0)
        below = max((reach(m) for m in watched.messages if m.to < m.source), default=0)
        wide, rows = watched.p * 54, len(watched.states[0][0])
        width = max(LEAST, wide + 30)
        left, top = (width - wide + 14) / 2, HEAD + above + 22
        super().__init__(watched, width, top + rows * (HIGH + GAP) + below + 6, title, describe(watched, step))
        self.text(0, 13, title, "bold")
        self.text(width, 13, note, "soft end")
        self.grid(left, top, watched.states[step], watched.live[step])
        self._messages(watched.of(step), watched.states[step])

    def _messages(self, messages: Sequence[Message], state: Sequence[Holding]) -> None:
        """An arrow for each message, what it carries, and an outline round what has arrived."""
        arrows, heads, outlines = "", "", ""
        for message in messages:
            way = 1 if message.to > message.source else -1
            start, end = (self.x(r) + self.wide / 2 + w for r, w in ((message.source, 5 * way), (message.to, -5 * way)))
            foot = self.top - 17 if way > 0 else self.bottom + 4
            peak = foot - way * (reach(message) - 10)
            bend = foot + (peak - foot) / 0.75
            arrows += f"M{start:g} {foot:g}C{start:g} {bend:.3g} {end:g} {bend:.3g} {end:g} {foot - 5 * way:g}"
            heads += f"M{end:g} {foot:g}l-3.5 {-6 * way}h7z"
            self.text((start + end) / 2, peak + (-3 if way > 0 else 11), name_of(self.watched, message), "small mid halo")
            for row, piece in enumerate(state[message.to]):
                if piece and any(piece.chunk == sent.chunk and piece.ranks >= sent.ranks for sent in message.pieces):
                    outlines += f"M{self.x(message.to):g} {self.y(row) - HIGH / 2:g}h{self.wide:g}v{HIGH}h-{self.wide:g}z"
        for classes, d in (("new", outlines), ("msg", arrows), ("head", heads)):
            if d:
                self._add("path", classes, d=d)


def _letters(at: Sequence[tuple[float, float, str]], classes: str) -> str:
    """Many single letters as one element, each at its own place."""
    xs, ys, letters = zip(*at, strict=True)
    return (f'<text class="{classes}" x="{" ".join(f"{x:g}" for x in xs)}" y="{" ".join(f"{y:g}" for y in ys)}">'
            f'{"".join(letters)}</text>')


class BeforeAfter(Boxes):
    """What every rank brings to a collective, and what the collective gives back to it."""

    striped = False

    def __init__(self, watched: Watched, title: str):
        wide, gap = 26, 8
        side, rows = watched.p * (wide + gap), len(watched.states[0][0])
        super().__init__(watched, 2 * side + 76, HEAD + 24 + rows * (HIGH + GAP), title,
                         f"before: {in_words(watched.states[0])}; after: {in_words(watched.returned)}", wide, gap)
        self.text(0, 13, title, "bold")
        self.grid(20, HEAD + 20, watched.states[0])
        middle = (self.top + self.bottom) / 2
        self.arrow(20 + side + 2, middle, 20 + side + 28, middle)
        self.grid(20 + side + 50, HEAD + 20, watched.returned)


class Row:
    """Pictures side by side, wrapped where the page is narrow; a cell shows it."""

    def __init__(self, pictures: Sequence[Picture]):
        self.pictures = list(pictures)

    def _repr_html_(self) -> str:
        first, *rest = self.pictures
        inside = first.svg() + "".join(picture.svg(style=False) for picture in rest)
        return f'<div class="mls-figure" style="display:flex;flex-wrap:wrap;gap:1rem 2rem;justify-content:center">{inside}</div>'


def reach(message: Message) -> float:
    """How far a message's arrow rises over the boxes, its label included, in px."""
    return 24 + 7 * (abs(message.to - message.source) - 1)


def name_of(watched: Watched, message: Message) -> str:
    """What a message carries, in a few signs: a2 (chunk 2 of rank 0's vector), +2 (to be added to chunk 2), Σ2."""
    if not message.pieces:
        return ""
    chunks = span(sorted({piece.chunk for piece in message.pieces})) if watched.chunks > 1 else ""
    if watched.adds(message):
        return "+" + chunks
    owners = {piece.ranks for piece in message.pieces}
    if len(owners) > 1:
        return "".join(LETTERS[min(ranks)] for ranks in sorted(owners, key=min)) if len(owners) <= 4 else f"{len(owners)} chunks"
    (ranks,) = owners
    return ("Σ" if len(ranks) > 1 else LETTERS[min(ranks)]) + chunks


def span(numbers: Sequence[int]) -> str:
    """Numbers in a few signs: 2, 0–3, 0,2."""
    if len(numbers) > 1 and numbers[-1] - numbers[0] == len(numbers) - 1:
        return f"{numbers[0]}–{numbers[-1]}"
    return ",".join(map(str, numbers))


def in_words(state: Sequence[Holding]) -> str:
    """What ranks hold, in words."""
    said = []
    for rank, holding in enumerate(state):
        pieces = [("Σ" if len(p.ranks) > 1 else LETTERS[min(p.ranks)]) + str(p.chunk) for p in holding if p]
        said.append(f"rank {rank} {' '.join(pieces) or 'nothing'}")
    return ", ".join(said)


def describe(watched: Watched, step: int) -> str:
    """A step in words."""
    sent = [f"rank {m.source} sends {name_of(watched, m) or 'its vector'} to rank {m.to}" for m in watched.of(step)]
    return "; ".join(sent) if sent else "before the first message"
