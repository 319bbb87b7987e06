"""N ranks with DDP take the steps that one process takes with the whole batch, and send what a ring must send."""

import contextlib
import copy
import gc
import itertools
import weakref

import pytest
import torch
from ddp_models import OPTIMIZERS, Tied, batches, furthest, loss_fn, one_process, values
from torch import nn

from mlsyslab import Link, launch, simulate
from mlsyslab.data_parallel import DistributedDataParallel, bytes_sent, overlap
from mlsyslab.data_parallel.buckets import Bucket

RAGGED = batches([8, 8, 5, 8, 3])  # the third leaves some ranks fewer rows, the last leaves some none
SMALL = {"first_bucket_bytes": 300, "bucket_bytes": 700}


def train(comm, given):
    """What one rank does: steps with its part of each batch, in `pieces`. Returns the parameters after each."""
    model, optimizer, pieces, options = given
    model = copy.deepcopy(model)
    ddp = DistributedDataParallel(model, comm, **options)
    update, steps = OPTIMIZERS[optimizer](ddp.parameters()), []
    for x, y in RAGGED:
        mine = [all.tensor_split(comm.size)[comm.rank].tensor_split(pieces) for all in (x, y)]
        for i, (a, b) in enumerate(zip(*mine, strict=True)):
            with ddp.no_sync() if i < pieces - 1 else contextlib.nullcontext():
                ddp.weigh(loss_fn(ddp(a), b), len(a), total=len(x)).backward()
        update.step()
        update.zero_grad()
        steps.append(values(model))
    return steps


@pytest.mark.parametrize("pieces", [1, 2])
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("p", [1, 2, 3, 4])
def test_ranks_take_the_steps_of_one_process(p, optimizer, pieces):
    """Tied and frozen parameters, ragged batches, ranks without rows; with and without accumulation."""
    theirs = one_process(Tied(), optimizer, RAGGED)
    for ours in simulate(train, [(Tied(), optimizer, pieces, SMALL)] * p).results:
        assert furthest(ours, theirs) < (1e-10,)


def train_all(comm, cases):
    """All cases, on each of the first 1, 2, … ranks."""
    found = {}
    for p in range(1, comm.size + 1):
        group = comm.split(comm.rank < p)
        if comm.rank < p:
            found[p] = [train(group, case) for case in cases]
    return found


def test_processes_take_the_steps_of_one_process():
    cases = [(Tied(), optimizer, pieces, SMALL) for optimizer, pieces in itertools.product(OPTIMIZERS, [1, 2])]
    expected = {optimizer: one_process(Tied(), optimizer, RAGGED) for optimizer in OPTIMIZERS}
    for rank, found in enumerate(launch(train_all, [cases] * 4, backend="gloo").results):
        assert list(found) == list(range(rank + 1, 5))
        for results in found.values():
            for (_, optimizer, _, _), ours in zip(cases, results, strict=True):
                assert furthest(ours, expected[optimizer]) < (1e-10,)


@pytest.mark.parametrize("algorithm", ["mst", "halving", "doubling", "auto"])
def test_any_all_reduce_will_do(algorithm):
    theirs = one_process(Tied(), "SGD", RAGGED)
    for ours in simulate(train, [(Tied(), "SGD", 1, {**SMALL, "algorithm": algorithm})] * 3).results:
        assert furthest(ours, theirs) < (1e-10,)


def test_every_rank_begins_with_the_model_of_rank_0():
    def build(comm, seed):
        torch.manual_seed(seed)
        model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4))
        model[1].running_mean.fill_(seed)
        DistributedDataParallel(model, comm)
        return {**values(model), "mean": model[1].running_mean}

    first, *others = simulate(build, [5, 6, 7]).results
    assert first["mean"].tolist() == [5] * 4
    for other in others:
        assert all(torch.equal(first[name], other[name]) for name in first)


# -- what is sent -----------------------------------------------------------------------------------------------------


def sent_in_a_step(p, model, options, launched=False):
    """Bytes that each rank sends from the second step on, in one step, and the buckets' elements."""
    def run(comm, steps):
        ddp = DistributedDataParallel(copy.deepcopy(model), comm, algorithm="ring", **options)
        x, y = batches([4])[0]
        for _ in range(steps):
            loss_fn(ddp(x), y).backward()
        return [bucket.elements for bucket in ddp.buckets]

    start = (lambda fn, inputs: launch(fn, inputs, backend="gloo")) if launched else simulate
    fewer, more = start(run, [2] * p), start(run, [3] * p)
    return [more.trace.bytes_sent(r) - fewer.trace.bytes_sent(r) for r in range(p)], more.results[0]


