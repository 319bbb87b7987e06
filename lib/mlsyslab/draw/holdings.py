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
#: Letters are dark, but for these: white on blue, and on a finished sum, which has the colour of text, that of the page.
_LETTERS_ON = {"re": "on white", "sum": "on back"}

HIGH, GAP = 20, 3  # px: the height of a box, and the space below it
PITCH = HIGH + GAP
HEAD, LEAST = 20, 320  # px: a line of text above everything; the least width of a picture with messages

CSS = (STYLE + "".join(f".mls .{name}{{stroke:{colour}}}" for name, colour in (*RANKS.items(), ("sum", "var(--ink)")))
       + f".mls .has path,.mls .room{{stroke-dasharray:{HIGH} {GAP}}}"
       ".mls .room{stroke:var(--rule);opacity:.55}.mls .new{stroke:var(--ink);stroke-width:1.8}"
       ".mls .msg{stroke:var(--ink);stroke-width:1.5}.mls path.head{fill:var(--ink);stroke:none}"
       ".mls text.on{fill:#111;text-anchor:middle;font-size:12px}.mls text.white{fill:#fff}"
       ".mls{--page:var(--pst-color-background,var(--jp-layout-color0,#fff))}"
       "[data-theme=dark] .mls{--page:var(--pst-color-background,#14181e)}.mls text.back{fill:var(--page)}"
       ".mls .halo{stroke:var(--page);stroke-width:4;paint-order:stroke}")


class Boxes(Picture):
    """A picture with grids of boxes in it: ranks side by side, chunks below one another.

    wide, gap: px, the width of a box and the space to the next rank's.
    """

    css = CSS
    #: Are boxes filled by shares? Where nothing is half reduced they are filled whole.
    striped = True

    def __init__(self, watched: Watched, width: float, height: float, title: str, description: str,
                 wide: float = 40, gap: float = 14):
        super().__init__(width, height, title, description)
        self.watched, self.wide, self.gap = watched, wide, gap

    def grid(self, left: float, top: float, state: Sequence[Holding], live: Sequence[frozenset[int]] | None = None) -> None:
        """Draw what every rank holds; slots that are not `live` are left empty.  left, top: px, of the first box."""
        self.left, self.top, self.bottom = left, top, top + len(state[0]) * PITCH - GAP
        self._frame(len(state[0]))
        self._fill(state, live)

    def x(self, rank: int) -> float:
        """The middle of a rank's boxes."""
        return self.left + rank * (self.wide + self.gap) + self.wide / 2

    def y(self, row: int) -> float:
        """The upper edge of a row of boxes."""
        return self.top + row * PITCH

    def _frame(self, rows: int) -> None:
        """Numbers of ranks and chunks, and an empty box for each."""
        ranks, above = range(self.watched.p), self.top - 6
        if self.wide >= 40:
            self.text(self.left - 4, above, "rank", "soft small end")
        self.parts.append(signs([(self.x(rank), above, str(rank)) for rank in ranks], "soft small mid"))
        if rows > 1:
            self.parts.append(signs([(self.left - 10, self.y(row) + 14, str(row)) for row in range(rows)], "soft small mid"))
        empty = "".join(f"M{self.x(rank):g} {self.top:g}v{self.bottom - self.top:g}" for rank in ranks)
        self._add("path", "room", d=empty, stroke_width=self.wide)

    def _fill(self, state: Sequence[Holding], live: Sequence[frozenset[int]] | None) -> None:
        """Fill the boxes: a vertical stroke, dashed as the boxes are, for each run of boxes with the same stripe."""
        rows: dict[tuple[str, float, float], list[int]] = defaultdict(list)  # by class, place and width of the stripe
        letters: dict[str, list[tuple[float, float, str]]] = defaultdict(list)
        for rank, holding in enumerate(state):
            for row, piece in enumerate(holding):
                if piece is None or (live is not None and row not in live[rank]):
                    continue
                for name, shift, width, letter in self._stripes(piece):
                    x = self.x(rank) + shift
                    rows[name, x, width].append(row)
                    if letter:
                        letters[_LETTERS_ON.get(name, "on")].append((x, self.y(row) + 14, letter))
        strokes: dict[tuple[str, float], str] = defaultdict(str)
        for (name, x, width), numbers in rows.items():
            for first, last in runs(numbers):
                strokes[name, width] += f"M{x:g} {self.y(first):g}v{self.y(last) + HIGH - self.y(first):g}"
        inside = "".join(f'<path class="{name}" stroke-width="{width:g}" d="{d}"/>' for (name, width), d in strokes.items())
        inside += "".join(signs(at, classes) for classes, at in letters.items())
        if inside:
            self._add("g", "has", inside)

    def _stripes(self, piece: Piece) -> list[tuple[str, float, float, str]]:
        """A box as (class, shift from its middle, width, letter) of each part of its filling."""
        names, p = list(RANKS), self.watched.p
        if len(piece.ranks) == p > 1:
            return [("sum", 0, self.wide, "Σ")]
        if len(piece.ranks) == 1 and not (self.striped and self.watched.reducing):
            (rank,) = piece.ranks
            return [(names[rank], 0, self.wide, LETTERS[rank])]
        width = self.wide / p
        return [(names[r], round((r + 0.5) * width - self.wide / 2, 1), round(width, 1), LETTERS[r] if width >= 8 else "")
                for r in sorted(piece.ranks)]


