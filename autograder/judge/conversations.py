"""Tests that passed before: a conversation that goes the same way ends the same way.

A test cell is given what the submission defines of the names that it uses, asks, and the sandbox answers: nothing else does
the test know of a submission. So where it is given the same, and every answer is, to the last byte, one that came before at
the same point of the same test, the test need not be run: its next question is known, and in the end its verdict. Most
right solutions of a class are alike in this. What is remembered was found out by the test itself, with answers that may be
anybody's.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

MOST = 500_000  # frames that are remembered; then all are forgotten


class Tape:
    """What was said so far.  events: (whether the test said it, frame).  at: how many a test that catches up has heard."""

    def __init__(self, events: list[tuple[bool, bytes]]):
        self.events, self.at = events, 0

    def said(self, asked: bool, frame: bytes | None = None) -> bytes | None:
        """The frame that was said at this point; None where nothing was yet, or where something else was asked."""
        if self.at >= len(self.events):
            return None
        was, heard = self.events[self.at]
        if was != asked or (frame is not None and heard != frame):
            raise RuntimeError("a test asks something else when it is run again")
        self.at += 1
        return heard

    def note(self, asked: bool, frame: bytes) -> None:
        self.events.append((asked, frame))
        self.at += 1


@dataclass
class Point:
    """What follows at one point of a conversation: a question, an answer (both None), or what the test printed, its end."""

    question: bytes | None = None
    printed: str | None = None


class Conversations:
    """Those of all tests of a lab that ended well."""

    def __init__(self):
        self.points: dict[bytes, Point] = {}
        self.frames: dict[bytes, bytes] = {}

    def follow(self, test: str, given: bytes, pipe) -> tuple[str | None, list[tuple[bool, bytes]]]:
        """Ask what this test asks when it is given these names, as long as the answers are known.

        Returns what it printed when it passed, or None; and all that was said.
        """
        state, events = start(test, given), []
        while (point := self.points.get(state)) is not None:
            if point.printed is not None:
                return point.printed, events
            asked = point.question is not None
            if asked:
                pipe.write(point.question)
                frame = point.question
            else:
                frame = pipe.frame()
            events.append((asked, frame))
            state = after(state, asked, frame)
        return None, events

    def learn(self, test: str, given: bytes, events: list[tuple[bool, bytes]], printed: str) -> None:
        """Remember a conversation that ended well."""
        if len(self.points) > MOST:
            self.points.clear()
            self.frames.clear()
        state = start(test, given)
        for asked, frame in events:
            self.points.setdefault(state, Point(self.frames.setdefault(frame, frame) if asked else None))
            state = after(state, asked, frame)
        self.points[state] = Point(printed=printed)


def start(test: str, given: bytes) -> bytes:
    return hashlib.sha256(b"\0".join((test.encode(), given))).digest()


def after(state: bytes, asked: bool, frame: bytes) -> bytes:
    return hashlib.sha256(state + bytes([asked]) + frame).digest()
