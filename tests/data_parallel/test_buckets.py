"""Which gradients go together."""

import random

import pytest
import torch
from torch import nn
from torch.distributed import _compute_bucket_assignment_by_size

from mlsyslab import simulate
from mlsyslab.data_parallel import DistributedDataParallel, assign
from mlsyslab.data_parallel.buckets import pieces

MIB = 1 << 20


def test_the_first_bucket_is_small_and_each_ends_when_it_has_its_bytes():
    assert assign([MIB // 2] * 4 + [5 * MIB] * 7) == [[0, 1], [2, 3, 4, 5, 6, 7, 8], [9, 10]]
    assert assign([30 * MIB, 1, 30 * MIB, 1]) == [[0], [1, 2], [3]]
    assert assign([]) == []


@pytest.mark.parametrize("seed", range(20))
def test_as_torch_assigns(seed):
    draw = random.Random(seed)
    dtypes = [torch.float32, torch.float64][:draw.choice([1, 2])]
    tensors = [torch.empty(draw.randint(1, 4000), dtype=draw.choice(dtypes)) for _ in range(draw.randint(1, 40))]
    first, others = draw.randint(1, 8000), draw.randint(1, 40000)
    theirs, _ = _compute_bucket_assignment_by_size(tensors, [first, others])
    assert assign([t.nbytes for t in tensors], first, others, [t.dtype for t in tensors]) == [list(b) for b in theirs]


@pytest.mark.parametrize("p", [1, 2, 3, 4, 7, 64])
def test_a_ranks_part_of_a_piece_is_about_half_a_mib(p):
    by_lot = [random.Random(f"{p} {i}").randrange(1, 200 * MIB) for i in range(200)]
    for nbytes in [0, 4, p * MIB // 2, 4_198_400, 29_388_800, *by_lot]:
        count = pieces(nbytes, p)
        assert count == 1 or abs(nbytes / count / p - MIB / 2) <= MIB / 4 / count, nbytes
    assert [pieces(p * part, p) for part in (MIB // 4, MIB // 2, MIB - 1, 5 * MIB)] == [1, 1, 2, 10]


def test_buckets_follow_the_order_of_use_and_not_of_registration():
    class Crossed(nn.Module):
        def __init__(self):
            super().__init__()
            self.last, self.first, self.middle = (nn.Linear(2, 2, bias=False) for _ in range(3))

        def forward(self, x):
            return self.last(self.middle(self.first(x)))

    def run(comm, _):
        ddp = DistributedDataParallel(Crossed(), comm, first_bucket_bytes=1, bucket_bytes=1)
        names = []
        for _ in range(3):
            ddp(torch.ones(1, 2)).sum().backward()
            names.append([bucket.names[0] for bucket in ddp.buckets])
        return names

    for first, second, third in simulate(run, [None] * 2).results:
        assert first == ["middle.weight", "first.weight", "last.weight"]  # a guess, until there was a backward
        assert second == third == ["last.weight", "middle.weight", "first.weight"]


def test_a_bucket_is_of_one_dtype():
    def run(comm, _):
        model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2).double(), nn.Linear(2, 2))
        ddp = DistributedDataParallel(model, comm)
        x = torch.full((1, 2), comm.rank + 1.0)
        model[2](model[1](model[0](x).double()).float()).sum().backward()
        return [(bucket.dtype, len(bucket.names)) for bucket in ddp.buckets], model[2].bias.grad, repr(ddp.buckets)

    for buckets, gradient, text in simulate(run, [None] * 2).results:
        assert text == "[Bucket(0: 4 gradients, 48 bytes), Bucket(1: 2 gradients, 48 bytes)]"
        assert sorted(buckets, key=str) == [(torch.float32, 4), (torch.float64, 2)]
        assert gradient.tolist() == [1, 1]
