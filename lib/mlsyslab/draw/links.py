"""What an exchange of gradients puts on every link: through servers, and round a ring."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from ipywidgets import VBox

from mlsyslab.collectives import all_reduce
from mlsyslab.comm import Link, Trace, simulate
from mlsyslab.data_parallel import ring_time, server_time, through_servers
from mlsyslab.draw.actions import CSS
from mlsyslab.draw.lines import lines
from mlsyslab.draw.picture import Picture, number
from mlsyslab.draw.widgets import explore


def _loads(way: str, W: int, S: int) -> tuple[Trace, int, int]:
    """A run of one exchange: its trace, how many of its ranks only serve, and the bytes of a gradient."""
    n = 48 * W * S  # bytes: every part is equally long

    def exchange(comm, own):
        if way == "ring":
            all_reduce(comm, own, algorithm="ring")
        else:
            through_servers(comm, own, S if way == "servers" else W, colocated=way == "beside")

    only = S if way == "servers" else 0
    return simulate(exchange, [torch.zeros(n, dtype=torch.int8)] * (only + W), Link(beta=1 / n)).trace, only, n


class Loads(Picture):
    """The bytes that leave and enter every machine in one exchange: bars upwards and downwards, in gradients of n bytes."""

    css = CSS + (".mls path.out{stroke:var(--send-edge);stroke-width:13}.mls path.into{stroke:var(--combine-edge);"
                 "stroke-width:13}")
    HALF, ROW = 40, 122  # px: the highest bar, a row

    def __init__(self, W: int, S: int):
        rows = {f"{S} server{'s' if S > 1 else ''} of their own" if S > 1 else "one server": ("servers", W, S),
                "a server beside each worker": ("beside", W, W), "ring": ("ring", W, 1)}
        runs = {name: _loads(*row) for name, row in rows.items()}
        said = "; ".join(f"{name}: {trace.time:.3g} n beta" for name, (trace, *_) in runs.items())
        super().__init__(660, self.ROW * len(rows) + 24, f"Bytes on every link, {W} workers", said)
        self.most = max(1, W / S)
        for row, (name, (trace, only, n)) in enumerate(runs.items()):
            self._row(name, trace, only, n, row * self.ROW)
        y = self.height - 6
        for x, look, words in ((24, "out", "sent (up)"), (120, "into", "received (down), in gradients of n bytes")):
            self._add("path", look, d=f"M{x} {y - 10}v11")
            self.text(x + 12, y, words, "soft small")

    def _row(self, name: str, trace: Trace, only: int, n: int, top: float) -> None:
        middle = top + 24 + self.HALF
        self.text(4, top + 16, name, "bold")
        self.text(self.width - 4, top + 16, f"takes {trace.time:.3g} nβ", "end")
        step = min(34.0, (self.width - 60) / trace.size)
        out, into = "", ""
        for rank in range(trace.size):
            x = number(24 + step * (rank + 0.5))
            received = sum(e.bytes for e in trace if e.kind == "recv" and e.rank == rank)
            out += f"M{x} {number(middle)}v{number(-self.HALF * trace.bytes_sent(rank) / n / self.most)}"
            into += f"M{x} {number(middle)}v{number(self.HALF * received / n / self.most)}"
        self._add("path", "out", d=out)
        self._add("path", "into", d=into)
        self.line(20, middle, 28 + step * trace.size, middle, "rule")
        if only:
            self.text(24 + step * only / 2, middle + self.HALF + 14, "servers" if only > 1 else "server", "soft small mid")
            self.text(24 + step * (only + (trace.size - only) / 2), middle + self.HALF + 14, "workers", "soft small mid")
        else:
            self.text(24 + step * trace.size / 2, middle + self.HALF + 14, "workers", "soft small mid")


def loads(counts: Sequence[int] = (2, 3, 4, 6, 8, 12, 16), servers: Sequence[int] = (1, 2, 4)) -> VBox:
    """A widget: how many bytes cross every machine's link, through servers and round a ring, as workers grow."""
    if not counts or not servers or min(*counts, *servers) < 1:
        raise ValueError("loads draws one worker and one server, or more")
    return explore(lambda servers, workers: Loads(workers, servers),
                   start={"servers": 1, "workers": 8}, servers=servers, workers=counts)


def server_or_ring(n: float, link: Link, most: int = 64) -> Picture:
    """Seconds of an exchange of n bytes, by the number of workers: through servers, and round a ring."""
    counts = [2**k for k in range(1, int(math.log2(most)) + 1)]
    ways = {"one server": lambda W: server_time(n, W, 1, link), "4 servers": lambda W: server_time(n, W, 4, link),
            "W servers": lambda W: server_time(n, W, W, link), "ring": lambda W: ring_time(n, W, link)}
    return lines({name: [(W, way(W)) for W in counts] for name, way in ways.items()},
                 "One exchange of gradients", "workers W", "seconds", x_log=True, y_log=True, marks=True)
