"""Misuse is told in one message: what was given, what is allowed, what to do."""

import pytest
import torch
from torch import nn
from zero_models import OPTIMIZERS

from mlsyslab import RankFailed, simulate, zero
from mlsyslab.zero.clip import clip_grad_norm

SGD = OPTIMIZERS["SGD"]


def told(give, words, error=ValueError):
    with pytest.raises(RankFailed) as failure:
        simulate(lambda comm, _: give(comm), [None] * 2)
    assert isinstance(failure.value.__cause__, error)
    assert words in str(failure.value.__cause__)


def engine(comm, stage=1, **options):
    return zero.shard(comm, nn.Linear(3, 2), SGD, stage, **options)


@pytest.mark.parametrize("give, words", [
    (lambda comm: engine(comm, 4), "ZeRO has stages 1"), (lambda comm: engine(comm, 0), "ZeRO has stages 1"),
    (lambda comm: engine(comm, bucket_bytes=0), "bucket_bytes=0"),
    (lambda comm: engine(comm, 3, prefetch=-1), "prefetch=-1"),
    (lambda comm: engine(comm, 3, units=[nn.Linear(1, 1)]), "no module of the model"),
    (lambda comm: engine(comm, 2, units=[]), "units are what stage 3 gathers"),
    (lambda comm: zero.shard(comm, nn.Linear(2, 2).requires_grad_(False), SGD, 1), "nothing to train"),
    (lambda comm: zero.shard(comm, nn.Linear(2, 2), lambda p: torch.optim.LBFGS(p), 1), "LBFGS"),
    (lambda comm: clip_grad_norm(comm, [torch.ones(1)], 0), "max_norm=0"),
    (lambda comm: engine(comm).backward(torch.ones(2)), "shape (2,)")])
def test_values(give, words):
    told(give, words)


def test_an_optimizer_that_is_none():
    told(lambda comm: zero.shard(comm, nn.Linear(2, 2), lambda p: p, 1), "it has to make a torch optimizer", TypeError)


def test_a_unit_that_gives_no_tensor():
    class Odd(nn.Linear):
        def forward(self, x):
            return lambda: super().forward(x)

    told(lambda comm: zero.shard(comm, nn.Sequential(Odd(2, 2)), SGD, 3)(torch.ones(1, 2)), "0 gives function", TypeError)


@pytest.mark.parametrize("stage", [1, 2, 3])
def test_a_step_without_gradients(stage):
    told(lambda comm: engine(comm, stage).step(), "call backward(loss) first", RuntimeError)

    def twice(comm):
        zeros = engine(comm, stage)
        zeros.backward(zeros(torch.ones(1, 3)).sum())
        zeros.step()
        zeros.step()

    told(twice, "call backward(loss) first", RuntimeError)


def test_a_microbatch_after_the_last():
    def more(comm):
        zeros = engine(comm, 1)
        for _ in range(2):
            zeros.backward(zeros(torch.ones(1, 3)).sum())

    told(more, "pass last=False", RuntimeError)


def test_gradients_can_be_forgotten():
    """A step that is not made, because its loss overflowed, say, leaves nothing behind."""
    def skip(comm, stage):
        torch.manual_seed(0)
        zeros = engine(comm, stage)
        zeros.backward(zeros(torch.full((1, 3), torch.inf)).sum())
        zeros.zero_grad()
        zeros.backward(zeros(torch.ones(1, 3)).sum())
        zeros.step()
        with zeros.whole():
            return [p.detach().clone() for p in zeros.model.parameters()]

    for stage in (1, 2, 3):
        for parameters in simulate(skip, [stage] * 2).results:
            assert all(p.isfinite().all() for p in parameters)


@pytest.mark.parametrize("give, words", [
    (lambda: zero.memory(1, 0, 1), "ranks=0"), (lambda: zero.memory(1, 2, 5), "stage=5"),
    (lambda: zero.memory(-1, 2, 1), "-1"), (lambda: zero.traffic(1, 0, 1), "ranks=0"),
    (lambda: zero.traffic(1, 2, 1, 0), "accumulate=0")])
def test_formulas(give, words):
    with pytest.raises(ValueError, match=words):
        give()
