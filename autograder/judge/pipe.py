"""The judge's end of the pipe to a child of the sandbox. Whatever comes out of it may be forged."""

from __future__ import annotations

import os
import select
import time
from typing import Any

from autograder.inside.wire import HEAD, LARGEST, Coder, Malformed, parts
from autograder.judge.conversations import Tape
from autograder.judge.outputs import Outputs
from autograder.sandbox import Child

POLL = 0.1  # s, so that a thread that is to end its run gets to know it


class Gone(Exception):
    """The child has ended, or had to be ended; the message says why."""


class Pipe:
    """Frames to and from a child, and what it prints meanwhile.

    outputs: where that goes now.  limit: why it had to end.
    deadline: when what runs now has to be over (time.monotonic).  ends: the same for the submission.
    """

    def __init__(self, child: Child, coder: Coder):
        self.child, self.coder = child, coder
        self.outputs = Outputs(0)
        self.deadline = self.ends = float("inf")
        self.allowed = self.allowed_in_all = ""  # the words for both
        self.limit: str | None = None
        self.gone = False
        self.waiting: list[int] = []  # calls whose ranks have ended on this side; the child doesn't know it yet
        self.calls = 0
        self.tape: Tape | None = None  # where all that is said is noted

    # -- out ----------------------------------------------------------------------------------------------------------

    def send(self, *message: Any) -> None:
        if self.gone:
            raise Gone(self.limit or "the sandbox has ended")
        self.forget()
        self._say(self.coder.frame(list(message)))

    def forget(self) -> None:
        """Let the child end the calls whose runs have ended here."""
        if self.waiting:
            numbers, self.waiting = self.waiting, []
            self._say(self.coder.frame(["forget", numbers]))

    def _say(self, frame: bytes) -> None:
        if self.tape is None or self.tape.said(True, frame) is None:
            self.write(frame)
            if self.tape is not None:
                self.tape.note(True, frame)

    def write(self, frame: bytes) -> None:
        left = memoryview(frame)
        while left:
            self._guard()
            ready, writable, _ = select.select(self.child.files(), [self.child.pipe], [], POLL)
            self._drain(ready)
            try:
                left = left[self.child.pipe.send(left[:1 << 16]):] if writable else left
            except OSError:
                raise self.lose() from None

    # -- in -----------------------------------------------------------------------------------------------------------

    def read(self) -> list[Any]:
        """The next message. Raises Gone when there will be none."""
        frame = self.tape.said(False) if self.tape is not None else None
        if frame is None:
            frame = self.frame()
            if self.tape is not None:
                self.tape.note(False, frame)
        try:
            message = self.coder.value(*parts(frame))
            if not isinstance(message, list) or not message or not isinstance(message[0], str):
                raise Malformed("no message")
        except Malformed as error:
            raise self.stop(f"it said something that is no answer: {error}") from None
        return message

    def frame(self) -> bytes:
        """The bytes of the next frame."""
        head = self._take(HEAD.size)
        if sum(HEAD.unpack(head)) > LARGEST:
            raise self.stop(f"output: a value of more than {LARGEST:,} bytes")
        body = self._take(sum(HEAD.unpack(head)))
        self._drain(select.select(self.child.files(), [], [], 0)[0])
        return head + body

    def _take(self, size: int) -> bytes:
        data = bytearray()
        while len(data) < size:
            self._guard()
            ready = select.select([self.child.pipe, *self.child.files()], [], [], POLL)[0]
            self._drain(ready)
            if self.child.pipe in ready:
                try:
                    block = self.child.pipe.recv(min(size - len(data), 1 << 20))
                except OSError:
                    block = b""
                if not block:
                    raise self.lose()
                data += block
        return bytes(data)

    def _drain(self, ready: list[Any]) -> None:
        """Take what was printed."""
        for file in ready:
            if file == self.child.out or file == self.child.error:
                block = os.read(file, 1 << 16)
                if not block:
                    self._close(file)
                    continue
                self.outputs.stream("stdout" if file == self.child.out else "stderr", block.decode(errors="replace"))
                if self.outputs.flooded:
                    raise self.stop(f"output: more than {self.outputs.most:,} bytes")

    def _close(self, file: int) -> None:
        os.close(file)
        if file == self.child.out:
            self.child.out = -1
        else:
            self.child.error = -1

    def ask(self, *question: Any) -> Any:
        """Ask the child's main thread; what it shows meanwhile goes into the outputs."""
        self.send(*question)
        while True:
            kind, *about = self.read()
            if kind == "display" and len(about) == 2:
                self.outputs.display(*about)
            elif kind == "error" and len(about) == 3:
                self.outputs.error(*map(str, about))
            elif kind == "clear":
                self.outputs.clear()
            elif kind == "answer" and len(about) == 1:
                return about[0]
            else:
                raise self.stop("it spoke out of turn")

    # -- ends ---------------------------------------------------------------------------------------------------------

    def allow(self, seconds: float, words: str) -> None:
        """What runs from now on has to be over in so many seconds."""
        self.deadline, self.allowed = time.monotonic() + seconds, words

    def _guard(self) -> None:
        if self.gone:
            raise Gone(self.limit or "the sandbox has ended")
        now = time.monotonic()
        if now > self.ends:
            raise self.stop(self.allowed_in_all)
        if now > self.deadline:
            raise self.stop(self.allowed)

    def stop(self, why: str) -> Gone:
        """End the child, because of a limit."""
        self.limit, self.gone = self.limit or why, True
        self.child.close()
        return Gone(self.limit)

    def lose(self) -> Gone:
        """The child has ended by itself."""
        self.gone = True
        self.limit = self.limit or self.child.ended(kill=False)
        self.child.close()
        return Gone(self.limit)

    def close(self) -> None:
        self.gone = True
        self.child.close()
