"""Who holds what, step by step: one run of a collective, watched while it runs.

Every element of the tensors that the ranks pass round carries its own origin: chunk c of rank r's vector is the integer
with bit 8c + r set, so a sum of contributions is the set of who contributed. The library's own code runs on such tensors
in the simulated world, behind a communicator that notes what each message and each reduction holds. Nothing about an
algorithm is written down here, so a picture made from this cannot disagree with the code.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, NamedTuple

import torch

from mlsyslab import collectives
from mlsyslab.comm import Communicator, Link, Nodes, simulate

#: Chunks and ranks share the 64 bits of an element.
MOST = 8
#: Seconds for one step (alpha), and for a chunk sent (beta) or reduced (gamma): so far apart in size that one clock
#: counts all three, and its whole seconds are the steps.
_ALPHA, _BETA, _GAMMA = 1.0, 2.0**-13, 2.0**-26
_CHUNK = 8  # bytes of a chunk: one int64
ONE_CHUNK = ("gather", "all_gather")  # operations to which a rank brings one chunk, not a whole vector
REDUCING = ("reduce", "reduce_scatter", "all_reduce")
ROOTED = ("broadcast", "reduce", "scatter", "gather")


class Piece(NamedTuple):
    """Chunk `chunk` of the sum of the vectors of `ranks` (of one rank's vector, when there is one)."""

    chunk: int
    ranks: frozenset[int]


class Message(NamedTuple):
    """What rank `source` sent to rank `to` in step `step` (the first step is 1)."""

    step: int
    source: int
    to: int
    pieces: tuple[Piece, ...]


class Cost(NamedTuple):
    """Coefficients of alpha, n beta and n gamma, exact."""

    alpha: int
    beta: Fraction
    gamma: Fraction

    def __str__(self) -> str:
        terms = [f"{'' if c == 1 else c}{' ' if '/' in str(c) else ''}{unit}"
                 for c, unit in zip(self, ("α", "nβ", "nγ"), strict=True) if c]
        return " + ".join(terms) or "0"


#: What a rank holds: for each slot of its picture, a piece or None.
Holding = tuple[Piece | None, ...]


@dataclass
class Watched:
    """One run, as a list of states.

    p: ranks.  chunks: of a vector.  states: what each rank holds before the first step and after each step.
    messages: all of them, in order.  costs: the time so far, before the first step and after each.
    results: what each rank's function returned, as pieces (None where it returned None).  returned: the same in slots.
    live: for each state and rank, the slots that are still sent, reduced or returned.
    """

    p: int
    chunks: int
    states: list[list[Holding]]
    messages: list[Message]
    costs: list[Cost]
    results: list[tuple[Piece, ...] | None]
    returned: list[Holding]
    live: list[list[frozenset[int]]] = field(default_factory=list)

    @property
    def steps(self) -> int:
        """How many steps (rounds of messages) the run took."""
        return len(self.states) - 1

    @property
    def reducing(self) -> bool:
        """Whether vectors are combined."""
        return any(len(piece.ranks) > 1 for state in self.states for holding in state for piece in holding if piece)

    def adds(self, message: Message) -> bool:
        """Whether what a message carries is added to what its receiver holds, and not put in its place."""
        before = self.states[message.step - 1][message.to]
        return any(held and held.chunk == sent.chunk and not held.ranks & sent.ranks
                   for held in before for sent in message.pieces) and self.reducing

    def of(self, step: int) -> list[Message]:
        """The messages of one step, by sender."""
        return sorted((m for m in self.messages if m.step == step), key=lambda m: (m.source, m.to))


def watch(op: str, algorithm: str = "auto", p: int = 4, *, root: int = 0, chunks: int | None = None,
          node: int | None = None) -> Watched:
    """Run a collective of the library on p ranks (1 … 8) and say who held what when.

    op, algorithm: as in `mlsyslab.collectives`.  root: for the operations that have one.
    chunks: into how many chunks (1 … 8) a vector is cut; by default p, so that each rank can have one.
    node: ranks a node, for algorithms that look at nodes; by default all ranks are equally near.
    """
    chunks = p if chunks is None else chunks
    if not (1 <= p <= MOST and 1 <= chunks <= MOST):
        raise ValueError(f"watch(p={p}, chunks={chunks}): a picture holds 1 … {MOST} ranks and chunks")
    collective = getattr(collectives, op)
    options = {"algorithm": algorithm} | ({"root": root} if op in ROOTED else {})
    inputs = [vector(rank, chunks) for rank in range(p)]
    if op in ONE_CHUNK:
        inputs = [mine[rank:rank + 1] for rank, mine in enumerate(inputs)]
    return watch_function(lambda comm, mine: collective(comm, mine, **options), inputs, chunks=chunks,
                          held=[r == root for r in range(p)] if op in ("broadcast", "scatter") else None,
                          exchange=op == "all_to_all", node=node)


def watch_function(fn: Callable[[Communicator, Any], Any], inputs: Sequence[torch.Tensor], *, chunks: int | None = None,
                   held: Sequence[bool] | None = None, exchange: bool = False, node: int | None = None) -> Watched:
    """Watch any function of a rank, on inputs made by `vector`.

    chunks: of a whole vector (by default one a rank).  node: as for `watch`.
    held: which ranks' inputs count (in a broadcast only the root's does).
    exchange: whether slots stand for the other rank of an exchange (all-to-all), not for the chunk.
    """
    p = len(inputs)
    chunks = p if chunks is None else chunks
    log = _Log()
    link = Link(_ALPHA, _BETA / _CHUNK, _GAMMA / _CHUNK)
    network = link if node is None else Nodes(node, link, link, nics=node)
    run = simulate(lambda comm, mine: fn(_WatchedCommunicator(comm, log), mine), inputs, link=network)

    def slot(rank: int, piece: Piece) -> int | None:
        if not exchange:
            return piece.chunk
        return min(piece.ranks) if piece.chunk == rank else None  # what a rank only passes on has no slot

    holding: list[list[Piece | None]] = [[None] * (p if exchange else chunks) for _ in range(p)]
    for rank, tensor in enumerate(inputs):
        if held is None or held[rank]:
            for piece in decode(tensor):
                holding[rank][piece.chunk] = piece
    messages, combines, ends = _in_steps(run.trace, log)
    results = [decode(r) if isinstance(r, torch.Tensor) else None for r in run.results]

    states, costs = [[tuple(h) for h in holding]], [Cost(0, Fraction(0), Fraction(0))]
    for step in range(1, 1 + max((m.step for m in messages), default=0)):
        for message in (m for m in messages if m.step == step):
            for piece in message.pieces:
                where = slot(message.to, piece)
                if where is not None:
                    holding[message.to][where] = piece
        for rank, piece in combines[step]:  # what arrived was meant to be added
            holding[rank][piece.chunk] = piece
        states.append([tuple(h) for h in holding])
        costs.append(_cost(max(end for of, end in ends if of <= step), chunks))
    returned = [[None] * len(held) for held in holding]
    for rank, result in enumerate(results):
        for piece in result or ():
            returned[rank][slot(rank, piece)] = piece
    watched = Watched(p, chunks, states, messages, costs, results, [tuple(h) for h in returned])
    watched.live = _live(watched, combines)
    return watched


def vector(rank: int, chunks: int) -> torch.Tensor:
    """Rank `rank`'s vector, chunks of one element each, every element marked with where it comes from."""
    bits = [1 << (8 * chunk + rank) for chunk in range(chunks)]
    return torch.tensor([b - (1 << 64) if b >> 63 else b for b in bits], dtype=torch.int64)


def decode(tensor: torch.Tensor) -> tuple[Piece, ...]:
    """The pieces that a marked tensor holds; elements without a mark are left out."""
    pieces = []
    for value in tensor.flatten().tolist():
        for chunk in range(MOST):
            byte = (value % (1 << 64)) >> (8 * chunk) & 0xFF
            if byte:
                pieces.append(Piece(chunk, frozenset(rank for rank in range(MOST) if byte >> rank & 1)))
    return tuple(pieces)


def _cost(time: float, chunks: int) -> Cost:
    """Read the three counts off the clock."""
    alpha, rest = divmod(time, _ALPHA)
    beta, rest = divmod(rest, _BETA)
    return Cost(int(alpha), Fraction(int(beta), chunks), Fraction(int(rest / _GAMMA), chunks))


def _in_steps(trace, log: _Log) -> tuple[list[Message], dict[int, list[tuple[int, Piece]]], list[tuple[int, float]]]:
    """Put what was noted to the step in which it happened: messages, reductions by step, and (step, end) of all."""
    messages, combines, ends = [], defaultdict(list), []
    sent = {ends: iter(notes) for ends, notes in log.sent.items()}
    combined = {rank: iter(notes) for rank, notes in log.combined.items()}
    for event in trace:
        if event.kind == "send":
            step = int(event.start) + 1
            messages.append(Message(step, event.rank, event.peer, next(sent[event.rank, event.peer])))
        elif event.kind == "combine":
            step = int(event.start)  # it follows a message, which ended with this second
            combines[step] += [(event.rank, piece) for piece in next(combined[event.rank])]
        else:
            continue
        ends.append((step, event.end))
    return sorted(messages), combines, ends


def _live(watched: Watched, combines: dict[int, list[tuple[int, Piece]]]) -> list[list[frozenset[int]]]:
    """For each state and rank, the slots whose piece is used later: sent, reduced, or part of the result."""
    used = defaultdict(int)  # (rank, piece): the last step that uses it
    for message in watched.messages:
        for piece in message.pieces:
            used[message.source, piece] = max(used[message.source, piece], message.step)
    for step, notes in combines.items():
        for rank, piece in notes:
            before = watched.states[step - 1][rank][piece.chunk]
            if before is not None:
                used[rank, before] = max(used[rank, before], step)
    for rank, result in enumerate(watched.results):
        for piece in result or ():
            used[rank, piece] = watched.steps + 1
    return [[frozenset(slot for slot, piece in enumerate(holding) if piece and used[rank, piece] > step)
             for rank, holding in enumerate(state)] for step, state in enumerate(watched.states)]


class _Log:
    """What was in the messages and the reductions, in the order in which they were begun."""

    def __init__(self):
        self.sent: dict[tuple[int, int], list[tuple[Piece, ...]]] = defaultdict(list)  # by (sender, receiver)
        self.combined: dict[int, list[tuple[Piece, ...]]] = defaultdict(list)  # by rank


class _WatchedCommunicator(Communicator):
    """A communicator that notes what passes and leaves the rest to another."""

    def __init__(self, comm: Communicator, log: _Log):
        self.comm, self.log = comm, log
        self.rank, self.size, self.device = comm.rank, comm.size, comm.device
        self.ranks, self.network = comm.ranks, comm.network

    def _isend(self, tensor, to, tag):
        self.log.sent[self.ranks[self.rank], to].append(decode(tensor))
        return self.comm._isend(tensor, to, tag)

    def _irecv(self, out, source, tag):
        return self.comm._irecv(out, source, tag)

    def _wait(self, works):
        self.comm._wait(works)

    def _wait_any(self, works):
        return self.comm._wait_any(works)

    def _combined(self, start, nbytes):
        self.comm._combined(start, nbytes)

    def combine(self, acc, incoming, op="sum"):
        self.comm.combine(acc, incoming, op)
        self.log.combined[self.ranks[self.rank]].append(decode(acc))
        return acc

    def compute(self, seconds, label=""):
        self.comm.compute(seconds, label)

    def work(self, label="", seconds=0.0):
        return self.comm.work(label, seconds)

    def now(self):
        return self.comm.now()

    def record(self, kind, start, end, bytes=0, peer=-1, label=""):
        self.comm.record(kind, start, end, bytes, peer, label)

    def barrier(self):
        self.comm.barrier()

    def start(self, fn, *args):
        return self.comm.start(lambda side: fn(_WatchedCommunicator(side, self.log), *args))

    def split(self, color, key=None):
        return _WatchedCommunicator(self.comm.split(color, key), self.log)