@pytest.mark.parametrize("options", [{}, SMALL, {"first_bucket_bytes": 1, "bucket_bytes": 1}])
@pytest.mark.parametrize("p", [1, 2, 3, 4, 5, 8])
def test_a_step_sends_twice_the_model_but_for_one_part(p, options):
    sent, elements = sent_in_a_step(p, Tied(), options)
    M = sum(parameter.numel() for parameter in Tied().parameters() if parameter.requires_grad)
    assert sum(elements) == M
    assert sent == [bytes_sent(elements, 8, p, r) for r in range(p)]
    for of_rank in sent:
        assert abs(of_rank - 8 * 2 * M * (p - 1) / p) <= 8 * 2 * len(elements)
    assert sum(sent) == 8 * 2 * M * (p - 1)


def test_a_long_bucket_goes_in_pieces():
    class Wide(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.ones(5 << 18))  # 5 MiB

        def forward(self, x):
            return (self.weight * (x.flatten()[0] + 1)).sum()

    def run(comm, steps):
        ddp = DistributedDataParallel(Wide(), comm, algorithm="ring", first_bucket_bytes=1 << 30)
        for _ in range(steps):
            ddp.zero_grad()
            ddp(torch.tensor([float(comm.rank)])).backward()
        return ddp.module.weight.grad.unique().tolist()

    fewer, more = simulate(run, [1] * 3), simulate(run, [2] * 3)
    assert more.results == [[2.0]] * 3  # the mean of 1, 2, 3
    for rank in range(3):
        assert more.trace.bytes_sent(rank) - fewer.trace.bytes_sent(rank) == bytes_sent([5 << 18], 4, 3, rank)
        assert more.trace.messages(rank) - fewer.trace.messages(rank) == 4 * 3  # three pieces of 5/3 MiB


def test_processes_send_the_same():
    assert sent_in_a_step(3, Tied(), SMALL, launched=True) == sent_in_a_step(3, Tied(), SMALL)


@pytest.mark.parametrize("p", [2, 3])
def test_gradients_may_travel_in_fewer_bytes(p):
    model = Tied(torch.float32)
    whole, _ = sent_in_a_step(p, model, {})
    half, _ = sent_in_a_step(p, model, {"gradient_dtype": torch.bfloat16})
    assert [2 * sent for sent in half] == whole

    def gradients(comm, dtype):
        ddp = DistributedDataParallel(copy.deepcopy(model), comm, gradient_dtype=dtype)
        x, y = batches([4 * p])[0]
        loss_fn(ddp(x[comm.rank::p]), y[comm.rank::p]).backward()
        return [parameter.grad for parameter in ddp.parameters() if parameter.requires_grad]

    exact, rounded = (simulate(gradients, [dtype] * p).results for dtype in (None, torch.bfloat16))
    for of_rank in rounded:
        for a, b, c in zip(of_rank, rounded[0], exact[0], strict=True):
            assert a.dtype == torch.float32 and torch.equal(a, b)
            assert 0 < (a - c).abs().max() <= p * 2**-8 * c.abs().max()


def test_without_synchronization_nothing_is_sent():
    def run(comm, quiet):
        ddp = DistributedDataParallel(Tied(), comm)
        x, y = batches([4])[0]
        for _ in range(quiet):
            with ddp.no_sync():
                loss_fn(ddp(x), y).backward()
        return ddp.module.embedding.weight.grad

    without, two = simulate(run, [0] * 3), simulate(run, [2] * 3)
    assert two.trace.bytes_sent() == without.trace.bytes_sent()
    assert two.results[0].abs().sum() > 0


def test_when_it_has_gone_the_module_is_as_before():
    """Its memory is free at once, and a backward sends nothing any more, though other ranks don't run one."""
    def run(comm, _):
        model, (x, y) = Tied(), batches([4])[0]
        ddp = DistributedDataParallel(model, comm)
        loss_fn(ddp(x), y).backward()
        flats = [weakref.ref(bucket.flat) for bucket in ddp.buckets]
        gc.disable()
        try:
            del ddp
            model.zero_grad()
            assert [flat() for flat in flats] == [None] * len(flats)
        finally:
            gc.enable()
        if comm.rank == 0:
            loss_fn(model(x), y).backward()
            return torch.equal(model.embedding.weight.grad, one_backward(x, y))
        return model.embedding.weight.grad is None

    def one_backward(x, y):
        model = Tied()
        loss_fn(model(x), y).backward()
        return model.embedding.weight.grad

    assert all(simulate(run, [None] * 3).results)


