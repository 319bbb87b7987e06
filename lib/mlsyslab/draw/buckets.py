"""All-reduces beside the backward pass, by the size of buckets."""

from __future__ import annotations

from functools import cache

import torch
from ipywidgets import VBox

from mlsyslab.comm import Link, Trace, simulate
from mlsyslab.data_parallel import DistributedDataParallel
from mlsyslab.draw.clocks import Cell, Group, Lane, Lanes
from mlsyslab.draw.timeline import unit_of
from mlsyslab.draw.widgets import explore


@cache
def _backward(bucket: int, layers: int, width: int, link: Link, seconds: float, p: int = 4) -> Trace:
    """One backward of a chain of linear layers under DDP, `seconds` for each layer's gradients."""
    def rank(comm, _):
        torch.manual_seed(0)
        module = torch.nn.Sequential(*(torch.nn.Linear(width, width, bias=False) for _ in range(layers)))
        ddp = DistributedDataParallel(module, comm, first_bucket_bytes=bucket, bucket_bytes=bucket,
                                      seconds=lambda name, parameter: seconds)
        begin = comm.now()  # after rank 0's weights have been given to all
        ddp(torch.ones(1, width)).sum().backward()
        return begin

    run = simulate(rank, [None] * p, link)
    begin, kinds = max(run.results), ("compute", "all_reduce")
    return Trace([e._replace(start=e.start - begin, end=e.end - begin) for e in run.trace
                  if e.rank == 0 and e.kind in kinds and e.start >= begin], size=1)


def _hands(name: str, trace: Trace) -> Group:
    """What rank 0 computes, and what it reduces."""
    cells = {"compute": [], "all_reduce": []}
    for event in trace.of(0):
        words = event.label.split()[-1].removesuffix(".weight")
        cells[event.kind].append(Cell(event.start, event.end, words, "B" if event.kind == "compute" else "I"))
    end = max(cell.end for row in cells.values() for cell in row)
    backward = cells["compute"][-1].end
    unit, unit_name = unit_of(end)
    number = len(cells["all_reduce"])
    facts = (f"{number} all-reduce{'s' if number > 1 else ''}; {end / unit:.3g} {unit_name}, of which "
             f"{(end - backward) / unit:.3g} {unit_name} after backward")
    return Group(name, facts, [Lane("backward", cells["compute"]), Lane("all-reduce", cells["all_reduce"])], end)


def overlaps(layers: int = 16, width: int = 64) -> VBox:
    """A widget: one backward under DDP, by the size of buckets and the speed of links, on the simulated clock.

    A layer has width x width parameters, which stand for as many MiB as are named.
    """
    bytes_of_layer = 4 * width**2
    networks = {"fast links": (1e-3, 2.0), "links of medium speed": (1e-3, 8.0), "slow links": (1e-3, 16.0)}
    sizes = {f"{k * 4} MiB": k for k in (1, 2, 3, 4, 8, 16) if k <= layers}

    def trace(links: str, bucket: int) -> Trace:
        alpha, milliseconds = networks[links]  # of a message; to send a layer
        link = Link(alpha / 6, milliseconds * 1e-3 / 1.5 / bytes_of_layer)
        return _backward(bucket * bytes_of_layer, layers, width, link, 10e-3)

    until = {links: max(max(event.end for event in trace(links, bucket)) for bucket in sizes.values()) for links in networks}
    return explore(lambda links, bucket: Lanes([_hands("rank 0 of 4", trace(links, bucket))], "Buckets", until=until[links]),
                   menus=("links",), start={"links": "links of medium speed", "bucket": 2},
                   links=list(networks), bucket=sizes)
