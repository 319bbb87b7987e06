"""Shut a freshly forked process in: namespaces of its own, and limits."""

from __future__ import annotations

import ctypes
import fcntl
import os
import resource
import signal
import socket
import struct
import sys
from contextlib import suppress
from typing import Any, NoReturn

from syscalls import restrict

libc = ctypes.CDLL(None, use_errno=True)

NEW = {"mount": 0x00020000, "uts": 0x04000000, "ipc": 0x08000000, "user": 0x10000000, "pid": 0x20000000, "net": 0x40000000}
MS_NOSUID, MS_NODEV, MS_BIND, MS_REC, MS_PRIVATE = 2, 4, 0x1000, 0x4000, 0x40000
PR_SET_PDEATHSIG, PR_CAPBSET_DROP, PR_SET_CHILD_SUBREAPER, PR_SET_NO_NEW_PRIVS = 1, 24, 36, 38


def able() -> bool:
    """Whether a child of this process can have namespaces of its own inside these."""
    child = os.fork()
    if child == 0:
        try:
            unshare()
            os._exit(0)
        except BaseException:
            os._exit(1)
    return os.waitpid(child, 0)[1] == 0


def call(result: int, what: str) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")


def die_with_parent() -> None:
    libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def adopt() -> None:
    """Become the parent of all descendants whose parents end."""
    libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def unshare() -> None:
    """Leave all namespaces for new ones, in which this user is still the same."""
    user, group = os.getuid(), os.getgid()
    call(libc.unshare(sum(NEW.values())), "unshare")
    for file, text in (("setgroups", "deny"), ("uid_map", f"{user} {user} 1"), ("gid_map", f"{group} {group} 1")):
        with open(f"/proc/self/{file}", "w") as out:
            out.write(text)


def enclose(limits: dict[str, Any], keep: list[int]) -> None:
    """Go into new namespaces; returns in the process that is to run the student's code.

    This process waits for the one that is the first of the new PID namespace, which waits for the one that returns: when
    that has ended, so has everything that it started.
    """
    die_with_parent()
    unshare()
    pass_on(os.fork(), keep)
    die_with_parent()
    mount(limits["disk"])
    loopback_up()
    child = os.fork()
    if child:
        pass_on(child, keep)
    os.setsid()


def pass_on(child: int, keep: list[int]) -> None:
    """In the child return; in its parent wait for it, and end as it did."""
    if child == 0:
        return
    for number in keep:
        os.close(number)
    while True:
        ended, status = os.wait()
        if ended == child:
            end_as(status)


def end_as(status: int) -> NoReturn:
    """End with the status of a child; a signal becomes 128 and its number, as in a shell."""
    os._exit(128 + os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status))


def mount(size: int) -> None:
    """Fresh scratch folders, and nothing to see of other processes."""
    call(libc.mount(b"none", b"/", None, MS_REC | MS_PRIVATE, None), "mount /")
    shown = {path: os.open(path, os.O_PATH) for path in mounted_below("/tmp")}  # the library, where the checkout lies there
    for folder in (b"/tmp", b"/dev/shm"):
        call(libc.mount(b"tmpfs", folder, b"tmpfs", MS_NOSUID | MS_NODEV, f"size={size}".encode()), f"mount {folder}")
    for path, file in shown.items():
        os.makedirs(path)
        call(libc.mount(f"/proc/self/fd/{file}".encode(), path.encode(), None, MS_BIND | MS_REC, None), f"mount {path}")
        os.close(file)
    call(libc.mount(b"tmpfs", b"/proc", b"tmpfs", MS_NOSUID | MS_NODEV, b"size=4k,mode=555"), "mount /proc")
    os.chdir("/tmp")


def mounted_below(folder: str) -> list[str]:
    """Where something is mounted below a folder; without what is mounted below that."""
    found: list[str] = []
    with open("/proc/self/mountinfo") as file:
        for line in file:
            path = line.split()[4].encode().decode("unicode_escape")  # a blank is written \040
            if path.startswith(f"{folder}/") and not any(path.startswith(f"{other}/") for other in found):
                found.append(path)
    return found


def loopback_up() -> None:
    """Give 127.0.0.1 to ranks that are processes; there is no other network."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        fcntl.ioctl(any_socket, 0x8914, struct.pack("16sH14s", b"lo", 0x1 | 0x40, b""))  # SIOCSIFFLAGS: up, running


def bound(limits: dict[str, Any]) -> None:
    """Set the limits of this process and of all that it starts."""
    for name, most in (("DATA", limits["memory"]), ("FSIZE", limits["disk"]), ("NOFILE", limits["files"]),
                       ("NPROC", limits["processes"]), ("CPU", int(limits["submission"]) + 1), ("CORE", 0)):
        number = getattr(resource, f"RLIMIT_{name}")
        hard = resource.getrlimit(number)[1]
        most = most if hard == resource.RLIM_INFINITY else min(most, hard)
        resource.setrlimit(number, (most, most))


def renounce() -> None:
    """Give up every capability, those in its own user namespace too, for good."""
    for capability in range(64):
        libc.prctl(PR_CAPBSET_DROP, capability, 0, 0, 0)
    head = struct.pack("Ii", 0x20080522, 0)  # version 3, this process
    call(libc.capset(head, struct.pack("6I", *[0] * 6)), "capset")
    call(libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "prctl")
    restrict(libc)


def close_all_but(*numbers: int) -> None:
    """Close every other file, the grader's socket among them."""
    for name in os.listdir("/proc/self/fd"):
        if int(name) not in numbers:
            with suppress(OSError):  # the one that listed them
                os.close(int(name))


def become(out: int, error: int) -> None:
    """Take these files for stdout and stderr, and nothing for stdin."""
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.dup2(out, 1)
    os.dup2(error, 2)
    for number in (nothing, out, error):
        os.close(number)
    sys.stdin = open(0, closefd=False)  # noqa: SIM115  it is the process's own, to its end