# -- when it is sent --------------------------------------------------------------------------------------------------


class Layers(nn.Module):
    """Layers of the same size, without biases."""

    def __init__(self, number, width):
        super().__init__()
        self.layers = nn.Sequential(*(nn.Linear(width, width, bias=False) for _ in range(number)))

    def forward(self, x):
        return self.layers(x)


def step_time(p, number, width, seconds, link, bucket_bytes):
    """Virtual seconds of the second step, and the overlap of all."""
    def run(comm, _):
        ddp = DistributedDataParallel(Layers(number, width), comm, first_bucket_bytes=bucket_bytes,
                                      bucket_bytes=bucket_bytes, algorithm="ring", seconds=lambda name, parameter: seconds)
        times = []
        for _ in range(2):
            comm.barrier()
            start = comm.now()
            ddp(torch.ones(2, width)).sum().backward()
            times.append(comm.now() - start)
        return times[1]

    run = simulate(run, [None] * p, link)
    assert run.results == pytest.approx([run.results[0]] * p)
    return run.results[0], overlap(run.trace, 0)


@pytest.mark.parametrize("p", [2, 4])
@pytest.mark.parametrize("number", [1, 3, 6])
def test_buckets_travel_while_backward_goes_on(p, number):
    """With a bucket a layer, the last one's all-reduce is all that is seen of them, or, where they are longer than a layer's
    backward, the first one's backward is all that is seen of backward."""
    width, beta = 12, 1e-6
    comm = 2 * (p - 1) * width * width * 4 / p * beta
    for seconds in (2 * comm, comm / 2):
        time, hidden = step_time(p, number, width, seconds, Link(0, beta), 1)
        assert time == pytest.approx(number * seconds + comm if seconds > comm else seconds + number * comm)
        assert hidden == pytest.approx((number - 1) / number if seconds > comm else (number - 1) * seconds / (number * comm))
        together, none = step_time(p, number, width, seconds, Link(0, beta), 1 << 30)
        assert together == pytest.approx(number * (seconds + comm))
        assert none == 0


def test_overlap_is_in_the_trace_of_processes_too():
    def run(comm, _):
        torch.set_num_threads(1)
        ddp = DistributedDataParallel(Layers(6, 512), comm, first_bucket_bytes=1, bucket_bytes=1)
        for _ in range(3):
            ddp(torch.ones(256, 512)).sum().backward()
        return [bucket.names for bucket in ddp.buckets]

    run = launch(run, [None] * 2, backend="gloo")
    assert overlap(run.trace, 0) > 0
    labels = [e.label for e in run.trace.of(1) if e.kind == "all_reduce"]
    assert labels == [f"bucket {i}" for i in range(6)] * 3  # every rank reduces them in the same order
    computing = [e for e in run.trace.of(1) if e.kind == "compute"]
    assert len(computing) == 6 * 3  # one for each gradient, from where the one before ended
    assert all(before.end <= after.start for before, after in itertools.pairwise(computing))


# -- buffers, unused parameters, memory -------------------------------------------------------------------------------


def test_every_training_forward_begins_with_the_buffers_of_rank_0():
    def run(comm, _):
        torch.manual_seed(comm.rank)
        ddp = DistributedDataParallel(nn.BatchNorm1d(3), comm)
        seen = []
        for _ in range(3):
            ddp(torch.randn(5, 3))
        ddp.eval()
        before = comm.world.trace.messages()
        ddp(torch.randn(5, 3))
        comm.barrier()
        seen.append(comm.world.trace.messages() == before)
        ddp.train()
        hook = ddp.module.register_forward_pre_hook(lambda module, _: seen.append(module.running_mean.clone()))
        ddp(torch.randn(5, 3))
        hook.remove()
        return seen

    (quiet, first), *others = simulate(run, [None] * 3).results
    assert quiet
    for _, mean in others:
        assert torch.equal(mean, first)


class Branches(nn.Module):
    """Rank r uses branch r; one branch nobody does, and one only in an output that no loss uses."""

    def __init__(self, number):
        super().__init__()
        self.branches = nn.ModuleList(nn.Linear(2, 2, bias=False) for _ in range(number + 2))
        self.double()

    def forward(self, x, chosen):
        return self.branches[chosen](x), self.branches[-1](x)


