"""Pipeline parallelism: schedules as data, checked, simulated and run."""

from mlsyslab.pipeline.asynchronous import PipeMare, Training, train
from mlsyslab.pipeline.execute import Executor, Step, execute
from mlsyslab.pipeline.memory import peak_activations, weight_versions
from mlsyslab.pipeline.partition import partition
from mlsyslab.pipeline.schedule import Action, Schedule
from mlsyslab.pipeline.schedules import best_slicing, names, schedule
from mlsyslab.pipeline.simulate import Timeline, replay, simulate
from mlsyslab.pipeline.validate import InvalidSchedule, Problem, validate

__all__ = ["Action", "Executor", "InvalidSchedule", "PipeMare", "Problem", "Schedule", "Step", "Timeline", "Training",
           "best_slicing", "execute", "names", "partition", "peak_activations", "replay", "schedule", "simulate", "train",
           "validate", "weight_versions"]
