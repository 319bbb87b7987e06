"""A place to run code that isn't trusted: bubblewrap, with no network and nothing of the course; nothing outlives it.

What takes long is done once: in a sandbox waits a warm process (`inside/zygote.py`) that has loaded the library. For each
submission it forks a child, which goes into namespaces of its own inside those of the sandbox. Where the system doesn't
allow that, a sandbox serves one submission only, and the next one gets a new sandbox.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from autograder.errors import CourseError
from autograder.gpus import Gpu
from autograder.limits import Limits

INSIDE = Path(__file__).with_name("inside")
HOME = "/tmp"
NOBODY = "65534"
#: what root needs to make a sandbox without a user namespace, and to become nobody in it
AS_ROOT = ["--unshare-ipc", "--unshare-pid", "--unshare-net", "--unshare-uts", "--unshare-cgroup-try",
           "--cap-add", "cap_setuid", "--cap-add", "cap_setgid"]
BECOME_NOBODY = ["setpriv", "--reuid", NOBODY, "--regid", NOBODY, "--clear-groups", "--inh-caps=-all"]
SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/etc/ld.so.cache", "/etc/alternatives", "/etc/fonts")
REMEDY = ("install it (Debian, Ubuntu: apt install bubblewrap) or pass --unsafe-no-sandbox, "
          "which runs submissions as you, with all your files in reach")
#: reads, in a sandbox on trial, what all submissions import; to import it takes seconds
TRIAL = """import sys
from importlib.util import find_spec
for path in (sys.argv[1], find_spec("numpy").origin, find_spec("torch").origin):
    open(path).close()
