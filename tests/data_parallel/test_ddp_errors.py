"""What DDP says when ranks don't fit together."""

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from mlsyslab import RankFailed, launch, simulate
from mlsyslab.data_parallel import DistributedDataParallel


def build(comm, model):
    DistributedDataParallel(model, comm)


def models(*others):
    return [nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 2)), *others]


@pytest.mark.parametrize(("other", "words"), [
    (nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 5)), r"rank 1 .* here parameter '1.weight', float32 of shape \(5, 4\), "
                                                      r"there parameter '1.weight', float32 of shape \(2, 4\)"),
    (nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 2).double()), r"rank 1 .*'1.weight', float64 .*'1.weight', float32"),
    (nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 2).requires_grad_(False)), r"rank 1 .*'1.weight'.*, frozen"),
    (nn.Sequential(nn.Linear(3, 4)), r"rank 1 .*only rank 0 has parameter '1.weight'"),
    (nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 2), nn.Linear(2, 2)), r"rank 1 .*only rank 1 has parameter '2.weight'"),
    (nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 2), nn.BatchNorm1d(2, affine=False)), "only rank 1 has buffer '2.running"),
])
def test_different_models_are_told_by_parameter_and_rank(other, words):
    with pytest.raises(RankFailed, match=words):
        simulate(build, models(other))


def test_different_models_on_processes():
    with pytest.raises(RankFailed, match=r"rank 2 has another model than rank 0: here parameter '1.weight'"):
        launch(build, models(*models(nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 5)))), backend="gloo")


def test_a_parameter_without_gradient_is_named():
    def run(comm, _):
        model = nn.ModuleDict({"used": nn.Linear(2, 2), "left_out": nn.Linear(2, 2)})
        ddp = DistributedDataParallel(model, comm)
        used = ("used",) if comm.rank == 1 else ("used", "left_out")
        sum(model[name](torch.ones(1, 2)).sum() for name in used).backward()
        return ddp

    with pytest.raises(RankFailed, match=r"rank 1: .*no gradient for left_out.weight, left_out.bias \(2 of 4"):
        simulate(run, [None] * 3)


def test_of_many_parameters_without_gradient_five_are_named():
    def run(comm, _):
        model = nn.Sequential(*(nn.Linear(2, 2) for _ in range(4)))
        ddp = DistributedDataParallel(model, comm)
        ddp.module[0](torch.ones(1, 2)).sum().backward()

    with pytest.raises(RankFailed, match=r"for 1.weight, 1.bias, 2.weight, 2.bias, 3.weight, … \(6 of 8 parameters\)"):
        simulate(run, [None])


class Checkpointed(nn.Module):
    """Two layers whose activations are computed again for backward."""

    def __init__(self, reentrant):
        super().__init__()
        self.first, self.second, self.reentrant = nn.Linear(2, 2), nn.Linear(2, 2), reentrant

    def forward(self, x):
        for layer in (self.first, self.second):
            x = checkpoint(layer, x, use_reentrant=self.reentrant)
        return x


@pytest.mark.parametrize(("unused", "words"), [(False, "rank 0: .*no gradient for first.weight.*unless use_reentrant=False"),
                                               (True, "rank 0: a gradient of second.* came.*use_reentrant=False")])
def test_a_checkpoint_with_a_backward_of_its_own(unused, words):
    def run(comm, reentrant):
        ddp = DistributedDataParallel(Checkpointed(reentrant), comm, find_unused_parameters=unused)
        ddp(torch.ones(1, 2, requires_grad=True)).sum().backward()

    simulate(run, [False])
    with pytest.raises(RankFailed, match=words):
        simulate(run, [True])


def test_a_sparse_gradient_is_named():
    def run(comm, _):
        ddp = DistributedDataParallel(nn.Embedding(5, 2, sparse=True), comm)
        ddp(torch.tensor([1])).sum().backward()

    with pytest.raises(RankFailed, match="gradient of weight is of layout torch.sparse_coo"):
        simulate(run, [None] * 2)


@pytest.mark.parametrize(("options", "words"), [
    ({"algorithm": "star"}, "can be done by"), ({"gradient_dtype": torch.int32}, "floating-point"),
    ({"bucket_bytes": 0}, "both are 1 or more"), ({"first_bucket_bytes": 0}, "both are 1 or more")])
def test_options_that_mean_nothing(options, words):
    with pytest.raises(RankFailed, match=words):
        simulate(lambda comm, _: DistributedDataParallel(nn.Linear(2, 2), comm, **options), [None])


def test_nothing_to_learn():
    with pytest.raises(RankFailed, match="no parameter of this module requires a gradient"):
        simulate(build, [nn.Linear(2, 2).requires_grad_(False)] * 2)


@pytest.mark.parametrize(("rows", "total"), [(-1, 3), (4, 3), (0, 0)])
def test_rows_that_cannot_be(rows, total):
    def run(comm, _):
        DistributedDataParallel(nn.Linear(2, 2), comm).weigh(torch.ones(()), rows, total)

    with pytest.raises(RankFailed, match="rows are 0 or more, and no more than the total"):
        simulate(run, [None])
