"""The warm process: it has loaded what takes long, and forks one child for each submission.

Its job comes over the socket whose number is its argument, as JSON lines; so do the files of each child. Here no
student's code ever runs, and it watches over those in which it does.
"""

from __future__ import annotations

import gc
import json
import os
import select
import shutil
import signal
import socket
import sys
import time
import traceback
from contextlib import suppress
from typing import Any

TICK = 0.1  # s between two looks at what a child uses
SELDOM = 100_000  # objects more than there were before, until a child looks for garbage

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import confine  # noqa: E402  the only neighbour that is needed before the job has come

del sys.path[0]


class Control:
    """Lines of JSON to and from the grader; files come with them."""

    def __init__(self):
        self.socket = socket.socket(fileno=int(sys.argv[1]))
        self.begun = b""
        self.files: list[int] = []
        self.home: str | None = None  # the folder of what runs here, where it is this process that has to remove it

    def read(self) -> dict[str, Any]:
        while b"\n" not in self.begun:
            block, files, _, _ = socket.recv_fds(self.socket, 1 << 16, 8)
            self.files += files
            if not block:
                self.leave()
            self.begun += block
        line, self.begun = self.begun.split(b"\n", 1)
        return json.loads(line)

    def leave(self) -> None:
        """The grader has gone, however it ended."""
        kill_below()
        if self.home is not None:
            shutil.rmtree(self.home, ignore_errors=True)
        os._exit(0)

    def write(self, **message: Any) -> None:
        self.socket.sendall(json.dumps(message).encode() + b"\n")


def main() -> None:
    control = Control()
    job = control.read()
    control.home = job["home"]
    warm = Warm(job)
    confine.adopt()
    nested = job["nested"] and confine.able()
    control.write(ready=True, nested=nested)
    while True:
        order = control.read()
        if "start" in order:
            files, control.files = control.files[:3], control.files[3:]
            watch(control, order, fork(control, warm, files, job["limits"], nested), job["limits"])


def fork(control: Control, warm: Warm, files: list[int], limits: dict[str, Any], nested: bool) -> int:
    """A child that runs a student's code and speaks over `files`: the pipe to the judge, stdout and stderr."""
    child = os.fork()
    if child:
        for number in files:
            os.close(number)
        return child
    try:
        pipe, out, error = files
        confine.close_all_but(0, 1, 2, *files)
        with open("/proc/self/oom_score_adj", "w") as file:
            file.write("1000")
        if nested:
            confine.enclose(limits, files)
        else:
            confine.die_with_parent()
            os.setsid()
        confine.become(out, error)
        if limits["confined"]:
            confine.bound(limits)
            confine.renounce()
        warm.serve(socket.socket(fileno=pipe))
        os._exit(0)
    except BaseException:
        traceback.print_exc()
        sys.stderr.flush()
        os._exit(70)


def watch(control: Control, order: dict[str, Any], child: int, limits: dict[str, Any]) -> None:
    """Wait until the child has ended, and end it when that is asked for or it takes too much; say how it ended."""
    why, end = "", os.pidfd_open(child)
    while True:
        ready = select.select([control.socket, end], [], [], TICK)[0]
        if control.socket in ready or b"\n" in control.begun:
            asked = control.read()
            if asked.get("kill") == order["start"]:
                os.kill(child, signal.SIGKILL)
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            break
        if not ready and not why and (why := too_much(limits)):
            os.kill(child, signal.SIGKILL)
    os.close(end)
    kill_below()
    control.write(ended=order["start"], why=why or said(status))


def too_much(limits: dict[str, Any]) -> str:
    """Which limit all processes of the child together go beyond; "" when none."""
    memory = threads = 0
    for pid in below():
        try:
            with open(f"/proc/{pid}/statm") as file:
                _, resident, shared, *_ = map(int, file.read().split())
            memory += (resident - shared) * os.sysconf("SC_PAGE_SIZE")
            threads += len(os.listdir(f"/proc/{pid}/task"))
        except OSError:  # it has ended
            continue
    if memory > limits["memory"]:
        return f"memory: more than {limits['memory'] >> 20:,} MiB"
    if threads > limits["processes"]:
        return f"processes: more than {limits['processes']:,} processes and threads"
    return ""


def below() -> list[int]:
    """All processes that descend from this one; those whose parents have ended do so too (see `adopt`)."""
    parents = {}
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{name}/stat") as file:
                parents[int(name)] = int(file.read().rpartition(")")[2].split()[1])
        except OSError:  # it has ended
            continue
    found, new = [], {os.getpid()}
    while new:
        new = {pid for pid, parent in parents.items() if parent in new}
        found += new
    return found


def kill_below() -> None:
    """Nothing that a child has started outlives it."""
    while left := below():
        for pid in left:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        with suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        time.sleep(0.002)


def said(status: int) -> str:
    """How a child ended, in words."""
    code = os.waitstatus_to_exitcode(status)
    number = -code if code < 0 else code - 128 if code > 128 else 0
    if number == signal.SIGXCPU:
        return "time: it used up its processor time"
    if number:
        try:
            return f"it was ended by {signal.Signals(number).name}"
        except ValueError:
            return f"it was ended by signal {number}"
    return f"it ended itself (exit status {code})"


class Warm:
    """What every child begins with: the library, a shell, and the cells that come before the first exercise."""

    def __init__(self, job: dict[str, Any]):
        sys.path.insert(0, job["library"])
        sys.path.append(job["inside"])  # last: nothing there stands for a module of Python's
        gc.disable()  # what is loaded is no garbage, and to look for some takes a sixth of the time
        import torch
        from inside.library import Finder
        from inside.line import Line
        from inside.notebook import Notebook
        from inside.ranks import Locals
        from inside.wire import Coder

        torch.set_num_threads(1)
        torch.zeros(1).half().float()  # what converts 16-bit numbers looks into /proc/cpuinfo, which a child doesn't see
        self.locals = Locals()
        self.line = Line(Silent(), Coder())
        sys.meta_path.insert(0, Finder(self.line, job["withheld"], job["kept"], job["asked"]))
        from inside.serve import Server  # with what is left of the checks
        from inside.vocabulary import coder

        self.line.coder = coder()

        sys.path.remove(job["inside"])
        self.server = Server
        self.notebook = Notebook(self.line)
        for file, source in job["cells"]:
            self.notebook.run(source, file)
        sys.stdout.flush()
        gc.freeze()  # the collector of a child leaves alone what is there now, so its pages stay shared,
        gc.set_threshold(SELDOM, 10, 10)  # and doesn't look through the rest after every run
        gc.enable()

    def serve(self, pipe: socket.socket) -> None:
        self.line.pipe = pipe
        self.server(self.line, self.notebook, self.locals).run()


class Silent:
    """In place of the pipe, as long as there is none: what the first cells show is shown to nobody."""

    def sendall(self, _: bytes) -> None:
        pass


if __name__ == "__main__":
    main()
