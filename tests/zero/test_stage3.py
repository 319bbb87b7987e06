"""Stage 3's hooks: gathered before it is used, freed after it, in models that make this hard."""

from functools import partial
from itertools import pairwise

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from mlsyslab import Link, launch, simulate, zero

SGD = partial(torch.optim.SGD, lr=0.1)
WIDTH = 6


def layer(width=WIDTH):
    return nn.Linear(width, width, dtype=torch.float64)


def seeded(make):
    torch.manual_seed(3)
    return make()


def x_of(rank=0, rows=2):
    return torch.randn(rows, WIDTH, dtype=torch.float64, generator=torch.Generator().manual_seed(rank))


def steps(comm, given):
    """Two steps of a model, each of a list of forwards whose losses are added; returns all parameters, whole."""
    make, forwards, units = given
    model = seeded(make)
    engine = zero.shard(comm, model, SGD, 3, units=units(model) if units else None)
    for _ in range(2):
        losses = [engine(x_of(comm.rank + 10 * k)).square().mean() for k in range(forwards)]
        engine.backward(sum(losses))
        engine.step()
    assert not any(engine._is_open(unit) for unit in engine.units)
    with engine.whole():
        return [p.detach().clone() for p in model.parameters()]


def expected(make, forwards, ranks):
    model = seeded(make)
    optimizer = SGD(model.parameters())
    for _ in range(2):
        optimizer.zero_grad()
        for rank in range(ranks):
            (sum(model(x_of(rank + 10 * k)).square().mean() for k in range(forwards)) / ranks).backward()
        optimizer.step()
    return [p.detach() for p in model.parameters()]


class Recurrent(nn.Module):
    """One unit that is run three times."""

    def __init__(self):
        super().__init__()
        self.cell, self.out = layer(), layer()

    def forward(self, x):
        for _ in range(3):
            x = torch.tanh(self.cell(x))
        return self.out(x)


class Recomputing(nn.Module):
    """Units whose forward is run again in backward."""

    def __init__(self):
        super().__init__()
        self.a, self.b, self.c = layer(), layer(), layer()

    def forward(self, x):
        for unit in (self.a, self.b, self.c):
            x = checkpoint(lambda x, unit=unit: torch.tanh(unit(x)), x, use_reentrant=False)
        return x


class Branches(nn.Module):
    """Two ways from one layer, that meet; a dict and a tuple between units; a parameter of the model itself."""

    class Pair(nn.Module):
        def __init__(self):
            super().__init__()
            self.left, self.right = layer(), layer()

        def forward(self, x):
            return {"left": self.left(x), "right": (self.right(x), 3)}

    def __init__(self):
        super().__init__()
        self.pair, self.last = self.Pair(), layer()
        self.scale = nn.Parameter(torch.full((1,), 2.0, dtype=torch.float64))

    def forward(self, x):
        both = self.pair(x)
        return self.scale * self.last(both["left"] * both["right"][0])


class Tied(nn.Module):
    """The same parameter in two units."""

    def __init__(self):
        super().__init__()
        self.a, self.b, self.c = layer(), layer(), layer()
        self.c.weight = self.a.weight

    def forward(self, x):
        return self.c(torch.relu(self.b(torch.relu(self.a(x)))))


@pytest.mark.parametrize("make, forwards, units", [
    (lambda: nn.Sequential(layer(), nn.ReLU(), layer()), 1, None),
    (lambda: nn.Sequential(layer(), nn.ReLU(), layer()), 2, None),  # two forwards, then one backward
    (Recurrent, 1, None), (Recurrent, 2, None), (Recomputing, 1, None), (Branches, 1, None), (Tied, 1, None),
    (Branches, 1, lambda model: [model.pair, model.pair.left]),  # a unit in a unit
    (Recomputing, 1, lambda model: []),  # the whole model is one unit
    (Tied, 1, lambda model: [model.b]),
], ids=["layers", "two forwards", "recurrent", "recurrent, two forwards", "recomputing", "branches", "tied", "nested",
        "one unit", "chosen"])
def test_hard_models(make, forwards, units):
    wanted = expected(make, forwards, 3)
    for parameters in simulate(steps, [(make, forwards, units)] * 3).results:
        assert max((a - b).abs().max().item() for a, b in zip(parameters, wanted, strict=True)) < 1e-12


def test_hard_models_on_gloo():
    cases = [(make, 1, None) for make in (Recurrent, Recomputing, Branches, Tied)]
    results = launch(lambda comm, cases: [steps(comm, case) for case in cases], [cases] * 2, backend="gloo").results
    for i, (make, *_) in enumerate(cases):
        wanted = expected(make, 1, 2)
        assert max((a - b).abs().max().item() for a, b in zip(results[0][i], wanted, strict=True)) < 1e-12


def open_units(comm, prefetch):
    """During one step's forward and backward: which units have their parameters, each time that a layer is run."""
    model = seeded(lambda: nn.Sequential(*(layer() for _ in range(5))))
    engine = zero.shard(comm, model, SGD, 3, prefetch=prefetch)
    seen = []

    def look(where, i):
        seen.append((where, i, [k for k, unit in enumerate(engine.units) if engine._is_open(unit)]))

    for step in range(2):
        seen.clear()
        for i, module in enumerate(model):
            if step == 0:
                module.register_forward_pre_hook(lambda *_, i=i: look("forward", i))
        y = engine(x_of(comm.rank))
        engine.backward(y.square().mean())
        engine.step()
    return seen


