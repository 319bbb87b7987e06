"""What runs inside the sandbox: it starts a Jupyter kernel, runs a notebook's cells in it, and prints one line a cell.

A job comes as JSON on stdin: {"cells": [source, …], "limits": {…}}. Out go lines of JSON, {"begin": i} when a cell begins
and {"end": i, "outputs": […], "limit": null or which} when it is over. A cell that doesn't end is interrupted. One that
can't be interrupted, or that takes the kernel with it, is left out: a new kernel runs the cells before it again and goes on
after it.

Nothing here is trusted: a submission can reach this process, and forge what it prints. It sees no more than the submission.
"""

import json
import resource
import sys
import time
from queue import Empty

from jupyter_client.manager import KernelManager
from nbformat.v4 import new_output, output_from_msg

GRACE = 5.0  # s that a cell has to end after it was interrupted


class Lost(Exception):
    """The kernel has died or listens no more."""


class Outputs(list):
    """The outputs of one cell, up to so many bytes; errors are always kept."""

    def __init__(self, most):
        self.left = most
        self.cut = False

    def add(self, output):
        self.left -= len(json.dumps(output))
        if self.left < 0 and output["output_type"] != "error":
            if not self.cut:
                self.append(new_output("stream", name="stderr", text="[the rest of this cell's output was cut off]\n"))
            self.cut = True
        elif self and output["output_type"] == "stream" and self[-1].get("name") == output["name"]:
            self[-1]["text"] += output["text"]
        else:
            self.append(output)


def problem(name, text):
    return new_output("error", ename=name, evalue=text, traceback=[f"{name}: {text}"])


class Kernel:
    """A Jupyter kernel on sockets in the sandbox's own file system."""

    def __init__(self):
        self.manager = KernelManager(kernel_name="python3", transport="ipc")
        self.manager.start_kernel(extra_arguments=["--HistoryManager.enabled=False"])
        self.client = self.manager.blocking_client()
        self.client.start_channels()
        self.client.wait_for_ready(timeout=120)

    def close(self):
        self.client.stop_channels()
        self.manager.shutdown_kernel(now=True)

    def run(self, source, seconds, outputs):
        """Run one cell; returns whether it had to be interrupted after `seconds`. Raises Lost with the kernel."""
        request = self.client.execute(source, allow_stdin=False, stop_on_error=False)
        if self._collect(request, seconds, outputs):
            late = False
        else:
            late = True
            self.manager.interrupt_kernel()
            if not self._collect(request, GRACE, outputs):
                raise Lost(f"time: it ran longer than {seconds:g} s, and could not be interrupted")
        self._reply(request, outputs)
        return late

    def _collect(self, request, seconds, outputs):
        """Gather what the cell puts out until the kernel is idle again; False when that takes longer than `seconds`."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            try:
                message = self.client.get_iopub_msg(timeout=min(0.5, seconds))
            except Empty:
                if not self.manager.is_alive():
                    raise Lost("the kernel died while it ran") from None
                continue
            if message["parent_header"].get("msg_id") != request:
                continue
            kind, content = message["msg_type"], message["content"]
            if kind == "status" and content["execution_state"] == "idle":
                return True
            if kind in ("stream", "display_data", "execute_result", "error"):
                outputs.add(output_from_msg(message))
            elif kind == "clear_output":
                outputs.clear()
        return False

    def _reply(self, request, outputs):
        """An error that the kernel reports but doesn't show still counts."""
        deadline = time.monotonic() + GRACE
        while time.monotonic() < deadline:
            try:
                message = self.client.get_shell_msg(timeout=0.5)
            except Empty:
                if not self.manager.is_alive():
                    raise Lost("the kernel died while it ran") from None
                continue
            if message["parent_header"].get("msg_id") == request:
                content = message["content"]
                if content["status"] != "ok" and not any(output["output_type"] == "error" for output in outputs):
                    outputs.add(problem(content.get("ename", "Error"), content.get("evalue", content["status"])))
                return
        raise Lost("the kernel did not say how it ended")


def run_notebook(cells, seconds, most):
    kernel, ran = Kernel(), []
    for number, source in enumerate(cells):
        say(begin=number)
        outputs, limit = Outputs(most), None
        try:
            if kernel.run(source, seconds, outputs):
                limit = f"time: it ran longer than {seconds:g} s"
            elif outputs.cut:
                limit = f"output: more than {most:,} bytes"
            ran.append(source)
        except Lost as why:
            limit = str(why)
            kernel.close()
            kernel, ran = again(ran, seconds, most)
        if limit and not limit.startswith("output"):
            outputs.add(problem("Limit", limit))
        say(end=number, outputs=outputs, limit=limit)
    kernel.close()


def again(cells, seconds, most):
    """A new kernel in which `cells` have run; returns it with those of them that did."""
    kernel, ran = Kernel(), []
    for source in cells:
        try:
            kernel.run(source, seconds, Outputs(most))
            ran.append(source)
        except Lost:
            kernel.close()
            kernel = Kernel()
            return again(ran, seconds, most)
    return kernel, ran


def say(**line):
    print(json.dumps(line), flush=True)


def bound(limits):
    for name, most in (("AS", limits["memory"]), ("FSIZE", limits["disk"]), ("NOFILE", limits["files"]),
                       ("NPROC", limits["processes"]), ("CORE", 0)):
        number = getattr(resource, f"RLIMIT_{name}")
        hard = resource.getrlimit(number)[1]
        most = most if hard == resource.RLIM_INFINITY else min(most, hard)
        resource.setrlimit(number, (most, most))


if __name__ == "__main__":
    job = json.load(sys.stdin)
    bound(job["limits"])
    run_notebook(job["cells"], job["limits"]["cell"], job["limits"]["output"])
