"""How many parameters a GPT has, part by part; exact."""

from __future__ import annotations

from mlsyslab.model.config import Config


def parameter_table(config: Config) -> dict[str, int]:
    """Parameters of each part of the model, all layers together; what is shared (tied) counts once."""
    c = config
    h, a_d, kv, L = c.hidden, c.attention_width, c.kv_width, c.layers
    wide = 2 * c.ffn if c.mlp == "swiglu" else c.ffn
    norm = 2 * h if c.norm == "layer" and c.bias else h
    bias = int(c.bias)
    return {
        "tokens": c.vocabulary * h,
        "positions": c.sequence * h if c.position == "learned" else 0,
        "queries, keys, values": L * (h + bias) * (a_d + 2 * kv),
        "attention's output": L * (a_d + bias) * h,
        "MLP": L * ((h + bias) * wide + (c.ffn + bias) * h),
        "norms": (L * c.norms + 1) * norm,
        "output": 0 if c.tied else c.vocabulary * h,
    }


def parameters(config: Config) -> int:
    """All parameters. For GPT's own shape 12 L h^2 (1 + 13/12h + (V+s)/12Lh) + 2h: Narayanan et al. 2021, equation 2, and
    the last norm, which that leaves out."""
    return sum(parameter_table(config).values())


def narayanan_parameters(config: Config) -> float:
    """P = 12 L h^2 (1 + 13/12h + (V+s)/12Lh), as printed (Narayanan et al. 2021, equation 2)."""
    L, h, V, s = config.layers, config.hidden, config.vocabulary, config.sequence
    return 12 * L * h**2 * (1 + 13 / (12 * h) + (V + s) / (12 * L * h))
