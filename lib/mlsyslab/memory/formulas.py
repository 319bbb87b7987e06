"""Activation bytes of a transformer layer as Korthikanti et al. 2022 give them, for 16-bit training on a GPU.

They hold for GPT's own shape (GELU, ffn = 4h, layer norms, attention written out, dropout) and leave out what is small:
biases and the statistics of norms. `activations.saved` counts any shape exactly.
"""

from __future__ import annotations

from mlsyslab.model.config import Config
from mlsyslab.model.flops import RECOMPUTE, tokens_of


def activation_bytes(config: Config, batch: int, sequence: int | None = None, *, recompute: str | None = None,
                     tensor_parallel: int = 1, sequence_parallel: bool = False) -> float:
    """Bytes a layer, on each of t tensor-parallel ranks (Korthikanti et al. 2022, equations 1 to 6, table 2).

        nothing recomputed                    s b h (10 + 24/t + 5 a s/(h t))
        … with sequence parallelism           s b h (34/t + 5 a s/(h t))
        attention's core recomputed           the same without 5 a s/(h t)
        everything recomputed                 2 s b h; with sequence parallelism a t-th of it
    """
    a, b, h, t = config.heads, batch, config.hidden, tensor_parallel
    s = tokens_of(config, batch, sequence)
    _check(config, recompute, t)
    if recompute == "full":
        return 2 * s * b * h / (t if sequence_parallel else 1)
    replicated = 10 / t if sequence_parallel else 10
    weights = 0 if recompute == "selective" else 5 * a * s / (h * t)
    return s * b * h * (replicated + 24 / t + weights)


def _check(config: Config, recompute: str | None, t: int) -> None:
    if config.mlp != "gelu" or config.ffn != 4 * config.hidden or config.norm != "layer" or config.parallel:
        raise ValueError(f"activation_bytes: the formulas hold for GELU, ffn = 4h, layer norms; the model has {config.mlp}, "
                         f"ffn={config.ffn}, {config.norm} norms: count with memory.saved")
    if recompute not in RECOMPUTE:
        raise ValueError(f"activation_bytes(recompute={recompute!r}): recompute is None, 'selective' or 'full'")
    if not isinstance(t, int) or t < 1 or config.heads % t:
        raise ValueError(f"activation_bytes(tensor_parallel={t!r}): heads are shared out evenly, so it divides "
                         f"{config.heads}")
