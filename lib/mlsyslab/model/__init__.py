"""One readable GPT, and what can be said of it before it runs: its parameters and its floating-point operations.

The model (`gpt.py`, `attention.py`, `mlp.py`, `norm.py`), its shape (`config.py`), shapes that were published
(`published.py`), and two counts that are exact: `parameters.py` and `flops.py`. What the counts are used for has rooms of
its own: `mlsyslab.memory` (does it fit?) and `mlsyslab.mfu` (how well is the machine used?).

    config = Config(layers=2, hidden=64, heads=4, vocabulary=96, sequence=32)
    model = GPT(config)                        # or GPT(config, core=fused), or on the meta device for a trillion parameters
    model.loss(tokens, targets).backward()     # tokens, targets: (B, s) of int64
    parameters(config)                         # exact, by formula
    forward_flops(config, batch=8)             # exact, as torch.utils.flop_counter.FlopCounterMode counts
    training_flops(config, batch=8, recompute="full")
    operators(config, batch=8)                 # every operator with its FLOPs, bytes, intensity
    published("gpt3-175b").config

Letters: B sequences in a batch, s tokens a sequence, h hidden width, a heads, L layers, V vocabulary.
"""

from mlsyslab.model.attention import fused, written
from mlsyslab.model.config import Config
from mlsyslab.model.flops import (
    RECOMPUTE,
    Operator,
    core_flops,
    flops_per_token,
    forward_flops,
    matmul_flops,
    operators,
    palm_flops_per_token,
    training_flops,
)
from mlsyslab.model.gpt import GPT, plain
from mlsyslab.model.parameters import narayanan_parameters, parameter_table, parameters
from mlsyslab.model.published import PUBLISHED, Published, published

__all__ = ["GPT", "PUBLISHED", "RECOMPUTE", "Config", "Operator", "Published", "core_flops", "flops_per_token",
           "forward_flops", "fused", "matmul_flops", "narayanan_parameters", "operators", "palm_flops_per_token",
           "parameter_table", "parameters", "plain", "published", "training_flops", "written"]
