"""The peak of a whole step is the one that the formula predicts: what torch.cuda counts on a GPU, all tensors on a CPU."""

from functools import partial
from types import SimpleNamespace

import pytest
import torch
from torch import nn

from mlsyslab import collectives, simulate, zero
from mlsyslab.check.live import Live
from mlsyslab.collectives import ring

LAYERS, RANKS = 12, 4
gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="torch.cuda has no GPU whose memory it could count")


def predicted(stage, width):
    """Model states by the formula, and what is on its way beside them, in layers of 2 bytes a parameter.

    Stage 1: the gradient that autograd has just made. Stage 2: that, and a bucket. Stage 3: that, the unit in use and the
    one ahead. (Without overlap: a bucket, or a unit's gradient, is reduced before the next is there.)
    """
    return zero.memory(LAYERS * width**2, RANKS, stage).total + {1: 1, 2: 2, 3: 3}[stage] * 2 * width**2


def train(comm, given):
    """Two steps on this rank's device, watched by `peak_of`."""
    stage, width, device, peak_of = given
    with peak_of() as peak:
        model = nn.Sequential(*(nn.Linear(width, width, bias=False, dtype=torch.bfloat16, device=device)
                                for _ in range(LAYERS)))
        adam = partial(torch.optim.Adam, lr=1e-3, fused=True)
        engine = zero.shard(comm, model, adam, stage, bucket_bytes=1, overlap=False)
        peak.reset()
        for _ in range(2):
            engine.backward(engine(torch.ones(1, width, dtype=torch.bfloat16, device=device)).float().square().mean())
            engine.step()
        return peak.bytes


class OnCpu:
    """Every tensor that is made on this thread."""

    def __enter__(self):
        self.live = Live()
        self.live.__enter__()
        return self

    def __exit__(self, *error):
        self.live.__exit__(*error)

    def reset(self):
        self.live.peak = 0

    @property
    def bytes(self):
        return self.live.peak


class OnGpu:
    """What torch.cuda has given out, at most."""

    def __enter__(self):
        self.before = torch.cuda.memory_allocated()
        return self

    def __exit__(self, *error):
        pass

    def reset(self):
        torch.cuda.reset_peak_memory_stats()

    @property
    def bytes(self):
        return torch.cuda.max_memory_allocated() - self.before


class Unwatched(OnGpu):
    def __enter__(self):
        return self

    def reset(self):
        pass

    bytes = 0


@pytest.mark.parametrize("stage", [1, 2, 3])
def test_the_peak_of_all_tensors_is_within_5_percent_of_the_prediction(stage):
    for peak in simulate(train, [(stage, 128, "cpu", OnCpu)] * RANKS).results:
        assert peak == pytest.approx(predicted(stage, 128), rel=0.05)


@gpu
@pytest.mark.parametrize("stage", [1, 2, 3])
def test_the_peak_on_a_gpu_is_within_5_percent_of_the_prediction(stage, monkeypatch):
    """Rank 0 is on the GPU, the others on the CPU, so that the GPU holds what one rank of four holds."""
    def by_the_cpu(collective):
        def run(comm, parts, *op):
            there = [part.cpu() for part in parts]
            collective(comm, there, *op)
            for part, found in zip(parts, there, strict=True):
                part.copy_(found)
        return run

    monkeypatch.setattr("mlsyslab.zero.engine.ring", SimpleNamespace(
        reduce_scatter=by_the_cpu(ring.reduce_scatter), all_gather=by_the_cpu(ring.all_gather)))
    monkeypatch.setattr("mlsyslab.zero.engine.broadcast", lambda comm, tensor: collectives.broadcast(comm, tensor.cpu()))
    places = [("cuda", OnGpu)] + [("cpu", Unwatched)] * (RANKS - 1)
    peak, *_ = simulate(train, [(stage, 1024, *place) for place in places]).results
    assert peak == pytest.approx(predicted(stage, 1024), rel=0.05)


@gpu
def test_offload_takes_the_optimizers_state_off_the_gpu():
    def offloaded(comm, _):
        model = nn.Linear(64, 64, dtype=torch.bfloat16, device="cuda")
        engine = zero.shard(comm, model, torch.optim.Adam, 2, offload=True)
        engine.backward(engine(torch.ones(1, 64, dtype=torch.bfloat16, device="cuda")).float().mean())
        engine.step()
        return {t.device.type for t in engine.own.tensors()}, zero.live(engine)

    for devices, live in simulate(offloaded, [None] * 2).results:
        assert devices == {"cpu"}
        assert live.optimizer == 0 and live.offloaded > 0
