"""What one process knows of the world: its posts, the notes of the others, and what it waits for.

Posting a send or receive writes a note to the peer. Two posts match when sender, receiver, group and tag agree, first come
first served, and both ranks find the same matches because both see both notes. A send is done when it has matched (its
bytes are then on their way), a receive when its bytes are there: so a send without a receive never ends, here as in the
simulated world and in NCCL.
"""

from __future__ import annotations

import linecache
import select
import threading
import time
from collections import defaultdict, deque
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from mlsyslab.comm.beside import StreamBeside, ThreadBeside
from mlsyslab.comm.carriers import Nccl, Wires, mark, raw
from mlsyslab.comm.communicator import MAX_TAG, check_fits
from mlsyslab.comm.errors import CommError, Wait
from mlsyslab.comm.link import Network
from mlsyslab.comm.note import MAX_DIMS, MAX_INLINE, Note
from mlsyslab.comm.shared import Inbox, Outbox
from mlsyslab.comm.stack import caller
from mlsyslab.comm.trace import Trace

_INLINE = b"i"

Take = Callable[[torch.Tensor, torch.Tensor], Any]


class Post:
    """A send or receive that this rank has posted; also the `Work` it gets back.

    take: (tensor, incoming) -> what a receive does with what comes; `incoming` is gone afterwards.
    """

    __slots__ = ("world", "kind", "tensor", "peer", "context", "tag", "number", "begun", "posted", "carrier", "mate", "done",
                 "traced", "take")

    def __init__(self, world: World, kind: str, tensor: torch.Tensor, peer: int, context: int, tag: int, traced: bool,
                 take: Take):
        self.world, self.kind, self.tensor, self.peer = world, kind, tensor, peer
        self.context, self.tag, self.traced, self.take = context, tag, traced, take
        self.mate: Note | None = None
        self.carrier = None
        self.done = False

    def wait(self) -> None:
        self.world.wait((self,))


@dataclass
class Position:
    """Where a rank is, as it tells whoever started it.

    wait: what it does.  waiting: whether only a note of another rank can move it on.
    told: how many notes it has written to each rank.  heard: how many notes of others it has taken up.
    meeting: the barrier it stands at, and of which ranks.
    """

    wait: Wait
    waiting: bool = False
    told: list[int] | None = None
    heard: int = 0
    meeting: tuple[Any, list[int]] | None = None


def picture(here: Mapping[int, Position], returned: Container[int]) -> list[Wait]:
    """Who waits for whom, from where each rank is that has not yet returned."""
    waits = []
    for rank in sorted(here):
        wait, meeting = here[rank].wait, here[rank].meeting
        if meeting is not None:
            place, members = meeting
            absent = [r for r in members if r not in here or here[r].meeting is None or here[r].meeting[0] != place]
            if absent:
                wait = replace(wait, peer=absent[0] if len(absent) == 1 else None,
                               hint=f"not there: rank {', '.join(map(str, absent))}")
        elif wait.peer in returned:
            wait = replace(wait, hint=f"rank {wait.peer} has already returned")
        waits.append(replace(wait, code=wait.code or _code(wait.where)))
    return waits


def _code(where: str) -> str:
    """The line at "file:line", which this process may know though the rank didn't (a notebook's cell)."""
    name, _, line = where.rpartition(":")
    return linecache.getline(name, int(line)).strip() if name else ""


