"""Model FLOPs utilization: from arithmetic intensity to the share of a machine that training uses. (The topic `mfu`.)

This package is what chapter and lab import. Counting FLOPs lives with the model (`mlsyslab.model.flops`) and the instruments
live in `mlsyslab.measure`, because other topics need them too; what is here is what these two are put together for:

    roofline(operator, device)              attainable FLOP/s of an operator, and what bounds it (`roofline.py`)
    rooflines(config, batch, device)        the same for each operator of a GPT: which are MFU-friendly; `ridge`, `ceiling`
    generations()                           V100 to B200: peak dense and sparse, bandwidth, ridge (`generations.py`)
    factors(config, batch, seconds, peak)   every factor of an MFU, from shape and time to the fraction (`factors.py`)
    CLAIMS, claim(name)                     published utilizations with configuration, time and source (`claims.py`)
    rungs(…), sizes(…), Training(…)         the ladder that `python -m mlsyslab.bench mfu` climbs (`ladder.py`)
    Climb(), its measure(size, rung)        that ladder climbed, on the device at hand (`climb.py`)
    recorded()                              what was measured on real GPUs, from book/measured/ (`recorded.py`)

and, passed on from below: operators, forward_flops, training_flops (`mlsyslab.model`), mfu, utilization, device, peak
(`mlsyslab.measure`).
"""

from mlsyslab.measure import device, mfu, peak, utilization
from mlsyslab.mfu.claims import CLAIMS, NARAYANAN, TRAINING_TIMES, Claim, claim
from mlsyslab.mfu.climb import Climb, Limits
from mlsyslab.mfu.factors import Factors, factors
from mlsyslab.mfu.generations import GENERATIONS, Generation, generations
from mlsyslab.mfu.ladder import Rung, Size, Training, rungs, sizes
from mlsyslab.mfu.recorded import record_path, recorded, top
from mlsyslab.mfu.roofline import Roofline, ceiling, ridge, roofline, rooflines
from mlsyslab.model import flops_per_token, forward_flops, matmul_flops, operators, training_flops

__all__ = ["CLAIMS", "GENERATIONS", "NARAYANAN", "TRAINING_TIMES", "Claim", "Climb", "Factors", "Generation", "Limits",
           "Roofline", "Rung", "Size", "Training", "ceiling", "claim", "device", "factors", "flops_per_token",
           "forward_flops", "generations", "matmul_flops", "mfu", "operators", "peak", "record_path", "recorded", "ridge",
           "roofline", "rooflines", "rungs", "sizes", "top", "training_flops", "utilization"]
