"""Pipeline parallelism: schedules as data, checked, simulated and run."""

from mlsyslab.pipeline.schedule import Action, Schedule
from mlsyslab.pipeline.schedules import names, schedule

__all__ = ["Action", "Schedule", "names", "schedule"]
