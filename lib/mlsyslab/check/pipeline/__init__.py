"""The checks of the lab `pipeline`."""

from mlsyslab.check.pipeline.bubble import InferenceBubble
from mlsyslab.check.pipeline.executor import RunRank
from mlsyslab.check.pipeline.generators import Gpipe, Interleaved, OneFOneB, ZbH1
from mlsyslab.check.pipeline.memory import PeakActivations
from mlsyslab.check.pipeline.split import BackwardInput, BackwardWeights
from mlsyslab.check.pipeline.stages import Partition
from mlsyslab.check.pipeline.versions import PipedreamVersions, VersionsHeld
from mlsyslab.check.withheld import Withheld

WITHHELD = {"mlsyslab.pipeline": Withheld(kept=("mlsyslab.pipeline.schedule",))}

inference_bubble = InferenceBubble()
gpipe = Gpipe()
one_f_one_b = OneFOneB()
peak_activations = PeakActivations()
interleaved = Interleaved()
backward_input = BackwardInput()
backward_weights = BackwardWeights()
zb_h1 = ZbH1()
partition = Partition()
pipedream_versions = PipedreamVersions()
versions_held = VersionsHeld()
run_rank = RunRank()

__all__ = ["backward_input", "backward_weights", "gpipe", "inference_bubble", "interleaved", "one_f_one_b", "partition",
           "peak_activations", "pipedream_versions", "run_rank", "versions_held", "zb_h1"]
