"""The checks of the lab `zero`."""

from mlsyslab.check.zero.clipping import Clip
from mlsyslab.check.zero.formulas import ElementsSent, StateBytes
from mlsyslab.check.zero.pieces import ShardOf
from mlsyslab.check.zero.stage1 import Zero1
from mlsyslab.check.zero.stage2 import Zero2Backward
from mlsyslab.check.zero.stage3 import Zero3Step

state_bytes = StateBytes()
elements_sent = ElementsSent()
shard_of = ShardOf()
zero1 = Zero1()
zero2_backward = Zero2Backward()
zero3_step = Zero3Step()
clip = Clip()

__all__ = ["clip", "elements_sent", "shard_of", "state_bytes", "zero1", "zero2_backward", "zero3_step"]