@dataclass
class World:
    """One process's end of the world.

    offset: seconds from this machine's clock to rank 0's.  base: when the run began, on rank 0's clock.
    """

    rank: int
    size: int
    device: torch.device
    network: Network
    inbox: Inbox
    carriers: dict[int, Any] = field(default_factory=dict)  # by peer, for CPU tensors
    nccl: Nccl | None = None
    wires: Wires | None = None
    offset: float = 0.0
    base: float = 0.0

    def __post_init__(self):
        self.trace = Trace(size=self.size)
        self.posted: dict[tuple, deque[Post]] = defaultdict(deque)  # mine, unmatched: by (kind, peer, context, tag)
        self.notes: dict[tuple, deque[Note]] = defaultdict(deque)  # of others, unmatched: by my post's key
        self.open: dict[Post, None] = {}  # posted and not yet waited for
        self.told, self.heard = [0] * self.size, 0
        self.number = self.contexts = 0
        self.awaited: dict[int, Sequence[Post]] = {}  # by the thread that waits
        self.meeting: dict[int, tuple[Any, list[int]]] = {}  # the barrier at which a thread stands, and of which ranks
        self.late: list[tuple] = []  # events whose time a GPU knows
        self.beside: ThreadBeside | StreamBeside | None = None  # what this rank has started beside itself
        self.lock = threading.Lock()  # of all this: the rank's thread and the one beside it share it
        self.news = threading.Condition(self.lock)
        self.listening = False  # whether one of them listens, for both

    def now(self) -> float:
        """Seconds since the run began, on a clock that all ranks share."""
        return time.monotonic() + self.offset - self.base

    # -- messages -----------------------------------------------------------------------------------------------------

    def post(self, kind: str, tensor: torch.Tensor, peer: int, context: int, tag: int, traced: bool = True,
             take: Take = torch.Tensor.copy_) -> Post:
        """Take up a send or receive and tell the peer."""
        with self.lock:
            return self._post(Post(self, kind, tensor, peer, context, tag, traced, take))

    def post_in_turn(self, tensor: torch.Tensor, peer: int, context: int, tag: int, traced: bool = True) -> Post:
        """Take up a send that this rank waits for at once, so that nobody can tell whether it has begun.

        While the blocks are full of messages that others have yet to take, it begins only when the peer has posted its
        receive: from one rank to another, no more memory is needed than for one message.
        """
        post = Post(self, "send", tensor, peer, context, tag, traced, torch.Tensor.copy_)
        with self.lock:  # the blocks are looked through, and one is taken
            if tensor.is_cuda or tensor.nbytes <= MAX_INLINE or self.carriers[peer].has_room(tensor.nbytes):
                return self._post(post)
        self._listen_until(lambda: self.notes.get(("send", peer, context, tag)), [post])
        with self.lock:
            return self._post(post)

    def _post(self, post: Post) -> Post:
        kind, tensor, peer, context, tag = post.kind, post.tensor, post.peer, post.context, post.tag
        if tensor.dim() > MAX_DIMS:
            raise ValueError(f"a message has up to {MAX_DIMS} dimensions, not {tensor.dim()}; send a view of it with fewer")
        post.posted = time.monotonic() + self.offset
        post.number = self.number = self.number + 1
        host = self.carriers[peer]
        place, inline, way = 0, b"", _INLINE
        if self.nccl is not None and tensor.is_cuda:
            post.carrier = self.nccl
        elif tensor.nbytes > MAX_INLINE:
            post.carrier = host
        if post.carrier is not None:
            place, way = post.carrier.begin(post), post.carrier.way
        elif kind == "send":
            inline = raw(tensor.cpu()).clone().numpy().tobytes()  # memory that NumPy has seen can't be resized any more
        post.begun = time.monotonic() + self.offset
        host.tell(Note(kind, way, tensor.dtype, tensor.shape, self.rank, context, tag, post.number, place, post.posted,
                       inline))
        self.told[peer] += 1
        self.open[post] = None
        key = kind, peer, context, tag
        notes = self.notes.get(key)
        if notes:
            self._match(post, notes.popleft())
        else:
            self.posted[key].append(post)
        return post

    def wait(self, posts: Sequence[Post]) -> None:
        """Wait for all of `posts`."""
        if self.nccl is not None:
            self.nccl.issue()
        for post in posts:
            if post.done:
                continue
            if post.mate is None:
                self._listen_until(lambda post=post: post.mate is not None, posts)
            self._finish(post)

    def wait_any(self, posts: Sequence[Post]) -> int:
        """Wait for one of `posts`; the index of the first that was done."""
        if any(post.carrier is not None and post.carrier is self.nccl for post in posts):
            raise CommError("wait_any: NCCL takes the messages of a rank one after another, whichever is there first; "
                            "send tensors in CPU memory where any may come first")
        while not (there := [i for i, post in enumerate(posts) if post.done or post.mate is not None]):
            self._listen_until(lambda: any(post.mate is not None for post in posts), posts)
        first = min(there, key=lambda i: max(posts[i].posted, posts[i].mate.time))
        if not posts[first].done:
            self._finish(posts[first])
        return first

    def _listen_until(self, heard: Callable[[], bool], posts: Sequence[Post]) -> None:
        """Take up notes until `heard()`; where another thread of this rank listens already, it does so for both."""
        me = threading.get_ident()
        with self.news:
            self.awaited[me] = posts
            while not heard():
                if self.listening:
                    self.news.wait(0.05 if self._blocked() else None)  # notes that are kept must go out all the same
                else:
                    self._listen()
                    self.news.notify_all()
            del self.awaited[me]

    def _listen(self) -> None:
        """Wait for notes and match them; the lock is held, but not meanwhile."""
        self.listening = True
        try:
            blocked = self._blocked()
            self.lock.release()
            try:
                self.inbox.wait(blocked)
                notes = () if blocked and self.inbox.empty() else list(self.inbox.read())
            finally:
                self.lock.acquire()
        finally:
            self.listening = False
        self._heed(notes)

    def _blocked(self) -> list[Outbox]:
        """The ways out whose notes do not all fit into the peer's pipe yet."""
        return [c.outbox for c in self.carriers.values() if c.way == b"s" and c.outbox.kept and not c.outbox.flush()]

    def flush(self, seconds: float) -> bool:
        """Write the notes that pipes could not hold, for up to `seconds`; whether all are written.

        A rank that has what it waited for may still owe its peers the notes that they wait for.
        """
        until = time.monotonic() + seconds
        while blocked := self._blocked():
            left = until - time.monotonic()
            if left <= 0:
                return False
            select.select([], [outbox.writer for outbox in blocked], [], left)
        return True

    def _heed(self, notes: Iterable[Note]) -> None:
        for note in notes:
            key = "recv" if note.kind == "send" else "send", note.source, note.context, note.tag
            mine = self.posted.get(key)
            if mine:
                self._match(mine.popleft(), note)
            else:
                self.notes[key].append(note)
            self.heard += 1

    def _match(self, post: Post, note: Note) -> None:
        if post.kind == "send":
            check_fits(post.tensor, note, self.rank, post.peer)
        else:
            check_fits(note, post.tensor, post.peer, self.rank)
        on_gpu = post.carrier is not None and post.carrier.way == Nccl.way
        if on_gpu != (note.way == Nccl.way):
            here, there = ("a GPU", "the CPU") if on_gpu else ("the CPU", "a GPU")
            raise CommError(f"a message between rank {self.rank}, whose tensor is on {here}, and rank {post.peer}, whose "
                            f"tensor is on {there}: move both to `comm.device`")
        post.mate = note

    def _finish(self, post: Post) -> None:
        """See a matched post through and write it into the trace."""
        marks = None
        if post.carrier is not None:
            marks = post.carrier.finish(post, post.mate)
        elif post.kind == "recv" and post.mate.inline:
            data = torch.frombuffer(bytearray(post.mate.inline), dtype=post.tensor.dtype)
            post.take(post.tensor, data.view(post.tensor.shape))
        post.done = True
        with self.lock:
            self.open.pop(post, None)
            if post.traced:
                self._record(post, marks)

    def _record(self, post: Post, marks: tuple | None) -> None:
        if marks:
            self.late.append((post.kind, *marks, post.tensor.nbytes, post.peer, ""))
            return
        start = max(post.posted, post.mate.time)
        end = max(start, post.begun) if post.kind == "send" and post.carrier is not None and post.carrier.way == b"s" \
            else time.monotonic() + self.offset
        self.trace.add(self.rank, post.kind, start - self.base, max(start, end) - self.base, post.tensor.nbytes, post.peer)

    def record(self, kind: str, start: float, end: float, nbytes: int = 0, peer: int = -1, label: str = "") -> None:
        """Write an event of this rank into the trace."""
        with self.lock:
            self.trace.add(self.rank, kind, start, end, nbytes, peer, label)

    def end(self) -> tuple[Trace, float]:
        """This rank's events and when its function ended. What it never waited for is seen through if it can be."""
        if self.beside is not None:
            self.beside.end()
        if self.nccl is not None:
            self.nccl.issue()
        while not self.inbox.empty():
            self._heed(self.inbox.read())
        for post in [post for post in self.open if post.mate is not None]:
            self._finish(post)
        if self.device.type == "cuda":
            torch.cuda.synchronize()
        end = self.now()
        self._add_late()
        return self.trace, end

    def _add_late(self) -> None:
        """Write what the GPU did into the trace: a mark made now ties its clock to ours."""
        if not self.late:
            return
        here = mark()
        here.synchronize()
        now = self.now()
        for kind, start, end, nbytes, peer, label in self.late:
            self.trace.add(self.rank, kind, now - start.elapsed_time(here) / 1e3, now - end.elapsed_time(here) / 1e3,
                           nbytes, peer, label)
        self.late.clear()

    # -- where this rank is -------------------------------------------------------------------------------------------

    def position(self, thread: int) -> Position:
        """Where `thread`, which runs this rank's function, is now; asked by another thread."""
        posts, beside = self.awaited.get(thread), self.beside
        blocked = posts is not None
        if beside is not None and beside.busy:
            other = self.awaited.get(beside.thread)
            blocked = other is not None and (blocked or beside.waits)
            if beside.waits:
                posts, thread = other, beside.thread
        where = caller(thread)
        meeting = self.meeting.get(thread)
        if meeting is not None:
            wait = Wait(self.rank, "barrier", None, 0, 0, *where)
        elif posts is not None:
            unmet = [post for post in posts if post.mate is None] or posts  # one may just have met its mate
            post = next((post for post in unmet if post.kind == "recv"), unmet[0])  # whoever receives doesn't only send
            wait = Wait(self.rank, post.kind, post.peer, post.tensor.nbytes, post.tag, *where, self._hint(post))
        else:
            wait = Wait(self.rank, "a part that doesn't end", None, 0, 0, *where)
        return Position(wait, blocked, list(self.told), self.heard, meeting)

    def _hint(self, post: Post) -> str:
        """Why `post` never ends, where it can be told from what the peer has posted."""
        for (kind, peer, context, tag), notes in list(self.notes.items()):
            if notes and (kind, peer) == (post.kind, post.peer) and tag <= MAX_TAG:  # above are those of barriers
                other = f"with tag {tag} instead of {post.tag}" if tag != post.tag else f"in another group ({context})"
                return f"rank {peer} did post a {notes[0].kind}, but {other}"
        return ""
