"""Ranks as fresh Python processes, for systems on which a process that has imported torch must not fork (macOS).

A few seconds a run, since every rank imports torch.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import threading

from mlsyslab.comm.forkserver import Started, send_status


def start(out: int, err: int) -> Started:
    """Start one rank that prints to the files `out` and `err`."""
    control, its_control = socket.socketpair()
    life, its_life = socket.socketpair()
    code = (f"import sys; sys.path[:] = {sys.path!r}\n"
            f"from mlsyslab.comm.fresh import become_rank; become_rank({its_control.fileno()})")
    with its_control:
        process = subprocess.Popen([sys.executable, "-c", code], pass_fds=[its_control.fileno()], stdin=subprocess.DEVNULL,
                                   stdout=out, stderr=err, start_new_session=True)
    threading.Thread(target=_tell_end, args=(process, its_life), name="waits for a rank", daemon=True).start()
    threading.Thread(target=_end_with, args=(process, its_life), name="ends a rank", daemon=True).start()
    return Started(control, life)


def become_rank(control: int) -> None:
    """What the fresh process does, to its end."""
    from mlsyslab.comm import rank
    rank.replace_output(1, 2)
    rank.live(socket.socket(fileno=control))


def _tell_end(process: subprocess.Popen, life: socket.socket) -> None:
    status = process.wait()
    _kill_group(process)
    send_status(life, status)


def _end_with(process: subprocess.Popen, life: socket.socket) -> None:
    """End the rank when the caller closes its end of `life`."""
    with contextlib.suppress(OSError):
        life.recv(1)
    if process.returncode is None:
        _kill_group(process)


def _kill_group(process: subprocess.Popen) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
