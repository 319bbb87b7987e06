"""What a process runs beside its rank: `Communicator.start` between processes.

On a CPU it is a thread that takes up one task after another. On a GPU it is a stream of work: a function runs at once,
what it asks of the GPU is queued there behind what its rank had asked until then, and goes on beside what the rank asks
later.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from mlsyslab.comm.communicator import Communicator


class ThreadBeside:
    """One thread beside the rank's own.

    thread: its number for the system, None before it has had a task.
    waits: whether the rank's own thread waits for it.
    """

    def __init__(self):
        self.pool = ThreadPoolExecutor(1, "beside", initializer=self._begin, initargs=(torch.get_num_threads(),))
        self.open: dict[ThreadTask, None] = {}  # started and not yet waited for
        self.last: Future | None = None
        self.thread: int | None = None
        self.waits = False

    def _begin(self, threads: int) -> None:
        self.thread = threading.get_ident()
        torch.set_num_threads(threads)

    @property
    def busy(self) -> bool:
        """Whether a task runs or waits for its turn."""
        return self.last is not None and not self.last.done()

    def start(self, fn: Callable[..., Any], side: Communicator, args: tuple) -> ThreadTask:
        self.last = self.pool.submit(fn, side, *args)
        task = ThreadTask(self, self.last)
        self.open[task] = None
        return task

    def end(self) -> None:
        """See everything through that was started."""
        for task in list(self.open):
            task.wait()


class ThreadTask:
    """A function that runs on the thread beside its rank; also the `Task` the rank gets back."""

    def __init__(self, beside: ThreadBeside, future: Future):
        self.beside, self.future = beside, future

    def wait(self) -> Any:
        self.beside.open.pop(self, None)
        self.beside.waits = True
        try:
            return self.future.result()
        finally:
            self.beside.waits = False


class StreamBeside:
    """One stream of work of the GPU beside the rank's own."""

    busy = waits = False
    thread = None

    def __init__(self, device: torch.device):
        self.stream = torch.cuda.Stream(device)

    def start(self, fn: Callable[..., Any], side: Communicator, args: tuple) -> StreamTask:
        return StreamTask(self.stream, fn, side, args)

    def end(self) -> None:
        torch.cuda.current_stream().wait_stream(self.stream)


class StreamTask:
    """What a function asked of the GPU on the side stream; also the `Task` the rank gets back."""

    def __init__(self, stream: torch.cuda.Stream, fn: Callable[..., Any], side: Communicator, args: tuple):
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            self.result = fn(side, *args)
            self.done = stream.record_event()
        for tensor in _tensors(args):  # the allocator must not give their memory away while the stream reads it
            tensor.record_stream(stream)

    def wait(self) -> Any:
        here = torch.cuda.current_stream()
        here.wait_event(self.done)
        for tensor in _tensors(self.result):
            tensor.record_stream(here)
        return self.result


def _tensors(value: Any) -> Iterator[torch.Tensor]:
    """The GPU's tensors among what a function takes or returns."""
    if isinstance(value, torch.Tensor):
        if value.is_cuda:
            yield value
    elif isinstance(value, (list, tuple)):
        for part in value:
            yield from _tensors(part)
