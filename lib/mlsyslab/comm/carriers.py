"""Three ways for the bytes of a message: shared memory, Gloo, NCCL.

A carrier takes up a posted send or receive (`begin`) and sees it through when both its ends are there and it is waited for
(`finish`). Matching, checking and recording are the same for all of them (`world.py`).
"""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING

import torch
import torch.distributed as dist

from mlsyslab.comm.note import MAX_NOTE, Note, unpack
from mlsyslab.comm.shared import Arena, Outbox, Window

if TYPE_CHECKING:
    from mlsyslab.comm.world import Post


def raw(tensor: torch.Tensor) -> torch.Tensor:
    """The elements of `tensor` as a flat, contiguous tensor of bytes: every dtype can travel like this."""
    plain = tensor.resolve_conj().resolve_neg().contiguous()
    return plain.as_strided((plain.numel(),), (1,)).view(torch.uint8)  # a single element may have any stride


class SharedCarrier:
    """To a rank of this machine."""

    way = b"s"

    def __init__(self, arena: Arena, inbox_address: str, arena_address: str):
        self.arena = arena
        self.outbox = Outbox(inbox_address)
        self.window = Window(arena_address)

    def tell(self, note: Note) -> None:
        self.outbox.write(note.pack())

    def has_room(self, nbytes: int) -> bool:
        """Whether a message can be sent without more memory than there is."""
        return self.arena.has_room(nbytes)

    def begin(self, post: Post) -> int:
        return self.arena.put(post.tensor) if post.kind == "send" else 0

    def finish(self, post: Post, note: Note) -> None:
        if post.kind == "recv":
            self.window.get(note.place, post.tensor, post.take)


class GlooCarrier:
    """To a rank of another machine, over TCP. (Gloo knows few dtypes, so everything travels as bytes.)"""

    way = b"g"

    def __init__(self, wires: Wires, peer: int):
        self.wires, self.peer = wires, peer
        self.sent: dict[Post, tuple[dist.Work, torch.Tensor]] = {}

    def tell(self, note: Note) -> None:
        self.wires.write(note.pack(), self.peer)

    def has_room(self, nbytes: int) -> bool:
        return True  # it lies in buffers of the system's

    def begin(self, post: Post) -> int:
        if post.kind == "send":
            data = raw(post.tensor.cpu())
            self.sent[post] = dist.isend(data, group=self.wires.group, group_dst=self.peer, tag=_tag(post.number)), data
        return 0

    def finish(self, post: Post, note: Note) -> None:
        if post.kind == "send":
            self.sent.pop(post)[0].wait()
        else:
            data = self.wires.take(note)
            post.take(post.tensor, data.view(post.tensor.dtype).view(post.tensor.shape))


def _tag(number: int) -> int:
    """Gloo's tag of a message; 0 is that of the notes."""
    return 1 + number % 2**30


class Wires:
    """What comes over Gloo. A thread receives the notes of all other machines' ranks and puts them into this rank's inbox.

    When a note announces a message, the thread lets Gloo receive it, whatever this rank is doing, so that the sender's Gloo
    never depends on the receiver's next step: two ranks that wait for their sends to each other would lock up there.
    """

    def __init__(self, group: dist.ProcessGroup, inbox: int):
        self.group, self.inbox = group, inbox
        self.notes: list[tuple] = []  # on their way, the oldest first
        self.messages: dict[tuple[int, int], tuple[dist.Work, torch.Tensor]] = {}  # by sender and number
        self.thread = threading.Thread(target=self._receive, name="notes", daemon=True)
        self.thread.start()

    def write(self, note: bytes, peer: int) -> None:
        data = torch.frombuffer(bytearray(note.ljust(MAX_NOTE, b"\0")), dtype=torch.uint8)
        self.notes.append((dist.isend(data, group=self.group, group_dst=peer), data))
        if len(self.notes) > 64:  # long received, as a rule
            self.notes.pop(0)[0].wait()

    def _receive(self) -> None:
        data = torch.empty(MAX_NOTE, dtype=torch.uint8)
        os.set_blocking(self.inbox, True)
        while True:
            dist.recv(data, group=self.group)
            note = data.numpy().tobytes()
            length = int.from_bytes(note[:2], "little")
            if not length:  # an empty note says good-bye
                return
            self._expect(unpack(note))
            os.write(self.inbox, note[:length])

    def _expect(self, note: Note) -> None:
        if note.kind == "send" and note.way == GlooCarrier.way:
            data = torch.empty(note.shape.numel() * note.dtype.itemsize, dtype=torch.uint8)
            work = dist.irecv(data, group=self.group, group_src=note.source, tag=_tag(note.number))
            self.messages[note.source, note.number] = work, data

    def take(self, note: Note) -> torch.Tensor:
        """The bytes of the message that `note` announced."""
        work, data = self.messages.pop((note.source, note.number))
        work.wait()
        return data

    def close(self, rank: int, size: int) -> None:
        """End the thread of the next rank; every rank of the group does so, once nothing else is to come."""
        self.write(b"", (rank + 1) % size)
        self.thread.join()
        for work, _ in self.notes:
            work.wait()


class Nccl:
    """Between GPUs. NCCL matches the messages between two ranks by their order alone, so receive in the order of sending.

    Sends and receives are collected and handed to NCCL as one group when a rank waits for the first of them, for NCCL
    makes progress with all operations of a group at once (`ncclGroupStart`). So two ranks that exchange messages by
    `sendrecv`, or by `isend` and `irecv`, don't lock up, whichever comes first.
    """

    way = b"n"

    def __init__(self):
        self.posted: list[Post] = []
        self.works: dict[Post, tuple] = {}

    def begin(self, post: Post) -> int:
        self.posted.append(post)
        return 0

    def issue(self) -> None:
        """Hand over what has been posted."""
        if not self.posted:
            return
        posts, self.posted = self.posted, []
        start, operations = mark(), []
        for post in posts:
            data = post.tensor.resolve_conj().resolve_neg().contiguous() if post.kind == "send" else landing(post.tensor)
            self.works[post] = start, data
            operations.append(dist.P2POp(dist.isend if post.kind == "send" else dist.irecv,
                                         raw(data), post.peer))
        works = dist.batch_isend_irecv(operations)
        for i, post in enumerate(posts):  # one work for the whole group, or one an operation, as torch's version has it
            self.works[post] += (works[i if len(works) == len(posts) else 0],)

    def finish(self, post: Post, note: Note) -> tuple[torch.cuda.Event, torch.cuda.Event]:
        """Let the current stream wait for the message; returns marks of its start and end."""
        start, data, work = self.works.pop(post)
        work.wait()
        if post.kind == "recv" and data is not post.tensor:
            post.tensor.copy_(data)
        return start, mark()


def landing(out: torch.Tensor) -> torch.Tensor:
    """`out` where its elements lie one after the other, else a tensor like it where they do."""
    return out if out.is_contiguous() and out.numel() else torch.empty(out.shape, dtype=out.dtype, device=out.device)


def mark() -> torch.cuda.Event:
    """A point in the current stream of work of the GPU."""
    event = torch.cuda.Event(enable_timing=True)
    event.record()
    return event
