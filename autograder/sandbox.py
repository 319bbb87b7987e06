"""A place to run code that isn't trusted: bubblewrap, with no network and nothing of the course; nothing outlives it."""

from __future__ import annotations

import os
import selectors
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import psutil

from autograder.errors import CourseError
from autograder.limits import Limits

HOME = "/tmp"
SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/etc/ld.so.cache", "/etc/alternatives", "/etc/fonts")
REMEDY = ("install it (Debian, Ubuntu: apt install bubblewrap) or pass --unsafe-no-sandbox, "
          "which runs submissions as you, with all your files in reach")


class Ended(Exception):
    """The process was ended before it was done; the message names the limit."""


class Stopped(Exception):
    """The person at the keyboard has stopped the grading."""


def command(argv: Sequence[str], shown: Mapping[str, Path], environment: Mapping[str, str], limits: Limits) -> list[str]:
    """The bubblewrap call that runs `argv` and shows it only Python, its packages and the files of `shown`, read-only."""
    call = ["bwrap", "--unshare-all", "--die-with-parent", "--new-session", "--clearenv", "--proc", "/proc", "--dev", "/dev"]
    for scratch in ("/dev/shm", HOME):  # before the rest: the checkout itself may lie in /tmp
        call += ["--size", str(limits.disk), "--tmpfs", scratch]
    for path in (*SYSTEM, *map(str, _python())):
        call += ["--symlink", os.readlink(path), path] if os.path.islink(path) else ["--ro-bind-try", path, path]
    for path, file in shown.items():
        call += ["--ro-bind", str(file), path]
    call += ["--remount-ro", "/dev", "--remount-ro", "/", "--chdir", HOME]
    for name, value in environment.items():
        call += ["--setenv", name, value]
    return [*call, "--", *argv]


def _python() -> list[Path]:
    """The folders that this Python, its packages and the library lie in; where a link leads to them, the link too."""
    folders = {Path(sys.prefix), Path(sys.base_prefix), Path(find_spec("mlsyslab").origin).parent}
    python = Path(sys.executable)
    while python.is_symlink():
        python = python.parent / python.readlink()
        folders.add(python.parent.parent)
    folders |= {folder.resolve() for folder in folders}
    return sorted(folder for folder in folders if folder != Path("/") and not folder.is_relative_to("/usr"))


@cache
def missing() -> str | None:
    """Why there is no sandbox on this machine, with the remedy; None when there is one."""
    if shutil.which("bwrap") is None:
        return f"there is no sandbox, because bubblewrap isn't installed: {REMEDY}"
    trial = subprocess.run(command(["/usr/bin/env", "true"], {}, {}, Limits()), capture_output=True, text=True, check=False)
    if trial.returncode == 0:
        return None
    why = trial.stderr.strip().splitlines()[-1:] or [f"exit status {trial.returncode}"]
    return (f"bubblewrap can't make a sandbox here ({why[0]}); `python -m mlsyslab.doctor` says what to do, "
            "or pass --unsafe-no-sandbox")


class Process:
    """A process in the sandbox, for a `with` block; at its end the process and all that it started are dead.

    given: its standard input.  shown: files that it can read, by the path where it finds them.  unsafe: no sandbox at all.
    """

    def __init__(self, argv: Sequence[str], given: bytes, limits: Limits, shown: Mapping[str, Path],
                 environment: Mapping[str, str] | None = None, unsafe: bool = False):
        if not unsafe and (why := missing()):
            raise CourseError(why)
        self.given, self.unsafe = given, unsafe
        self.home = tempfile.mkdtemp(prefix="grading-") if unsafe else HOME
        here = {"HOME": self.home, "TMPDIR": self.home, "PATH": "/usr/bin:/bin", "LANG": "C.UTF-8", **(environment or {})}
        call = list(argv) if unsafe else command(argv, shown, here, limits)
        self.process = subprocess.Popen(call, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                        cwd=self.home if unsafe else None, env=here if unsafe else None,
                                        start_new_session=True)

    def __enter__(self) -> Process:
        self.feeder = threading.Thread(target=self._feed, daemon=True)
        self.feeder.start()
        return self

    def _feed(self) -> None:
        try:
            with self.process.stdin as stdin:
                stdin.write(self.given)
        except OSError:  # it has ended already
            pass

    def __exit__(self, *_: object) -> None:
        self._kill()
        self.feeder.join()
        self.process.stdout.close()
        self.process.stderr.close()
        if self.unsafe:
            shutil.rmtree(self.home, ignore_errors=True)

    def _kill(self) -> None:
        """End the sandbox from within: with the first process of its PID namespace all others die, and bwrap reaps it."""
        started = []
        with suppress(psutil.NoSuchProcess):
            started = psutil.Process(self.process.pid).children(recursive=True)
        for child in started:
            with suppress(psutil.NoSuchProcess):
                child.kill()
        if self.unsafe or not started:
            self.process.kill()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        psutil.wait_procs(started, timeout=10)

    def lines(self, seconds: float, most: int, stop: threading.Event | None = None) -> Iterator[bytes]:
        """What it prints, line by line, until it ends.

        seconds: raises Ended after so long.  most: raises Ended after so many bytes.  stop: raises Stopped when it is set.
        """
        deadline, left, begun = time.monotonic() + seconds, most, b""
        with selectors.DefaultSelector() as selector:
            selector.register(self.process.stdout, selectors.EVENT_READ)
            while True:
                if stop is not None and stop.is_set():
                    raise Stopped
                if time.monotonic() > deadline:
                    raise Ended(f"time: it ran longer than {seconds:g} s")
                if not selector.select(timeout=0.2):
                    continue
                block = os.read(self.process.stdout.fileno(), 1 << 16)
                if not block:
                    return
                left -= len(block)
                if left < 0:
                    raise Ended(f"output: more than {most:,} bytes")
                *whole, begun = (begun + block).split(b"\n")
                yield from whole

    def complaint(self) -> str:
        """The last line that it wrote to stderr, once it has ended."""
        lines = self.process.stderr.read(1 << 16).decode(errors="replace").strip().splitlines()
        return lines[-1] if lines else f"exit status {self.process.wait()}"
