"""The checks of the lab `memory`."""

from mlsyslab.check.memory.counts import ActivationBytes, BestSpacing, Parameters
from mlsyslab.check.memory.lifetimes import Held
from mlsyslab.check.memory.parts import Accumulated
from mlsyslab.check.memory.recomputing import Checkpointed
from mlsyslab.check.memory.scaling import ScaledStep
from mlsyslab.check.memory.states import StateBytes
from mlsyslab.check.withheld import Withheld

#: What holds answers: the topic's package, and the model, which can count its parameters.
WITHHELD = {"mlsyslab.memory": Withheld(), "mlsyslab.model": Withheld()}

parameters = Parameters()
state_bytes = StateBytes()
activation_bytes = ActivationBytes()
held = Held()
best_spacing = BestSpacing()
checkpointed = Checkpointed()
accumulated = Accumulated()
scaled_step = ScaledStep()

__all__ = ["accumulated", "activation_bytes", "best_spacing", "checkpointed", "held", "parameters", "scaled_step",
           "state_bytes"]
