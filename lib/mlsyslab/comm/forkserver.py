"""Ranks in a tenth of a second: a helper process that has imported torch already and forks.

The caller keeps one fork server for as long as it lives. The server has imported torch but never uses it: no thread of
torch's, no GPU context, nothing that a fork could break. A rank's `life` socket ties it to its caller: the server tells
there how the rank ended, and kills it when the caller's end closes, be it that the caller died.
"""

from __future__ import annotations

import array
import atexit
import contextlib
import ctypes
import gc
import os
import selectors
import signal
import socket
import struct
import subprocess
import sys
import threading
from typing import NamedTuple

_STATUS = struct.Struct("!i")
_PR_SET_PDEATHSIG = 1


class Started(NamedTuple):
    """The caller's ends of one rank: `control` for words, `life` for how it ends (`_STATUS`), and to end it."""

    control: socket.socket
    life: socket.socket


def send_status(life: socket.socket, status: int) -> None:
    """Tell the caller how a rank ended, if it still listens."""
    with life, contextlib.suppress(OSError):
        life.send(_STATUS.pack(status))


def status_of(life: socket.socket) -> int | None:
    """How the rank ended: its exit status, or minus the signal that killed it; None when nobody could tell."""
    try:
        data = life.recv(_STATUS.size)
    except ConnectionError:
        data = b""
    return _STATUS.unpack(data)[0] if len(data) == _STATUS.size else None


# -- the caller's side ------------------------------------------------------------------------------------------------


class ForkServer:
    """The caller's handle on its fork server."""

    def __init__(self):
        self.owner = os.getpid()
        self.socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        code = (f"import sys; sys.path[:] = {sys.path!r}\n"
                f"from mlsyslab.comm.forkserver import serve; serve({theirs.fileno()}, {self.owner})")
        self.process = subprocess.Popen([sys.executable, "-c", code], pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL,
                                        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, start_new_session=True)
        theirs.close()
        if self.socket.recv(16) != b"ready":
            raise RuntimeError(f"the fork server did not start:\n{self.process.stderr.read().decode(errors='replace')}")
        self.process.stderr.close()

    def start(self, out: int, err: int) -> Started:
        """Fork one rank that prints to the files `out` and `err`."""
        control, its_control = socket.socketpair()
        life, its_life = socket.socketpair()
        with its_control, its_life:
            handles = array.array("i", [its_control.fileno(), its_life.fileno(), out, err])
            self.socket.sendmsg([b"rank"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, handles)])
        return Started(control, life)

    def alive(self) -> bool:
        return self.owner == os.getpid() and self.process.poll() is None

    def close(self) -> None:
        self.socket.close()
        if self.owner == os.getpid():
            self.process.wait()


_server: ForkServer | None = None
_starting = threading.Lock()


def start(out: int, err: int) -> Started:
    """Start one rank that prints to the files `out` and `err`, from this process's fork server."""
    global _server
    with _starting:
        if _server is None or not _server.alive():
            if _server is not None:
                _server.socket.close()
            _server = ForkServer()
            atexit.register(_server.close)
        return _server.start(out, err)


# -- the server -------------------------------------------------------------------------------------------------------


def serve(number: int, caller: int) -> None:
    """Fork a rank for every request that comes through socket `number`, as long as the process `caller` lives."""
    import mlsyslab.comm.rank
    mlsyslab.comm.rank.prepare()
    gc.freeze()  # the collector of a rank leaves alone what is there now, so its pages stay shared
    _Server(socket.socket(fileno=number), caller).run()


class _Server:
    def __init__(self, requests: socket.socket, caller: int):
        self.requests = requests
        self.lives: dict[int, socket.socket] = {}  # of the ranks that live, by process
        self.bell, self.ringer = socket.socketpair()  # rings when a rank has ended
        self.bell.setblocking(False)
        self.ringer.setblocking(False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(self.ringer.fileno(), warn_on_full_buffer=False)
        self.selector = selectors.DefaultSelector()
        self.selector.register(requests, selectors.EVENT_READ, self._request)
        self.selector.register(self.bell, selectors.EVENT_READ, self._reap)
        with contextlib.suppress(OSError):  # an old kernel: then the closing of `requests` has to do
            self.selector.register(os.pidfd_open(caller), selectors.EVENT_READ, self._end)

    def run(self) -> None:
        self.requests.send(b"ready")
        with open(os.devnull, "wb") as nothing:
            os.dup2(nothing.fileno(), 2)
        while True:
            for key, _ in self.selector.select():
                key.data(key.fileobj)

    def _request(self, _socket) -> None:
        word, ancillary, _, _ = self.requests.recvmsg(16, socket.CMSG_SPACE(4 * array.array("i").itemsize))
        if not word:
            self._end()
        control, life, out, err = array.array("i", ancillary[0][2])
        process = os.fork()
        if not process:
            self._become_rank(control, life, out, err)
        with contextlib.suppress(OSError):
            os.setpgid(process, process)
        for number in (control, out, err):
            os.close(number)
        self.lives[process] = socket.socket(fileno=life)
        self.selector.register(self.lives[process], selectors.EVENT_READ, lambda _: _kill(process))

    def _become_rank(self, control: int, life: int, out: int, err: int) -> None:
        """What the forked process does, to its end."""
        try:
            _die_with_parent()
            with contextlib.suppress(OSError):
                os.setpgid(0, 0)
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            self.selector.close()
            for other in (self.requests, self.bell, self.ringer, *self.lives.values()):
                other.close()
            from mlsyslab.comm import rank
            rank.replace_output(out, err)
            for number in (life, out, err):
                os.close(number)
            rank.live(socket.socket(fileno=control))
        finally:
            os._exit(1)

    def _reap(self, _socket=None) -> None:
        """Take note of the ranks that have ended, and end what they have started themselves."""
        with contextlib.suppress(BlockingIOError):
            self.bell.recv(4096)
        while self.lives:
            ended = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            if ended is None:
                return
            _kill(ended.si_pid)
            status = os.waitstatus_to_exitcode(os.waitpid(ended.si_pid, 0)[1])
            life = self.lives.pop(ended.si_pid)
            self.selector.unregister(life)
            send_status(life, status)

    def _end(self, _cause=None) -> None:
        """The caller is gone."""
        for process in self.lives:
            _kill(process)
        for process in self.lives:
            os.waitpid(process, 0)
        os._exit(0)


def _kill(process: int) -> None:
    """End a rank and the processes that it has started."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process, signal.SIGKILL)


def _die_with_parent() -> None:
    """Be killed when the server is."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