class Holdings(Boxes):
    """What every rank holds after one step of a watched run, as far as it is still needed, and the messages of that step.

    title: stands at the left above the picture.  note: stands at the right.
    steady: leave as much room for arrows as any step needs, so that the boxes stand still from frame to frame.
    """

    def __init__(self, watched: Watched, step: int, title: str, note: str = "", steady: bool = False):
        messages = watched.messages if steady else watched.of(step)
        above = max((reach(m) for m in messages if m.to > m.source), default=0)
        below = max((reach(m) for m in messages if m.to < m.source), default=0)
        wide, rows = watched.p * 54, len(watched.states[0][0])
        width, top = max(LEAST, wide + 40), HEAD + above + 22
        super().__init__(watched, width, top + rows * PITCH + below + 4, title, describe(watched, step))
        self.text(0, 13, title, "bold")
        self.text(width, 13, note, "soft end")
        self.grid((width - wide + 14) / 2 + 4, top, watched.states[step], watched.live[step])
        self._messages(watched.of(step), watched.states[step])

    def _messages(self, messages: Sequence[Message], state: Sequence[Holding]) -> None:
        """An arrow for each message, what it carries, and an outline round what has arrived."""
        arrows, heads, outlines = "", "", ""
        for message in messages:
            way = 1 if message.to > message.source else -1
            start, length = self.x(message.source) + 5 * way, self.x(message.to) - self.x(message.source) - 10 * way
            foot, rise = self.top - 17 if way > 0 else self.bottom + 4, reach(message) - 10
            bend = -way * round(rise / 0.75)
            arrows += f"M{start:g} {foot:g}c0 {bend} {length:g} {bend} {length:g} {-5 * way}"
            heads += f"M{start + length:g} {foot:g}l-3.5 {-6 * way}h7z"
            label = name_of(self.watched, message)
            self.text(start + length / 2, foot - way * rise + (-3 if way > 0 else 11), label, "small mid halo")
            arrived = [row for row, held in enumerate(state[message.to]) if held and any(
                held.chunk == sent.chunk and held.ranks >= sent.ranks for sent in message.pieces)]
            for first, last in runs(arrived):
                left, high = self.x(message.to) - self.wide / 2, self.y(last) + HIGH - self.y(first)
                outlines += f"M{left:g} {self.y(first):g}h{self.wide:g}v{high:g}h-{self.wide:g}z"
        for classes, d in (("new", outlines), ("msg", arrows), ("head", heads)):
            if d:
                self._add("path", classes, d=d)


class BeforeAfter(Boxes):
    """What every rank brings to a collective, and what the collective gives back to it."""

    striped = False

    def __init__(self, watched: Watched, title: str):
        wide, gap = 25, 7
        side, rows = watched.p * (wide + gap), len(watched.states[0][0])
        super().__init__(watched, 2 * side + 66, HEAD + 24 + rows * PITCH, title,
                         f"before: {in_words(watched.states[0])}; after: {in_words(watched.returned)}", wide, gap)
        self.text(0, 13, title, "bold")
        self.grid(20, HEAD + 20, watched.states[0])
        middle = (self.top + self.bottom) / 2
        self.arrow(20 + side, middle, 20 + side + 22, middle)
        self.grid(20 + side + 46, HEAD + 20, watched.returned)


class Row:
    """Pictures of one kind side by side, wrapped where the page is narrow; a cell shows it."""

    def __init__(self, pictures: Sequence[Picture]):
        self.pictures = list(pictures)

    def _repr_html_(self) -> str:
        first, *rest = self.pictures
        inside = first.svg() + "".join(picture.svg(style=False) for picture in rest)
        flow = "display:flex;flex-wrap:wrap;gap:1.2rem 1.8rem;justify-content:center;align-items:flex-end"
        return f'<div class="mls-figure" style="{flow}">{inside}</div>'


def signs(at: Sequence[tuple[float, float, str]], classes: str) -> str:
    """Single letters or digits as one element, each at its own (x, y)."""
    xs, ys, letters = zip(*at, strict=True)
    x, y = (" ".join(f"{value:g}" for value in values) for values in (xs, ys if len(set(ys)) > 1 else ys[:1]))
    return f'<text class="{classes}" x="{x}" y="{y}">{"".join(letters)}</text>'


def runs(numbers: Sequence[int]) -> list[tuple[int, int]]:
    """Numbers in order as (first, last) of each unbroken row of them."""
    found: list[tuple[int, int]] = []
    for number in numbers:
        if found and found[-1][1] == number - 1:
            found[-1] = found[-1][0], number
        else:
            found.append((number, number))
    return found


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
    owners = sorted({min(piece.ranks) for piece in message.pieces})
    if len(owners) > 1:
        return "".join(LETTERS[rank] for rank in owners)
    return ("Σ" if len(message.pieces[0].ranks) > 1 else LETTERS[owners[0]]) + chunks


def span(numbers: Sequence[int]) -> str:
    """Numbers in a few signs: 2, 0–3, 0,2."""
    return ",".join(str(first) if first == last else f"{first}–{last}" for first, last in runs(numbers))


def in_words(state: Sequence[Holding]) -> str:
    """What ranks hold, in words."""
    said = []
    for rank, holding in enumerate(state):
        pieces = [("Σ" if len(p.ranks) > 1 else LETTERS[min(p.ranks)]) + str(p.chunk) for p in holding if p]
        said.append(f"rank {rank} {' '.join(pieces) or 'nothing'}")
    return ", ".join(said)


def describe(watched: Watched, step: int) -> str:
    """A step in words."""
    sent = [f"{m.source} to {m.to}: {name_of(watched, m) or 'its vector'}" for m in watched.of(step)]
    return "messages from rank " + ", ".join(sent) if sent else "before the first message"