@pytest.mark.parametrize("prefetch", [0, 1, 2, 9])
def test_no_more_units_are_whole_than_the_one_in_use_and_those_ahead(prefetch):
    for seen in simulate(open_units, [prefetch] * 2).results:
        assert seen == [("forward", i, list(range(i, min(5, i + 1 + prefetch)))) for i in range(5)]


def test_a_whole_gradient_is_made_when_the_one_before_it_has_been_reduced():
    """Until then a unit's gradients stay as autograd has made them, which takes no more than once their bytes."""
    def look(comm, _):
        model = seeded(lambda: nn.Sequential(*(layer() for _ in range(5))))
        engine, there = zero.shard(comm, model, SGD, 3), []
        for gradient in engine.gradients:
            gradient.fill = lambda fill=gradient.fill: (
                there.append([g.whole is not None for g in engine.gradients]), fill())[1]
        engine.backward(engine(x_of(comm.rank)).square().mean())
        return there

    for ranks in (1, 2):
        for there in simulate(look, [None] * ranks).results:
            assert there == [[False] * 5] * 5


def test_gradients_of_a_step_that_is_not_made_are_forgotten():
    def look(comm, _):
        engine = zero.shard(comm, seeded(lambda: nn.Sequential(layer(), layer())), SGD, 3)
        engine.gradients[0].hold(0, torch.ones(WIDTH, WIDTH, dtype=torch.float64))
        held = zero.live(engine).gradients
        engine.zero_grad()
        return held, zero.live(engine).gradients, comm.world.trace

    for held, left, trace in simulate(look, [None]).results:
        assert (held, left) == (8 * WIDTH**2, 0)
        assert [e.kind for e in trace if e.label == "gradients"] == ["alloc", "free"]


def test_what_is_not_gathered_takes_no_memory_and_has_no_shape():
    def look(comm, _):
        model = nn.Sequential(layer(), layer())
        zero.shard(comm, model, SGD, 3)
        return [(p.shape, p.untyped_storage().nbytes()) for p in model.parameters()]

    for shapes in simulate(look, [None] * 2).results:
        assert shapes == [((0,), 0)] * 4


# -- on a clock -------------------------------------------------------------------------------------------------------


class Lasting(torch.autograd.Function):
    """Modelled work: 1 s in forward, 2 s in backward."""

    @staticmethod
    def forward(ctx, x, comm):
        ctx.comm = comm
        comm.compute(1.0, "F")
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):
        ctx.comm.compute(2.0, "B")
        return gradient, None


class Timed(nn.Module):
    def __init__(self, comm):
        super().__init__()
        self.comm, self.layer = comm, layer(30)

    def forward(self, x):
        return Lasting.apply(self.layer(x), self.comm)


LAYERS, RANKS = 6, 4
NBYTES = 8 * 930  # of a layer


def timed(comm, given):
    stage, options = given
    model = nn.Sequential(*(Timed(comm) for _ in range(LAYERS)))
    engine = zero.shard(comm, model, SGD, stage, bucket_bytes=NBYTES, **options)
    x, spans = torch.ones(1, 30, dtype=torch.float64), []
    for _ in range(2):  # in the first step, stage 3 doesn't know what comes next
        begin = comm.now()
        engine.backward(engine(x).square().mean())
        engine.step()
        spans.append((begin, comm.now()))
    return spans


@pytest.mark.parametrize("stage, waits", [(1, 1 + 6), (2, 1 + 6), (3, 1 + 1)])
def test_communication_goes_on_beside_computing(stage, waits):
    """A layer's reduce-scatter or all-gather takes 0.5 s, its computing 1 s and 2 s.

    What is waited for: stages 1 and 2, the last bucket's reduce-scatter and all the all-gathers after the update; stage 3,
    the first gather of the forward and the reduce-scatter of the layer that backward ends with. (The first unit of backward
    is gathered again too, and so is waited for.)
    """
    link = Link(beta=0.5 / (NBYTES * (RANKS - 1) / RANKS))
    computing = LAYERS * 3.0
    (begin, end), alone = (simulate(timed, [(stage, {"overlap": overlap})] * RANKS, link).results[0][1]
                           for overlap in (True, False))
    collectives = {1: 2, 2: 2, 3: 3}[stage] * LAYERS
    assert alone[1] - alone[0] == pytest.approx(computing + 0.5 * collectives, rel=0.01)
    assert end - begin == pytest.approx(computing + 0.5 * (waits + (stage == 3)), rel=0.01)


def test_prefetching_further_ahead_hides_longer_gathers():
    """With 1.5 s a collective, computing of 1 s hides the next unit's gather only in part."""
    link = Link(beta=1.5 / (NBYTES * (RANKS - 1) / RANKS))
    took = []
    for prefetch in (0, 1):
        begin, end = simulate(timed, [(3, {"prefetch": prefetch})] * RANKS, link).results[0][1]
        took.append(end - begin)
    assert took[1] < took[0] - 0.9 * LAYERS


def test_every_rank_counts_as_many_units_as_the_trace_shows():
    """Between widths that differ: a unit's all-gathers and reduce-scatter, message for message."""
    def one(comm, _):
        widths = 6, 4, 9, 2
        model = nn.Sequential(*(nn.Linear(a, b, dtype=torch.float64) for a, b in pairwise(widths)))
        engine = zero.shard(comm, model, SGD, 3)
        comm.barrier()
        before = comm.now()
        engine.backward(engine(x_of(comm.rank)).square().mean())
        engine.step()
        return before

    run = simulate(one, [None] * 3, Link(alpha=1.0))
    for rank in range(3):
        sends = [event for event in run.trace.of(rank) if event.kind == "send" and event.start >= run.results[rank]]
        assert len(sends) == 3 * 3 * 2