"""
START = 120.0  # s until the warm process has loaded what it needs
END = 10.0  # s until a child that was killed has gone


@dataclass(frozen=True)
class Library:
    """What of mlsyslab a submission finds.

    hidden: folders and files whose place is empty.  kept: files in them that are there after all.
    withheld, kept_modules, asked: the same for its imports; see `inside.library.Finder`.
    """

    hidden: tuple[Path, ...] = ()
    kept: tuple[Path, ...] = ()
    withheld: tuple[str, ...] = ()
    kept_modules: tuple[str, ...] = ()
    asked: Mapping[str, Sequence[str]] | None = None


def command(argv: Sequence[str], environment: Mapping[str, str], limits: Limits, library: Library,
            nobody: bool = False, devices: Sequence[str] = ()) -> list[str]:
    """The bubblewrap call that runs `argv` and shows it only Python, its packages and the library, read-only.

    nobody: let root make the sandbox, and nobody run in it.  devices: device files that may be used, those of a GPU.
    """
    call = ["bwrap", *(AS_ROOT if nobody else ["--unshare-all"]), "--die-with-parent", "--new-session", "--clearenv"]
    call += ["--proc", "/proc", "--dev", "/dev"]
    for scratch in ("/dev/shm", HOME):  # before the rest: the checkout itself may lie in /tmp
        call += ["--perms", "1777", "--size", str(limits.disk), "--tmpfs", scratch]
    shown = [*SYSTEM, *map(str, _python())]
    for folder in sorted({str(parent) for path in (*shown, "/inside/inside") for parent in Path(path).parents[:-1]}):
        call += ["--perms", "0755", "--dir", folder]
    for path in shown:
        call += ["--symlink", os.readlink(path), path] if os.path.islink(path) else ["--ro-bind-try", path, path]
    for path in devices:
        call += ["--dev-bind", path, path]
    if devices:
        call += ["--ro-bind", "/sys", "/sys"]  # where CUDA looks up what its device files stand for
    for path in library.hidden:
        call += ["--tmpfs", str(path)] if path.is_dir() else ["--ro-bind", "/dev/null", str(path)]
    for path in library.kept:
        call += ["--ro-bind", str(path), str(path)]
    for path in library.hidden:
        call += ["--remount-ro", str(path)] if path.is_dir() else []
    call += ["--ro-bind", str(INSIDE), "/inside/inside", "--remount-ro", "/dev", "--remount-ro", "/", "--chdir", HOME]
    for name, value in environment.items():
        call += ["--setenv", name, value]
    return [*call, "--", *(BECOME_NOBODY if nobody else []), *argv]


def _python() -> list[Path]:
    """The folders that this Python, its packages and the library lie in; where a link leads to them, the link too."""
    folders = {Path(sys.prefix), Path(sys.base_prefix), library_folder()}
    python = Path(sys.executable)
    while python.is_symlink():
        python = python.parent / python.readlink()
        folders.add(python.parent.parent)
    folders |= {folder.resolve() for folder in folders}
    return sorted(folder for folder in folders if folder != Path("/") and not folder.is_relative_to("/usr"))


def library_folder() -> Path:
    """Where mlsyslab lies."""
    return Path(find_spec("mlsyslab").origin).parent


@cache
def missing() -> str | None:
    """Why there is no sandbox on this machine, with the remedy; None when there is one."""
    if shutil.which("bwrap") is None:
        return f"there is no sandbox, because bubblewrap isn't installed: {REMEDY}"
    trial = _tried()
    if trial.returncode == 0:
        return None
    why = trial.stderr.strip().splitlines()[-1:] or [f"exit status {trial.returncode}"]
    return (f"bubblewrap can't make a sandbox here ({why[0]}); `python -m mlsyslab.doctor` says what to do, "
            "or pass --unsafe-no-sandbox")


def _tried(nobody: bool = False) -> subprocess.CompletedProcess:
    argv = [sys.executable, "-c", TRIAL, str(library_folder() / "__init__.py")]
    call = command(argv, {"PATH": "/usr/bin:/bin"}, Limits(), Library(), nobody)
    return subprocess.run(call, capture_output=True, text=True, check=False, cwd="/")


@cache
def nobody() -> bool:
    """Whether nobody runs in the sandbox: where root makes it, and others may read the library.

    Linux doesn't hold root to a number of processes, whatever root is called in the sandbox.
    """
    return os.getuid() == 0 and _tried(nobody=True).returncode == 0


class Lost(Exception):
    """The warm process has gone; another one has to be started."""


class Zygote:
    """A warm process in a sandbox, and the child that it has at the time.

    cells: what it runs before the first child, as (file, source).  unsafe: no sandbox at all.  gpu: the only one in reach.
    """

    def __init__(self, limits: Limits, library: Library, cells: Sequence[tuple[str, str]] = (), unsafe: bool = False,
                 gpu: Gpu | None = None):
        if not unsafe and (why := missing()):
            raise CourseError(why)
        self.limits, self.library, self.cells, self.unsafe = limits, library, list(cells), unsafe
        self.process: subprocess.Popen | None = None
        self.gpu = gpu
        self.lost = False  # whether it went while a child was there: nothing is to be believed of that child
        self.nested = gpu is None  # nested ones see no /proc, and CUDA reads there
        self.used = False  # whether there has been a child
        self.count = 0

    def _begin(self) -> None:
        mine, its = socket.socketpair()
        self.home = tempfile.mkdtemp(prefix="grading-") if self.unsafe else HOME
        self.complaints = tempfile.TemporaryFile()  # noqa: SIM115  closed in `close`
        environment = {"HOME": self.home, "TMPDIR": self.home, "PATH": "/usr/bin:/bin", "LANG": "C.UTF-8",
                       "PYTHONHASHSEED": "0", "OMP_NUM_THREADS": "1", "MPLBACKEND": "agg", "NBGRADER_EXECUTION": "autograde"}
        if self.gpu is not None:
            environment["CUDA_VISIBLE_DEVICES"] = str(self.gpu.number) if self.unsafe else "0"
        devices = self.gpu.files if self.gpu else ()
        inside = INSIDE.parent if self.unsafe else Path("/inside")
        argv = [sys.executable, "-P", str(inside / "inside" / "zygote.py"), str(its.fileno())]
        call = argv if self.unsafe else command(argv, environment, self.limits, self.library, nobody(), devices)
        self.process = subprocess.Popen(
            call, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=self.complaints, pass_fds=[its.fileno()],
            cwd=self.home if self.unsafe else "/", env=environment if self.unsafe else None, start_new_session=True)
        its.close()
        self.control, self.begun = mine, b""
        limits = {**asdict(self.limits), "confined": not self.unsafe}
        library = self.library
        self._write(inside=str(inside), library=str(library_folder().parent), cells=self.cells, limits=limits,
                    home=self.home if self.unsafe else None, nested=self.nested and not self.unsafe,
                    withheld=library.withheld, kept=library.kept_modules, asked=dict(library.asked or {}))
        try:
            self.nested = self._read(START)["nested"]
        except Lost as lost:
            self.close()
            raise CourseError(f"the sandbox can't be started: {lost}") from lost

    def _write(self, **message: object) -> None:
        try:
            self.control.sendall(json.dumps(message).encode() + b"\n")
        except OSError as error:
            raise Lost(self._complaint()) from error

    def _read(self, seconds: float) -> dict:
        self.control.settimeout(seconds)
        while b"\n" not in self.begun:
            try:
                block = self.control.recv(1 << 16)
            except OSError as error:
                raise Lost(f"it doesn't answer: {error}") from error
            if not block:
                raise Lost(self._complaint())
            self.begun += block
        line, self.begun = self.begun.split(b"\n", 1)
        return json.loads(line)

    def _complaint(self) -> str:
        """The last line that it wrote to stderr."""
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(END)
        self.complaints.seek(0)
        lines = self.complaints.read(1 << 20).decode(errors="replace").strip().splitlines()
        return lines[-1] if lines else f"exit status {self.process.poll()}"

    def ready(self) -> None:
        """Have the warm process there, a new one where the old one can't serve again."""
        if self.process is not None:
            again = self.nested or self.unsafe or not self.used
            if self.lost or self.process.poll() is not None or not again:
                self.close()
        if self.process is None:
            self._begin()

    def fork(self) -> Child:
        """A new child. There is one at a time."""
        self.ready()
        self.used = True
        self.count += 1
        mine, its = socket.socketpair()
        pipes = [os.pipe(), os.pipe()]
        given = [its.fileno(), *(write for _, write in pipes)]
        try:
            socket.send_fds(self.control, [json.dumps({"start": self.count}).encode() + b"\n"], given)
        except OSError as error:
            raise Lost(self._complaint()) from error
        finally:
            its.close()
            for _, write in pipes:
                os.close(write)
        return Child(self, self.count, mine, *(read for read, _ in pipes))

    def close(self) -> None:
        """End it, and all below it."""
        if self.process is None:
            return
        self.control.close()
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, 9)
        self.process.wait()
        self.process, self.lost, self.used = None, False, False
        self.complaints.close()
        if self.unsafe:
            shutil.rmtree(self.home, ignore_errors=True)


class Child:
    """A child of the warm process, in which one student's code runs.

    pipe: to speak with it.  out, error: what it prints.
    """

    def __init__(self, zygote: Zygote, number: int, pipe: socket.socket, out: int, error: int):
        self.zygote, self.number, self.pipe, self.out, self.error = zygote, number, pipe, out, error
        self.why: str | None = None  # how it ended

    def ended(self, kill: bool = True) -> str:
        """Wait until it has ended, and kill it if that doesn't happen by itself; says how it ended."""
        if self.why is None:
            self.why = self._wait(kill)
            self.pipe.close()
        return self.why

    def _wait(self, kill: bool) -> str:
        try:
            if kill:
                self.zygote._write(kill=self.number)
            return self.zygote._read(END)["why"]
        except Lost as lost:
            if not kill:
                return self._wait(True)
            self.zygote.lost = True
            return f"the sandbox has gone: {lost}"

    def close(self) -> None:
        """End it, and forget what it still had to say."""
        self.ended()
        for file in self.files():
            os.close(file)
        self.out = self.error = -1

    def files(self) -> Iterable[int]:
        return [file for file in (self.out, self.error) if file >= 0]
