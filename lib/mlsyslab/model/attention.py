"""Causal self-attention: each token takes a weighted mean of the values of the tokens up to itself.

What stands between the projections, the core, is a function of queries, keys and values, so it can be exchanged: `written`
says what is computed, `fused` computes the same without ever holding the s x s weights (Dao et al. 2022, FlashAttention).
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from mlsyslab.model.config import Config

#: core(q, k, v, dropout) -> (B, a, s, d); q, k, v: (B, a, s, d)
Core = Callable[[Tensor, Tensor, Tensor, float], Tensor]


def written(q: Tensor, k: Tensor, v: Tensor, dropout: float = 0.0) -> Tensor:
    """softmax(q k^T / sqrt(d) + mask) v, with dropout of the weights (Vaswani et al. 2017, equation 1).

    q, k, v: (B, a, s, d). Returns (B, a, s, d). Holds weights of B a s^2 numbers.
    """
    s, d = q.shape[-2:]
    scores = q @ k.transpose(-2, -1) / math.sqrt(d)
    # adding -inf keeps nothing for backward, where masked_fill would keep its mask
    scores = scores + torch.full((s, s), -math.inf, dtype=q.dtype, device=q.device).triu(1)
    return F.dropout(scores.softmax(-1), dropout) @ v


def fused(q: Tensor, k: Tensor, v: Tensor, dropout: float = 0.0) -> Tensor:
    """The same in one kernel where torch has one for the device, tile by tile."""
    return F.scaled_dot_product_attention(q, k, v, dropout_p=dropout, is_causal=True)


class Attention(nn.Module):
    """Project to queries, keys and values, attend in a heads, project back."""

    def __init__(self, config: Config, core: Core):
        super().__init__()
        self.config, self.core = config, core
        self.qkv = nn.Linear(config.hidden, config.attention_width + 2 * config.kv_width, bias=config.bias)
        self.out = nn.Linear(config.attention_width, config.hidden, bias=config.bias)

    def forward(self, x: Tensor) -> Tensor:
        """x: (B, s, h). Returns (B, s, h)."""
        c = self.config
        q, k, v = self.qkv(x).split([c.attention_width, c.kv_width, c.kv_width], dim=-1)
        q, k, v = (self._heads(part) for part in (q, k, v))
        if c.position == "rotary":
            q, k = rotate(q), rotate(k)
        if c.kv_heads < c.heads:
            k, v = (part.repeat_interleave(c.heads // c.kv_heads, dim=1) for part in (k, v))
        y = self.core(q, k, v, c.dropout if self.training else 0.0)
        return self.out(y.transpose(1, 2).reshape(*x.shape[:2], c.attention_width))

    def _heads(self, part: Tensor) -> Tensor:
        """(B, s, heads d) to (B, heads, s, d), in order in memory."""
        return part.unflatten(-1, (-1, self.config.head_width)).transpose(1, 2).contiguous()


def rotate(x: Tensor, base: float = 10_000.0) -> Tensor:
    """Rotary positions: turn pair i of the token at position t by the angle t base^(-2i/d) (Su et al. 2021, section 3.2.2).

    x: (B, a, s, d), d even; a pair is made of numbers i and i + d/2.
    """
    s, d = x.shape[-2:]
    frequency = base ** (-torch.arange(0, d, 2, device=x.device, dtype=torch.float32) / d)
    angle = torch.arange(s, device=x.device, dtype=torch.float32)[:, None] * frequency
    cos, sin = angle.cos().to(x.dtype), angle.sin().to(x.dtype)
    left, right = x.chunk(2, dim=-1)
    return torch.cat([left * cos - right * sin, right * cos + left * sin], dim=-1)
