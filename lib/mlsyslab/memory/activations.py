"""What this library's GPT keeps for backward: every tensor, with its exact size.

An operator keeps what its derivative needs: a product both factors, a GELU its input, a softmax its output, dropout its
mask, a sum nothing. Tensors that two operators keep count once. Weights are kept too, but they are there anyway.
For GPT's own shape in 16 bits this comes to s b h (36 + 6 a s/h) a layer on a CPU, where a dropout mask has the type of what
it masks, and to Korthikanti's s b h (34 + 5 a s/h) on a GPU, where a mask takes one byte; add the norms' statistics.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from mlsyslab.model.config import Config
from mlsyslab.model.flops import RECOMPUTE, tokens_of


@dataclass(frozen=True)
class Kept:
    """A tensor that backward needs: who keeps it, in which part of the model, bytes, and how many there are of it."""

    name: str
    part: str
    bytes: int
    times: int = 1


def saved(config: Config, batch: int, sequence: int | None = None, *, dtype: torch.dtype = torch.float32,
          core: str = "written", recompute: str | None = None, device: str = "cpu") -> list[Kept]:
    """Everything that one forward pass with its loss leaves for backward (`measured.model_saved_bytes` measures the same).

    batch B, sequence s (the config's when not given), dtype of weights and activations; core: "written" or "fused";
    recompute: None, "selective" (attention's core is computed again) or "full" (every block is: `checkpoint.every(1)`);
    device: "cpu" or "cuda", for the type of dropout masks and of a norm's statistics.
    """
    _check(config, dtype, core, recompute, device)
    s = tokens_of(config, batch, sequence)
    count = _Count(config, batch, s, dtype, core, device)
    blocks = count.block_input() if recompute == "full" else count.block(recompute == "selective")
    return [kept for kept in [*count.embedding(), *blocks, *count.output()] if kept.bytes]


def saved_total(kept: list[Kept]) -> int:
    """Bytes of all of it."""
    return sum(tensor.bytes * tensor.times for tensor in kept)


class _Count:
    """The sizes that all parts share, and a method a part of the model. Letters as in the paper: n = B s tokens."""

    def __init__(self, config: Config, batch: int, s: int, dtype: torch.dtype, core: str, device: str):
        self.c, self.core, self.B, self.s, self.n = config, core, batch, s, batch * s
        self.item = dtype.itemsize
        self.device = device
        self.mask = (1 if device == "cuda" else self.item) if config.dropout else 0
        self.statistic = 4 if device == "cuda" else self.item
        self.wide = self.n * config.hidden * self.item

    def embedding(self) -> list[Kept]:
        positions = 8 * self.s if self.c.position == "learned" else 0
        return [Kept("position numbers", "embedding", positions),
                Kept("dropout mask", "embedding", self.n * self.c.hidden * self.mask)]

    def block_input(self) -> list[Kept]:
        return [Kept("block's input", "block", self.wide, self.c.layers)]

    def block(self, selective: bool) -> list[Kept]:
        c, L = self.c, self.c.layers
        branch_mask = Kept("dropout mask of a branch", "block", self.n * c.hidden * self.mask, 2 * L)
        return [*self._norm("block", L * c.norms), *self._attention(selective), *self._mlp(), branch_mask]

    def _norm(self, part: str, times: int) -> list[Kept]:
        """Input and statistics; the output is kept by the product that reads it."""
        kept = [Kept("norm's input", part, self.wide, times), Kept("norm's output", part, self.wide, times)]
        if self.c.norm == "layer":
            return [*kept, Kept("mean, 1/deviation", part, 2 * self.n * self.statistic, times)]
        return [*kept, Kept("normalized", part, self.wide, times),
                Kept("1/root of the mean square", part, self.n * self.item, times)]

    def _attention(self, selective: bool) -> list[Kept]:
        c, L = self.c, self.c.layers
        heads = self.n * c.attention_width * self.item
        weights = self.B * c.heads * self.s**2
        kept = [Kept("queries", "attention", heads, L), Kept("keys", "attention", heads, L),
                Kept("values", "attention", heads, L), Kept("attention's result", "attention", heads, L)]
        if c.position == "rotary":
            kept.append(Kept("cosines and sines", "attention", self.s * c.head_width * self.item, 2 * L))
        if self.core == "fused":
            copied = heads if self.device == "cpu" and c.heads > 1 and not selective else 0  # its kernel keeps heads apart
            return [*kept, Kept("attention's result, a head at a time", "core", copied, L),
                    Kept("log of the sum of exponentials", "core", 0 if selective else 4 * self.n * c.heads, L)]
        if selective:
            return kept
        return [*kept, Kept("softmax", "core", weights * self.item, L),
                Kept("dropout mask of the weights", "core", weights * self.mask, L),
                Kept("weights after dropout", "core", weights * self.item if c.dropout else 0, L)]

    def _mlp(self) -> list[Kept]:
        wide, L = self.n * self.c.ffn * self.item, self.c.layers
        if self.c.mlp == "gelu":
            return [Kept("gelu's input", "MLP", wide, L), Kept("gelu's output", "MLP", wide, L)]
        return [Kept("gate and up", "MLP", 2 * wide, L), Kept("silu's output", "MLP", wide, L),
                Kept("product", "MLP", wide, L)]

    def output(self) -> list[Kept]:
        logits = Kept("log-softmax, in 32 bits", "output", 4 * self.n * self.c.vocabulary)
        return [*self._norm("output", 1), logits]


def _check(config: Config, dtype: torch.dtype, core: str, recompute: str | None, device: str) -> None:
    if not isinstance(dtype, torch.dtype) or not dtype.is_floating_point or dtype.itemsize > 4:
        raise ValueError(f"saved(dtype={dtype!r}): activations are torch.float32, torch.bfloat16 or torch.float16")
    if core not in ("written", "fused"):
        raise ValueError(f"saved(core={core!r}): core is 'written' or 'fused'")
    if recompute not in RECOMPUTE:
        raise ValueError(f"saved(recompute={recompute!r}): recompute is None, 'selective' or 'full'")
    if device not in ("cpu", "cuda"):
        raise ValueError(f"saved(device={device!r}): device is 'cpu' or 'cuda'")
    if core == "fused" and device == "cpu" and config.dropout:
        raise ValueError("saved(core='fused', device='cpu'): with dropout, torch has no fused attention on a CPU; "
                         "set dropout=0, or count for device='cuda'")
