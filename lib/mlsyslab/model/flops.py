"""Floating-point operations of a GPT, operator by operator.

A product of an m x n and an n x p matrix takes 2 m n p: a multiplication and an addition for each term. Only matrix products
are counted, as everybody does who quotes an MFU; the rest is under one percent and is listed with zero (`operators`).
Backward takes twice forward: each product Y = X W has two of the same size behind it, dX = dY W^T and dW = X^T dY.
The counts are those of `torch.utils.flop_counter.FlopCounterMode` for attention written out, to the last operation.

Causal masking leaves half of the scores unused. Megatron's present code counts half of attention for that; PaLM, nanoGPT and
torchtitan count all of it, and so does `causal=False`, the default, here.
"""

from __future__ import annotations

from dataclasses import dataclass

from mlsyslab.model.config import Config

#: what is computed a second time in backward: nothing, attention's core, or every block
RECOMPUTE = (None, "selective", "full")


@dataclass(frozen=True)
class Operator:
    """One operator of the forward pass.

    times: how often it runs in one forward pass.  flops, bytes: of one run; bytes counts each operand and the result once,
    as if caches were perfect.  core: "matmul" (tensor cores can do it) or "vector".
    """

    name: str
    part: str
    core: str
    times: int
    flops: int
    bytes: int

    @property
    def intensity(self) -> float:
        """FLOPs a byte moved."""
        return self.flops / self.bytes


def matmul_flops(m: int, n: int, p: int) -> int:
    """2 m n p, for an m x n by an n x p matrix."""
    for name, value in (("m", m), ("n", n), ("p", p)):
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            raise ValueError(f"matmul_flops({name}={value!r}): a side of a matrix is a whole number, 1 or more")
    return 2 * m * n * p


def operators(config: Config, batch: int, sequence: int | None = None, *, itemsize: int = 2, attention: str = "written",
              causal: bool = False) -> list[Operator]:
    """The operators of one forward pass, in order.

    batch B; sequence s, the config's when not given; itemsize: bytes a number.
    attention: "written" or "fused"; fused is one operator that never writes its s x s weights to memory.
    causal: count half of attention, which masking makes useless.
    """
    c, s = config, tokens_of(config, batch, sequence)
    tokens, L = batch * s, c.layers

    def linear(name: str, part: str, times: int, n: int, p: int) -> Operator:
        moved = tokens * n + n * p + tokens * p + (p if c.bias and part != "output" else 0)
        return Operator(name, part, "matmul", times, matmul_flops(tokens, n, p), moved * itemsize)

    def vector(name: str, part: str, times: int, flops_a_number: int, numbers: int, moved: int) -> Operator:
        return Operator(name, part, "vector", times, flops_a_number * numbers, moved * itemsize)

    width, wide = tokens * c.hidden, c.ffn * (2 if c.mlp == "swiglu" else 1)
    per_norm = 7 if c.norm == "layer" else 4  # mean, centre, square, mean, scale, gain, bias; or square, mean, scale, gain
    block_norm = vector(f"{c.norm} norm", "block", L * c.norms, per_norm, width, 2 * width)
    activation = {"gelu": vector("gelu", "MLP", L, 8, tokens * c.ffn, 2 * tokens * c.ffn),
                  "swiglu": vector("silu, times", "MLP", L, 6, tokens * c.ffn, 3 * tokens * c.ffn)}[c.mlp]
    return [
        vector("embedding", "embedding", 1, 0, width, 2 * width),
        block_norm,
        linear("queries, keys, values", "attention", L, c.hidden, c.attention_width + 2 * c.kv_width),
        *_attention(c, batch, s, itemsize, attention, causal),
        linear("attention's output", "attention", L, c.attention_width, c.hidden),
        linear("MLP up", "MLP", L, c.hidden, wide),
        activation,
        linear("MLP down", "MLP", L, c.ffn, c.hidden),
        vector("residual sums", "block", 2 * L, 1, width, 3 * width),
        vector(f"last {c.norm} norm", "output", 1, per_norm, width, 2 * width),
        linear("logits", "output", 1, c.hidden, c.vocabulary),
        vector("softmax, cross-entropy", "output", 1, 5, tokens * c.vocabulary, 2 * tokens * c.vocabulary),
    ]


