"""The checks of the lab `mfu`."""

from mlsyslab.check.mfu.audits import Audit
from mlsyslab.check.mfu.bounds import RooflineOf
from mlsyslab.check.mfu.counts import LinearFlops, Parameters, StepFlops
from mlsyslab.check.mfu.ladders import Ladder
from mlsyslab.check.mfu.logs import LogMfu
from mlsyslab.check.mfu.recomputing import Utilizations
from mlsyslab.check.mfu.timing import ProductSeconds
from mlsyslab.check.withheld import Withheld

#: What holds answers: the topic's package, the model, which can count, and the instruments.
WITHHELD = {"mlsyslab.mfu": Withheld(), "mlsyslab.model": Withheld(), "mlsyslab.measure": Withheld()}

linear_flops = LinearFlops()
parameters = Parameters()
step_flops = StepFlops()
roofline = RooflineOf()
log_mfu = LogMfu()
audit = Audit()
utilizations = Utilizations()
product_seconds = ProductSeconds()
ladder = Ladder()

__all__ = ["audit", "ladder", "linear_flops", "log_mfu", "parameters", "product_seconds", "roofline", "step_flops",
           "utilizations"]
