"""One readable GPT, and what can be said of it before it runs: its parameters and its floating-point operations.

The model (`gpt.py`, `attention.py`, `mlp.py`, `norm.py`), its shape (`config.py`), shapes that were published
(`published.py`), and two counts that are exact: `parameters.py` and `flops.py`. What the counts are used for has rooms of its own:
`mlsyslab.memory` (does it fit?) and `mlsyslab.mfu` (how well is the machine used?).

    config = Config(layers=2, hidden=64, heads=4, vocabulary=96, sequence=32)
    model = GPT(config)                        # or GPT(config, attention=fused), or on the meta device for a trillion parameters
    model.loss(tokens, targets).backward()     # tokens, targets: (B, s) of int64
    parameters(config)                         # exact, by formula
    forward_flops(config, batch=8)             # exact, as torch.utils.flop_counter.FlopCounterMode counts
    training_flops(config, batch=8, recompute="full")
    operators(config, batch=8)                 # every operator with its FLOPs, bytes, intensity
    published("gpt3-175b").config

Letters: B sequences in a batch, s tokens a sequence, h hidden width, a heads, L layers, V vocabulary.
"""
