"""A ladder of ways to train the same model faster on one device, each rung with one thing changed.

`python -m mlsyslab.bench mfu` climbs it. A rung says what it is; `Training` makes a step of it that can be timed.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from mlsyslab.measure.matmul import tf32
from mlsyslab.memory.checkpoint import every
from mlsyslab.memory.lifetime import training
from mlsyslab.model.attention import fused, written
from mlsyslab.model.config import Config
from mlsyslab.model.flops import training_flops
from mlsyslab.model.gpt import GPT, plain


@dataclass(frozen=True)
class Rung:
    """How a step is computed.

    precision: of the products, "fp32", "tf32" or "bf16".  weights: "fp32" or "bf16"; 32-bit weights with bf16 products mean
    autocast.  attention: "written" or "fused".  larger: how many times the first rung's batch.
    compiled: blocks and loss through torch.compile.  fused_optimizer: AdamW in one kernel.
    checkpointed: every block.  graph: the whole step as one CUDA graph.
    """

    name: str
    precision: str = "fp32"
    weights: str = "fp32"
    attention: str = "written"
    larger: int = 1
    compiled: bool = False
    fused_optimizer: bool = False
    checkpointed: bool = False
    graph: bool = False

    @property
    def autocast(self) -> bool:
        return self.precision == "bf16" and self.weights == "fp32"


def rungs(on_gpu: bool, larger: int = 4, fast_bf16: bool = True) -> list[Rung]:
    """From the plainest to the fastest. Without a GPU there are no TF32, no CUDA graphs, and compiling takes too long.

    fast_bf16: whether the device computes faster in bf16, as GPUs since 2020 and a few processors do; if not, the rungs
    above the two in bf16 go on from fp32.
    """
    fp32 = Rung("fp32")
    autocast = Rung("bf16 autocast", precision="bf16")
    weights = replace(autocast, name="bf16 weights", weights="bf16")
    attention = replace(weights if fast_bf16 else fp32, name="fused attention", attention="fused")
    batch = replace(attention, name="larger batch", larger=larger)
    if not on_gpu:
        optimizer = replace(batch, name="fused optimizer", fused_optimizer=True)
        return [fp32, autocast, weights, attention, batch, optimizer, _checkpointed(optimizer)]
    compiled = replace(batch, name="torch.compile", compiled=True)
    optimizer = replace(compiled, name="fused optimizer", fused_optimizer=True)
    graph = replace(optimizer, name="CUDA graph", graph=True)
    return [fp32, Rung("TF32", precision="tf32"), autocast, weights, attention, batch, compiled, optimizer,
            _checkpointed(optimizer), graph]


def _checkpointed(rung: Rung) -> Rung:
    return replace(rung, name="checkpointing", checkpointed=True)


@dataclass(frozen=True)
class Size:
    """A model to climb with, and the first rung's batch."""

    name: str
    config: Config
    batch: int


#: heads are 128 wide and the vocabulary is a multiple of 64, as matrix units like it
GPU_SIZES = (Size("2.6B", Config(32, 2560, 20, 50_304, 2048), 2), Size("1.3B", Config(24, 2048, 16, 50_304, 2048), 2),
             Size("760M", Config(24, 1536, 12, 50_304, 2048), 4), Size("350M", Config(24, 1024, 8, 50_304, 1024), 8),
             Size("124M", Config(12, 768, 6, 50_304, 1024), 8), Size("30M", Config(6, 384, 3, 50_304, 512), 8))
CPU_SIZES = (Size("0.9M", Config(4, 128, 4, 1024, 128), 2), Size("0.4M", Config(3, 96, 4, 1024, 64), 2),
             Size("0.2M", Config(2, 64, 2, 1024, 64), 2))


def sizes(memory: float | None = None) -> list[Size]:
    """Three models, the largest first: on a GPU of so many bytes the largest whose first rung fits by prediction, and every
    second smaller one; without one (None) small ones for a CPU."""
    if memory is None:
        return list(CPU_SIZES)
    fit = [size for size in GPU_SIZES if training(size.config, size.batch, device="cuda").peak < 0.9 * memory]
    return fit[::2][:3]


class Training:
    """A model, its optimizer and a batch, set up as a rung says; call it for a step.

    Tokens are random and stay the same: what is timed doesn't depend on them.
    """

    def __init__(self, size: Size, rung: Rung, device: str):
        self.size, self.rung, self.device = size, rung, torch.device(device)
        self.batch = size.batch * rung.larger
        torch.manual_seed(0)
        self.tokens, self.targets = self._random_tokens(), self._random_tokens()
        self.model = self._model()
        on_gpu = self.device.type == "cuda"
        # without fused=True torch takes its own default: all parameters in a few kernels on a GPU, a loop on a CPU
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-4, fused=rung.fused_optimizer or None,
                                           capturable=rung.graph and on_gpu)
        self.loss: Tensor | None = None
        self._step: Callable[[], None] = self._captured() if rung.graph else self._eager

    @property
    def flops(self) -> int:
        """Model FLOPs of a step."""
        return training_flops(self.size.config, self.batch)

    @property
    def hardware_flops(self) -> int:
        """With what is recomputed."""
        return training_flops(self.size.config, self.batch, recompute="full" if self.rung.checkpointed else None)

    def __call__(self) -> None:
        """One step: forward, backward, update."""
        with tf32(self.rung.precision == "tf32"):
            self._step()

    def _random_tokens(self) -> Tensor:
        c = self.size.config
        return torch.randint(c.vocabulary, (self.batch, c.sequence), device=self.device)

    def _model(self) -> GPT:
        rung = self.rung
        with self.device:
            model = GPT(self.size.config, core={"written": written, "fused": fused}[rung.attention],
                        run=every(1) if rung.checkpointed else plain)
        if rung.weights == "bf16":
            model = model.to(torch.bfloat16)
        if rung.compiled:
            for block in model.blocks:
                block.compile()
            model.criterion = torch.compile(model.criterion)
        return model

    def _eager(self) -> None:
        autocast = torch.autocast(self.device.type, torch.bfloat16) if self.rung.autocast else nullcontext()
        self.optimizer.zero_grad()
        with autocast:
            loss = self.model.loss(self.tokens, self.targets)
        loss.backward()
        self.optimizer.step()
        self.loss = loss.detach()

    def _captured(self) -> Callable[[], None]:
        """Record one step's kernels, after warming up on a stream of its own; to replay it costs one launch."""
        beside = torch.cuda.Stream()
        beside.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(beside):
            for _ in range(3):
                self._eager()
        torch.cuda.current_stream().wait_stream(beside)
        torch.cuda.synchronize()
        torch.cuda.empty_cache()
        self.optimizer.zero_grad()  # so that the gradients come to lie in the graph's own memory
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            self._eager()
        self._graph = graph
        return graph.replay
