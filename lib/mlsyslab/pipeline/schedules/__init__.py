"""One generator a schedule. To add one, write a file with a function under `@register(name)` and import it here."""

from mlsyslab.pipeline.schedules import gpipe, one_f_one_b
from mlsyslab.pipeline.schedules.registry import names, register, schedule

__all__ = ["gpipe", "names", "one_f_one_b", "register", "schedule"]
