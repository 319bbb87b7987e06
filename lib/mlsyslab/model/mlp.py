"""The MLP of a layer: each token's vector, by itself, through a wider layer and back."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor, nn

from mlsyslab.model.config import Config


class MLP(nn.Module):
    """down(gelu(up(x))): two matrices."""

    def __init__(self, config: Config):
        super().__init__()
        self.up = nn.Linear(config.hidden, config.ffn, bias=config.bias)
        self.down = nn.Linear(config.ffn, config.hidden, bias=config.bias)

    def forward(self, x: Tensor) -> Tensor:
        return self.down(F.gelu(self.up(x)))


class SwiGLU(nn.Module):
    """down(silu(gate(x)) * up(x)): three matrices, of which gate and up are one product (Shazeer 2020, equation 6)."""

    def __init__(self, config: Config):
        super().__init__()
        self.up = nn.Linear(config.hidden, 2 * config.ffn, bias=config.bias)
        self.down = nn.Linear(config.ffn, config.hidden, bias=config.bias)

    def forward(self, x: Tensor) -> Tensor:
        gate, up = self.up(x).chunk(2, dim=-1)
        return self.down(F.silu(gate) * up)


def mlp(config: Config) -> nn.Module:
    """The MLP that `config` names."""
    return SwiGLU(config) if config.mlp == "swiglu" else MLP(config)
