"""One generator a schedule. To add one, write a file with a function under `@register(name)` and import it here."""

from mlsyslab.pipeline.schedules import (  # noqa: F401  (in the order in which `names` lists them)
    device_placement,
    inference,
    gpipe,
    one_f_one_b,
    interleaved,
    looped_bfs,
    chimera,
    zero_bubble,
    zb_v,
    dualpipe,
)
from mlsyslab.pipeline.schedules.registry import names, register, schedule

__all__ = ["names", "register", "schedule"]
