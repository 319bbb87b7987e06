"""A GPT in one page: embed, L blocks of attention and MLP, norm, predict the next token."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from mlsyslab.model.attention import Attention, Core, written
from mlsyslab.model.config import Config
from mlsyslab.model.mlp import mlp
from mlsyslab.model.norm import norm

#: run(blocks, x) -> x: how the blocks are carried out; activation checkpointing is another such function
Run = Callable[[Sequence[nn.Module], Tensor], Tensor]


def plain(blocks: Sequence[nn.Module], x: Tensor) -> Tensor:
    """One block after the other."""
    for block in blocks:
        x = block(x)
    return x


class Block(nn.Module):
    """x + A(N x), then x + M(N x); or, in parallel, x + A(N x) + M(N x)."""

    def __init__(self, config: Config, core: Core):
        super().__init__()
        self.config = config
        self.attention, self.mlp = Attention(config, core), mlp(config)
        self.norms = nn.ModuleList(norm(config) for _ in range(config.norms))

    def forward(self, x: Tensor) -> Tensor:
        """x: (B, s, h). Returns (B, s, h)."""
        if self.config.parallel:
            n = self.norms[0](x)
            return x + self._drop(self.attention(n)) + self._drop(self.mlp(n))
        x = x + self._drop(self.attention(self.norms[0](x)))
        return x + self._drop(self.mlp(self.norms[1](x)))

    def _drop(self, x: Tensor) -> Tensor:
        return F.dropout(x, self.config.dropout, self.training)


def cross_entropy(logits: Tensor, targets: Tensor) -> Tensor:
    """Mean over all tokens, computed in 32 bits. logits: (B, s, V); targets: (B, s) of int64."""
    return F.cross_entropy(logits.flatten(0, 1).float(), targets.flatten())


class GPT(nn.Module):
    """A decoder-only transformer of the shape `config`.

    core: how attention is computed, `written` or `fused` or another function of q, k, v, dropout (`attention.py`).
    run:  how the blocks are carried out, `plain` or checkpointed (`mlsyslab.memory.every`).
    Under `with torch.device("meta"):` it takes no memory, however large.
    """

    def __init__(self, config: Config, core: Core = written, run: Run = plain):
        super().__init__()
        self.config, self.run, self.criterion = config, run, cross_entropy
        self.tokens = nn.Embedding(config.vocabulary, config.hidden)
        self.positions = nn.Embedding(config.sequence, config.hidden) if config.position == "learned" else None
        self.blocks = nn.ModuleList(Block(config, core) for _ in range(config.layers))
        self.norm = norm(config)
        self.output = nn.Linear(config.hidden, config.vocabulary, bias=False)
        self._initialize()
        if config.tied:
            self.output.weight = self.tokens.weight

    def forward(self, tokens: Tensor) -> Tensor:
        """tokens: (B, s) of int64. Returns the logits, (B, s, V)."""
        self._check(tokens)
        x = self.tokens(tokens)
        if self.positions is not None:
            x = x + self.positions(torch.arange(tokens.shape[1], device=tokens.device))
        x = F.dropout(x, self.config.dropout, self.training)
        return self.output(self.norm(self.run(self.blocks, x)))

    def loss(self, tokens: Tensor, targets: Tensor) -> Tensor:
        """Mean cross-entropy of predicting targets, nats a token. tokens, targets: (B, s) of int64."""
        return self.criterion(self(tokens), targets)

    def _check(self, tokens: Tensor) -> None:
        if tokens.dim() != 2 or tokens.shape[1] > self.config.sequence:
            raise ValueError(f"GPT: tokens of shape {tuple(tokens.shape)}: give (B, s), s at most {self.config.sequence}")

    def _initialize(self) -> None:
        """Normal(0, 0.02); a branch's last matrix smaller by sqrt(2 L), since 2 L branches add up (Radford et al. 2019)."""
        for name, parameter in self.named_parameters():
            if name.endswith(".bias"):
                nn.init.zeros_(parameter)
            elif parameter.dim() == 2:
                last = name.endswith(("attention.out.weight", "mlp.down.weight"))
                nn.init.normal_(parameter, std=0.02 / math.sqrt(2 * self.config.layers) if last else 0.02)