@pytest.mark.parametrize("p", [1, 2, 3])
def test_parameters_may_be_unused(p):
    """Those that some rank uses get their mean gradient everywhere; those that none uses have none, as on one device."""
    x = torch.arange(2.0, dtype=torch.float64).view(1, 2) + 1

    def run(comm, _):
        ddp = DistributedDataParallel(Branches(p), comm, find_unused_parameters=True, first_bucket_bytes=1, bucket_bytes=1)
        for _ in range(2):
            ddp.zero_grad()
            ddp(x, comm.rank)[0].sum().backward()
        return [branch.weight.grad for branch in ddp.module.branches]

    for gradients in simulate(run, [None] * p).results:
        for gradient in gradients[:p]:
            assert torch.allclose(gradient, x.expand(2, 2) / p)
        assert gradients[p] is None and gradients[p + 1] is None


def test_outputs_may_hold_what_nothing_is_learned_from():
    class Telling(nn.Linear):
        def forward(self, x):
            return {"y": super().forward(x), "rows": len(x), "mean": x.mean(), "name": "telling"}

    def run(comm, _):
        ddp = DistributedDataParallel(Telling(2, 1), comm, find_unused_parameters=True)
        ddp(torch.ones(1, 2))["y"].sum().backward()
        return ddp.module.weight.grad.tolist()

    assert simulate(run, [None] * 2).results == [[[1.0, 1.0]]] * 2


def test_what_added_up_before_counts_where_the_last_backward_leaves_it_out():
    x = torch.ones(1, 2, dtype=torch.float64)

    def run(comm, _):
        ddp = DistributedDataParallel(Branches(2), comm, find_unused_parameters=True)
        with ddp.no_sync():
            ddp(x, 0)[0].sum().backward()
        ddp(x, 1)[0].sum().backward()
        return [branch.weight.grad for branch in ddp.module.branches]

    for first, second, *_ in simulate(run, [None] * 2).results:
        assert torch.equal(first, torch.ones_like(first)) and torch.equal(second, torch.ones_like(second))


def test_gradients_need_no_memory_beside_the_buckets():
    def run(comm, _):
        ddp = DistributedDataParallel(Tied(), comm, **SMALL)
        x, y = batches([4])[0]
        for _ in range(3):
            ddp.zero_grad()
            loss_fn(ddp(x), y).backward()
        flats = {bucket.flat.untyped_storage().data_ptr() for bucket in ddp.buckets}
        return all(p.grad.untyped_storage().data_ptr() in flats for p in ddp.parameters() if p.requires_grad)

    assert all(simulate(run, [None] * 2).results)


def test_new_buckets_are_made_when_the_old_ones_are_gone(monkeypatch):
    """When the order of the first backward is known; where no gradient lies in the old ones any more."""
    def run(comm, _):
        ddp, gone = DistributedDataParallel(Crossed(), comm, first_bucket_bytes=1, bucket_bytes=1), []
        x = torch.ones(1, 3)
        ddp(x).sum().backward()
        ddp.zero_grad()
        old = [weakref.ref(bucket.flat) for bucket in ddp.buckets]
        make = Bucket.__init__
        with monkeypatch.context() as patched:
            patched.setattr(Bucket, "__init__", lambda *args: (gone.append([r() is None for r in old]), make(*args))[1])
            ddp(x).sum().backward()
        return gone

    assert simulate(run, [None]).results == [[[True] * 2] * 2]


class Crossed(nn.Module):
    """Registered in another order than used."""

    def __init__(self):
        super().__init__()
        self.last, self.first = (nn.Linear(3, 3, bias=False) for _ in range(2))

    def forward(self, x):
        return self.last(self.first(x))


def test_gradients_that_are_not_cleared_add_up():
    """As in torch: what is there is the same on all ranks, so the mean of old and new is old and mean of new."""
    x, y = batches([6])[0]

    def run(comm, to_none):
        ddp = DistributedDataParallel(Tied(), comm, **SMALL)
        loss_fn(ddp(x), y).backward()
        ddp.zero_grad(set_to_none=to_none)
        for part in (slice(0, 2), slice(2, 6)):
            loss_fn(ddp(x[part][comm.rank::2]), y[part][comm.rank::2]).backward()
        return ddp.module.wide.weight.grad

    model = Tied()
    for part in (slice(0, 2), slice(2, 6)):
        loss_fn(model(x[part]), y[part]).backward()
    for to_none in (True, False):
        for gradient in simulate(run, [to_none] * 2).results:
            assert (gradient - model.wide.weight.grad).abs().max() < 1e-12
