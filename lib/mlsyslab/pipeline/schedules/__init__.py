"""One generator a schedule. To add one, write a file with a function under `@register(name)` and import it here."""

from mlsyslab.pipeline.schedules import (  # isort: skip  (in the order in which `names` lists them)
    device_placement,
    inference,
    gpipe,
    one_f_one_b,
    interleaved,
    looped_bfs,
    terapipe,
    chimera,
    zero_bubble,
    zb_v,
    dualpipe,
    ampnet,
    pipemare,
    pipedream,
    pipedream_2bw,
)
from mlsyslab.pipeline.schedules.registry import names, register, schedule
from mlsyslab.pipeline.schedules.terapipe import best_slicing

__all__ = ["ampnet", "best_slicing", "chimera", "device_placement", "dualpipe", "gpipe", "inference", "interleaved",
           "looped_bfs", "names", "one_f_one_b", "pipedream", "pipedream_2bw", "pipemare", "register", "schedule",
           "terapipe", "zb_v", "zero_bubble"]
