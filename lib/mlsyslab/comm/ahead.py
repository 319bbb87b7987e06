"""Running ahead: a rank inside of a collective goes on before virtual time has come to what it did.

To hand the baton on at every message costs a switch of threads each time. Nobody sees what a rank does inside of a
collective before the collective ends: so there it goes on as soon as the data that it waits for has been posted, and virtual
time, which plays through what each rank did, comes after. When the collective ends, or asks for the time, the rank waits
until virtual time has come to it. So every rank sees the same as if it had waited for each message.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from torch.overrides import _get_current_function_mode
from torch.utils._python_dispatch import _get_current_dispatch_mode

from mlsyslab.comm.lane import Lane
from mlsyslab.comm.message import Message

if TYPE_CHECKING:
    from mlsyslab.comm.virtual import VirtualWorld

STEPS = 128  #: how far a lane may run ahead: in messages, waits and reductions


class Ahead:
    """A context in which `lane` may run ahead."""

    def __init__(self, world: VirtualWorld, lane: Lane):
        self.world, self.lane = world, lane

    def __enter__(self) -> None:
        self.before = self.lane.ahead
        self.lane.ahead = True

    def __exit__(self, kind, error, where) -> None:
        self.lane.ahead = self.before
        if not self.before and (kind is None or issubclass(kind, Exception)):
            self.world.settle(self.lane)


def may_run_ahead(world: VirtualWorld) -> bool:
    """Whether nobody sees it: ranks that die see when, and a mode of torch's sees every tensor that is made.

    Buffered sends don't wait as it is.
    """
    watched = _get_current_dispatch_mode() is not None or _get_current_function_mode() is not None
    return not (watched or world.timing.buffered or world.deaths.expected)


def has_room(lane: Lane) -> bool:
    """Whether `lane` hasn't run ahead as far as it may."""
    return len(lane.script) < STEPS


def passes(lane: Lane, messages: Sequence[Message]) -> bool:
    """Whether `lane` can go on although `messages` are not done: what it receives is there, what it sends can be kept."""
    if not has_room(lane):
        return False
    for message in messages:
        if message.sender is lane:
            if not message.keep():
                return False
        elif not message.fits and message.out is not None:
            return False
    for message in messages:  # only now, since what is received may lie where something sent lay
        if message.receiver is lane and message.out is not None:
            message.take()
    return True
