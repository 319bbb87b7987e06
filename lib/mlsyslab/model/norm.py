"""Normalization: each token's vector brought to a fixed size before attention and before the MLP."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from mlsyslab.model.config import Config


class RMSNorm(nn.Module):
    """x / sqrt(mean(x^2)) times a learned gain: no mean taken off, no bias (Zhang and Sennrich 2019, equation 4)."""

    def __init__(self, width: int, eps: float = 1e-5):
        super().__init__()
        self.weight, self.eps = nn.Parameter(torch.ones(width)), eps

    def forward(self, x: Tensor) -> Tensor:
        """x: (B, s, h), any leading shape."""
        return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + self.eps) * self.weight


def norm(config: Config) -> nn.Module:
    """One norm over the hidden width."""
    return RMSNorm(config.hidden) if config.norm == "rms" else nn.LayerNorm(config.hidden, bias=config.bias)