def _attention(c: Config, batch: int, s: int, itemsize: int, attention: str, causal: bool) -> list[Operator]:
    """Attention's core. A head reads s x d queries, keys and values and writes as much; written out, its weights as well."""
    a_d, weights, half = c.attention_width, batch * c.heads * s * s, 2 if causal else 1
    flops = 2 * weights * c.head_width // half  # of scores, and of weighted values
    wide, L = batch * s * a_d, c.layers
    if attention == "fused":
        return [Operator("fused attention", "attention", "matmul", L, 2 * flops, 4 * wide * itemsize)]
    if attention != "written":
        raise ValueError(f"operators(attention={attention!r}): attention is 'written' or 'fused'")
    return [
        Operator("scores", "attention", "matmul", L, flops, (2 * wide + weights) * itemsize),
        Operator("mask, softmax", "attention", "vector", L, 5 * weights, 2 * weights * itemsize),
        Operator("weighted values", "attention", "matmul", L, flops, (weights + 2 * wide) * itemsize),
    ]


def forward_flops(config: Config, batch: int, sequence: int | None = None, *, causal: bool = False) -> int:
    """Matrix products of one forward pass: 24 B L s h^2 + 4 B L s^2 h + 2 B s h V for GPT's own shape."""
    return sum(op.times * op.flops for op in operators(config, batch, sequence, causal=causal) if op.core == "matmul")


def core_flops(config: Config, batch: int, sequence: int | None = None, *, causal: bool = False) -> int:
    """Scores and weighted values of all layers, forward: 4 B L s^2 a d."""
    return sum(op.times * op.flops for op in operators(config, batch, sequence, causal=causal)
               if op.name in ("scores", "weighted values"))


def training_flops(config: Config, batch: int, sequence: int | None = None, *, recompute: str | None = None,
                   causal: bool = False) -> int:
    """Forward and backward, and what is recomputed: 3 forward passes, and once more the core or the blocks.

    recompute: None (model FLOPs, what MFU counts); "selective", attention's core; "full", every block (hardware FLOPs, HFU).
    For GPT's own shape: 72 B L s h^2 (1 + s/6h + V/12Lh); full: 96 B L s h^2 (1 + s/6h + V/16Lh), Narayanan et al. 2021,
    equation 3; selective: 72 B L s h^2 (1 + 2s/9h + V/12Lh).
    """
    if recompute not in RECOMPUTE:
        raise ValueError(f"training_flops(recompute={recompute!r}): recompute is None, 'selective' or 'full'")
    forward = forward_flops(config, batch, sequence, causal=causal)
    if recompute == "full":
        s = tokens_of(config, batch, sequence)
        return 4 * forward - matmul_flops(batch * s, config.hidden, config.vocabulary)
    if recompute == "selective":
        return 3 * forward + core_flops(config, batch, sequence, causal=causal)
    return 3 * forward


def flops_per_token(config: Config, sequence: int | None = None, *, causal: bool = False) -> float:
    """Model FLOPs of training, a token."""
    return training_flops(config, 1, sequence, causal=causal) / tokens_of(config, 1, sequence)


def palm_flops_per_token(parameters: float, config: Config, sequence: int | None = None) -> float:
    """6 N + 12 L H Q T, with N parameters, L layers, H heads of width Q, T tokens (Chowdhery et al. 2022, appendix B)."""
    return 6 * parameters + 12 * config.layers * config.heads * config.head_width * tokens_of(config, 1, sequence)


def tokens_of(config: Config, batch: int, sequence: int | None) -> int:
    """The sequence's length: as given, or the config's; refused if the model can't take it, or the batch is none."""
    s = config.sequence if sequence is None else sequence
    for name, value in (("batch", batch), ("sequence", s)):
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            raise ValueError(f"{name}={value!r}: {name} is a whole number, 1 or more")
    if s > config.sequence:
        raise ValueError(f"sequence={s}: the model takes at most {config.sequence} tokens")
    return s
