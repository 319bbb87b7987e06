"""Pipeline parallelism: schedules as data, checked, simulated and run."""

from mlsyslab.pipeline.memory import peak_activations, weight_versions
from mlsyslab.pipeline.schedule import Action, Schedule
from mlsyslab.pipeline.schedules import best_slicing, names, schedule
from mlsyslab.pipeline.simulate import Timeline, simulate
from mlsyslab.pipeline.validate import InvalidSchedule, Problem, validate

__all__ = ["Action", "InvalidSchedule", "Problem", "Schedule", "Timeline", "best_slicing", "names",
           "peak_activations", "schedule", "simulate", "validate", "weight_versions"]
