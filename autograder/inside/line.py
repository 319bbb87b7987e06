"""The sandbox's end of the pipe: calls come in, each on a thread of its own, and requests go out.

The judge lets one rank go on at a time, so one thread runs and all others wait. Whoever has something to send sends it and
then reads what comes next; if that is for somebody else, it is handed to him, and from then on he reads.
"""

from __future__ import annotations

import socket
import sys
import threading
from contextlib import suppress
from queue import SimpleQueue
from typing import Any

from .errors import described, rebuilt
from .places import place
from .wire import HEAD, LARGEST, Coder, Malformed

READ = object()  # in an inbox: be the one who reads
FORGET = object()  # in an inbox: your run has ended


class Ended(BaseException):
    """Raised in a rank whose run has ended on the judge's side, so that its thread comes to an end."""


class Strand:
    """A thread that a call runs on.  number: of the call; 0 for the main thread, which runs cells."""

    def __init__(self, number: int = 0):
        self.number = number
        self.inbox: SimpleQueue = SimpleQueue()
        self.forgotten = False
        self.freed: list[int] = []  # received tensors that nobody has a name for any more
        self.sending: dict[int, Any] = {}  # what is being sent: (tensor, its version)

    def told(self) -> list[int]:
        """`freed`, which is empty afterwards."""
        freed = self.freed[:]
        del self.freed[:len(freed)]
        return freed


class Line:
    """The pipe to the judge.  serve: what runs a call, as `serve(strand, message)`; it gives back the answer."""

    def __init__(self, pipe: socket.socket, coder: Coder):
        self.pipe, self.coder = pipe, coder
        self.lock = threading.Lock()
        self.main = Strand()
        self.strands: dict[int, Strand] = {0: self.main}
        self.idle: list[Strand] = []
        self.here = threading.local()
        self.here.strand = self.main
        self.serve: Any = None
        self.asked = False  # whether something was asked for outside of a call, where nobody can answer

    # -- frames -------------------------------------------------------------------------------------------------------

    def send(self, *message: Any) -> None:
        frame = self.coder.frame(list(message))
        for stream in (sys.stdout, sys.stderr):
            with suppress(Exception):  # closed or replaced by the student
                stream.flush()
        with self.lock:
            self.pipe.sendall(frame)

    def _read(self) -> list[Any]:
        text, rest = HEAD.unpack(self._take(HEAD.size))
        if text + rest > LARGEST:
            raise Malformed("a frame is too large")
        return self.coder.value(self._take(text), self._take(rest))

    def _take(self, size: int) -> bytes:
        data = bytearray()
        while len(data) < size:
            block = self.pipe.recv(min(size - len(data), 1 << 20))
            if not block:
                raise EOFError("the judge has gone")
            data += block
        return bytes(data)

    # -- who reads ----------------------------------------------------------------------------------------------------

    def next(self, me: Strand) -> list[Any]:
        """What comes next for `me`. While it reads, it hands on what is for others."""
        while True:
            message = self._read()
            if message[0] == "forget":
                if self._forget(message[1], me):
                    raise Ended
                continue
            owner = self._owner(message, me)
            if owner is me:
                return message
            if me is not self.main and not me.number:
                self.idle.append(me)
            owner.inbox.put(message)
            told = self.wait(me)
            if told is not READ:
                return told

    def wait(self, me: Strand) -> Any:
        """What another thread hands to `me`."""
        told = me.inbox.get()
        if told is FORGET:
            raise Ended
        return told

    def _owner(self, message: list[Any], me: Strand) -> Strand:
        kind = message[0]
        if kind in ("reply", "fault"):
            return self.strands[message[1]]
        if kind not in ("call", "side"):
            return self.main
        if me is not self.main and not me.number:
            strand = me  # it has just finished a call
        elif self.idle:
            strand = self.idle.pop()
        else:
            strand = Strand()
            threading.Thread(target=self._run, args=(strand,), daemon=True).start()
        strand.number, strand.forgotten = message[1], False
        self.strands[message[1]] = strand
        return strand

    def _forget(self, numbers: list[int], me: Strand) -> bool:
        """End the threads of these calls; says whether `me` is one of them."""
        for number in numbers:
            strand = self.strands.pop(number, None)
            if strand is None:
                continue
            strand.forgotten, strand.number = True, 0
            if strand is me:
                self.main.inbox.put(READ)
            else:
                strand.inbox.put(FORGET)
        return me.forgotten

    # -- calls --------------------------------------------------------------------------------------------------------

    def _run(self, me: Strand) -> None:
        """The life of a thread: one call after the other."""
        self.here.strand = me
        message = me.inbox.get()
        while True:
            try:
                number = message[1]
                answer = self.serve(me, message)
                if me.forgotten:
                    raise Ended
                del self.strands[number]
                me.number = 0
                me.sending.clear()
                self._answer(number, answer, me.told())
                message = self.next(me)
            except Ended:
                me.told()
                me.sending.clear()
                self.idle.append(me)
                message = me.inbox.get()
            except (EOFError, OSError):
                return

    def _answer(self, number: int, answer: tuple[Any, ...], freed: list[int]) -> None:
        try:
            self.send(*answer, freed)
        except Malformed as error:
            self.send("raise", number, described(TypeError(f"what it returned can't be read: {error}")), freed)

    def request(self, what: str, *about: Any, blocks: bool = False) -> Any:
        """Ask the judge for something, as the call that runs on this thread; returns its answer, or raises it.

        blocks: whether other ranks may go on meanwhile.
        """
        me = getattr(self.here, "strand", None)
        if me is None or me is self.main:
            self.asked = True
            raise RuntimeError("a communicator belongs to the thread that its rank's function was called on")
        if me.forgotten:
            raise Ended
        freed = me.told()
        changed = self._changed(me) if blocks else []
        self.send("request", me.number, what, list(about), place(), freed, changed)
        kind, _, answer = self.next(me)
        if kind == "fault":
            raise rebuilt(answer)
        return answer

    def _changed(self, me: Strand) -> list[Any]:
        """What is being sent and was written to since: the message will hold what stands there when it leaves."""
        found = []
        for number, (tensor, before) in list(me.sending.items()):
            if version(tensor) != before:
                me.sending[number] = tensor, version(tensor)
                found.append([number, tensor])
        return found


def version(tensor: Any) -> int:
    """Counts how often a tensor was written to."""
    return 0 if tensor.is_inference() else tensor._version
