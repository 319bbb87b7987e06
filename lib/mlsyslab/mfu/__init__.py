"""Model FLOPs utilization: from arithmetic intensity to the share of a machine that training uses. (The topic `mfu`.)

This package is what chapter and lab import. Counting FLOPs lives with the model (`mlsyslab.model.flops`) and the instruments
live in `mlsyslab.measure`, because other topics need them too; what is here is what these two are put together for:

    roofline(flops, bytes, device, dtype)   attainable FLOP/s of an operator, and what bounds it (`roofline.py`)
    rooflines(config, batch, device, …)     the same for each operator of a GPT: which are MFU-friendly
    factors(config, …)                      every factor of an MFU, from shape and time to the fraction (`factors.py`)
    CLAIMS, claim(name)                     published utilizations with configuration, time and source (`claims.py`)
    GENERATIONS                             V100 to B200: peak, bandwidth, what intensity they ask for (`generations.py`)
    ladder(device, …)                       the rungs that `python -m mlsyslab.bench mfu` climbs (`ladder.py`)
    recorded()                              what was measured on real GPUs, from book/measured/ (`recorded.py`)

and, passed on from below: operators, forward_flops, training_flops (`mlsyslab.model`), mfu, utilization, device, peak
(`mlsyslab.measure`).
"""
