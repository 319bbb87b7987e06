"""What each rank sends: 2M (p-1)/p elements a step in stages 1 and 2, 3M (p-1)/p in stage 3, read from the trace."""

import pytest
import torch
from torch import nn
from zero_models import OPTIMIZERS, batches, loss_of, tiny

from mlsyslab import launch, simulate, zero


def bytes_a_step(comm, given):
    """Make steps; returns what `sent` says of one."""
    stage, make, steps, accumulate, options = given
    engine = zero.shard(comm, make(), OPTIMIZERS["Adam"], stage, **options)
    for _ in range(steps):
        for k in range(accumulate):
            engine.backward(engine(torch.ones(2, 6, dtype=torch.float64)).square().mean(), last=k == accumulate - 1)
        engine.step()
    return zero.sent(engine, accumulate)


def layers(*widths):
    return lambda: nn.Sequential(*(nn.Linear(a, b, dtype=torch.float64) for a, b in zip(widths, widths[1:], strict=False)))


def of_one_step(run_world, given, ranks):
    """Bytes that each rank sends in the second step."""
    once, twice = (run_world(bytes_a_step, [(*given[:2], steps, *given[2:])] * ranks) for steps in (1, 2))
    return [twice.trace.bytes_sent(r) - once.trace.bytes_sent(r) for r in range(ranks)], once.results[0]


@pytest.mark.parametrize("accumulate", [1, 2, 3])
@pytest.mark.parametrize("stage", [1, 2, 3])
def test_the_trace_is_the_formula_where_the_ranks_divide(stage, accumulate):
    make = layers(6, 12, 12, 24)  # every bucket and unit a multiple of 12 elements
    parameters = sum(p.numel() for p in make().parameters())
    for ranks in (1, 2, 3, 4):
        found, said = of_one_step(simulate, (stage, make, accumulate, {"bucket_bytes": 1 << 20}), ranks)
        expected = 8 * zero.traffic(parameters, ranks, stage, accumulate).total
        assert found == said == [expected] * ranks


@pytest.mark.parametrize("stage", [1, 2, 3])
def test_the_trace_is_exact_rank_by_rank_with_uneven_shards(stage):
    make = layers(6, 5, 7, 3)
    parameters = sum(p.numel() for p in make().parameters())
    for ranks in (2, 3, 4, 5):
        found, said = of_one_step(simulate, (stage, make, 2, {"bucket_bytes": 300}), ranks)
        assert found == said
        assert sum(found) == pytest.approx(8 * ranks * zero.traffic(parameters, ranks, stage, 2).total)


def test_the_trace_on_gloo():
    make, stages = layers(6, 12, 12, 24), (1, 2, 3)
    parameters = sum(p.numel() for p in make().parameters())
    run = launch(one_step_of_each, [(make, stages)] * 3, backend="gloo")
    for stage, *spans in zip(stages, *run.results, strict=True):
        found = [sum(e.bytes for e in run.trace.of(r) if e.kind == "send" and begin <= e.start < end)
                 for r, (begin, end) in enumerate(spans)]
        assert found == [8 * zero.traffic(parameters, 3, stage).total] * 3


def one_step_of_each(comm, given):
    """When a step of each stage began and ended on this rank; another may leave a barrier earlier."""
    make, stages = given
    spans = []
    for stage in stages:
        engine = zero.shard(comm, make(), OPTIMIZERS["Adam"], stage)
        comm.barrier()
        begin = comm.now()
        engine.backward(engine(torch.ones(2, 6, dtype=torch.float64)).square().mean())
        engine.step()
        comm.barrier()
        spans.append((begin, comm.now()))
        comm.barrier()
    return spans


def tied_and_frozen(comm, given):
    stage, steps = given
    engine = zero.shard(comm, tiny(), OPTIMIZERS["SGD"], stage)
    for batch in batches(steps):
        engine.backward(loss_of(engine, batch))
        engine.step()
    trained = sum(p.numel() for p in engine.model.parameters() if p.requires_grad) if stage < 3 else 0
    return zero.sent(engine), trained


@pytest.mark.parametrize("stage", [1, 2])
def test_a_tied_parameter_travels_once_and_a_frozen_one_never(stage):
    once, twice = (simulate(tied_and_frozen, [(stage, steps)] * 3) for steps in (1, 2))
    found = [twice.trace.bytes_sent(r) - once.trace.bytes_sent(r) for r in range(3)]
    said, trained = once.results[0]
    assert found == said
    assert sum(found) == 8 * 2 * 2 * trained


def test_formulas():
    """Rajbhandari et al. 2020, section 7: 2 Psi for data parallelism and stages 1 and 2, 3 Psi for stage 3."""
    psi = 7_500_000_000
    for stage, times in ((0, 2), (1, 2), (2, 2), (3, 3)):
        for ranks in (1, 2, 64):
            assert zero.traffic(psi, ranks, stage).total == pytest.approx(times * psi * (ranks - 1) / ranks)
    assert zero.traffic(12, 4, 2, accumulate=3) == zero.Traffic(reduce_scatter=27, all_gather=9)
    assert zero.traffic(12, 4, 1, accumulate=3) == zero.Traffic(reduce_scatter=9, all_gather=9)
    assert zero.traffic(12, 4, 3, accumulate=3) == zero.Traffic(reduce_scatter=27, all_gather=54)
