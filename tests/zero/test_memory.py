"""What each rank holds: the formulas, the paper's table, and the live tensors of real steps."""

from functools import partial
from itertools import pairwise

import pytest
import torch
from torch import nn
from zero_models import OPTIMIZERS

from mlsyslab import launch, simulate, zero
from mlsyslab.check.live import Live

GB = 1e9


@pytest.mark.parametrize("parameters, ranks, expected", [  # GB in stages 1, 2, 3
    (7.5e9, 1, (120, 120, 120)), (7.5e9, 4, (52.5, 41.3, 30)), (7.5e9, 16, (35.6, 21.6, 7.5)),
    (7.5e9, 64, (31.4, 16.6, 1.88)), (7.5e9, 256, (30.4, 15.4, 0.47)), (7.5e9, 1024, (30.1, 15.1, 0.12)),
    (128e9, 1, (2048, 2048, 2048)), (128e9, 4, (896, 704, 512)), (128e9, 16, (608, 368, 128)), (128e9, 64, (536, 284, 32)),
    (128e9, 256, (518, 263, 8)), (128e9, 1024, (513, 257, 2)),
    (1e12, 1, (16000, 16000, 16000)), (1e12, 4, (7000, 5500, 4000)), (1e12, 16, (4750, 2875, 1000)),
    (1e12, 64, (4187, 2218, 250)), (1e12, 256, (4046, 2054, 62.5)), (1e12, 1024, (4011, 2013, 15.6))])
def test_the_papers_table(parameters, ranks, expected):
    """Rajbhandari et al. 2020, table 1. It cuts off or rounds: within one of its last digit."""
    for stage, gigabytes in zip((1, 2, 3), expected, strict=True):
        last_digit = 1 if gigabytes > 100 else 0.1 if gigabytes > 10 else 0.01
        assert zero.memory(parameters, ranks, stage).total / GB == pytest.approx(gigabytes, abs=last_digit)


def test_data_parallelism_keeps_everything_everywhere():
    assert zero.memory(7.5e9, 64, 0) == zero.Memory(15 * GB, 15 * GB, 90 * GB)
    assert zero.memory(7.5e9, 64, 0).total == 120 * GB


@pytest.mark.parametrize("make, dtype, expected", [
    (torch.optim.Adam, torch.bfloat16, (2, 2, 12)), (torch.optim.AdamW, torch.float16, (2, 2, 12)),
    (torch.optim.Adam, torch.float32, (4, 4, 8)), (partial(torch.optim.SGD, momentum=0.9), torch.bfloat16, (2, 2, 8)),
    (torch.optim.SGD, torch.float32, (4, 4, 0)), (torch.optim.AdamW, torch.float64, (8, 8, 16)),
    (partial(torch.optim.Adam, amsgrad=True), torch.float32, (4, 4, 12))])
def test_bytes_a_parameter(make, dtype, expected):
    assert zero.bytes_a_parameter(make, dtype) == expected


# -- live tensors -----------------------------------------------------------------------------------------------------

WIDTHS = 6, 10, 10, 7  # 257 elements: no number of ranks but 1 divides them


def layers(dtype):
    return nn.Sequential(*(nn.Linear(a, b, dtype=dtype) for a, b in pairwise(WIDTHS)))


def watched(comm, given):
    """Steps, watched by something that knows nothing of the engine: every tensor's memory on this thread.

    Returns for each moment (what `live` says, what was seen), and the flats.
    """
    stage, dtype, accumulate, options = given
    x, moments = torch.ones(2, WIDTHS[0], dtype=dtype), {}
    with Live() as seen:
        engine = zero.shard(comm, layers(dtype), OPTIMIZERS["Adam"], stage, bucket_bytes=300, **options)
        for step in range(2):
            for k in range(accumulate):
                loss = engine(x).square().mean()
                engine.backward(loss, last=k == accumulate - 1)
            loss = None
            moments[step, "backward"] = zero.live(engine), sum(seen.sizes())
            engine.step()
            moments[step, "step"] = zero.live(engine), sum(seen.sizes())
    return moments, len(engine.flats)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
@pytest.mark.parametrize("stage", [1, 2, 3])
def test_live_bytes_are_the_formula(stage, dtype):
    """After backward, when all of it is there. Padding: each flat's first shards are longer by up to one element."""
    parameters = sum(p.numel() for p in layers(dtype).parameters())
    sizes = zero.bytes_a_parameter(OPTIMIZERS["Adam"], dtype)
    for ranks in (1, 2, 3, 4):
        expected = zero.memory(parameters, ranks, stage, *sizes)
        run = simulate(watched, [(stage, dtype, accumulate, {}) for accumulate in [2] for _ in range(ranks)])
        for moments, flats in run.results:
            live, seen = moments[1, "backward"]
            for found, formula, size in zip(live, expected, (*sizes, 0), strict=True):
                assert abs(found - formula) <= flats * size
            assert abs(seen - live.total) <= 64  # what autograd keeps of the loss
            assert moments[1, "step"][0].gradients == (live.gradients if stage == 1 else 0)


def test_live_bytes_on_gloo():
    run = launch(watched_in_all_stages, [None] * 3, backend="gloo")
    for of_rank in run.results:
        for stage, (moments, flats) in enumerate(of_rank, 1):
            live, formulas = moments[1, "backward"][0], zero.memory(257, 3, stage)
            for found, formula, size in zip(live, formulas, (2, 2, 12, 0), strict=True):
                assert abs(found - formula) <= flats * size


def watched_in_all_stages(comm, _):
    return [watched(comm, (stage, torch.bfloat16, 2, {})) for stage in (1, 2, 3)]


def test_offloaded_state_is_not_in_the_ranks_memory():
    run = simulate(watched, [(2, torch.bfloat16, 1, {"offload": True})] * 2)
    for moments, flats in run.results:
        live, _ = moments[1, "backward"]
        assert live.optimizer == 0
        assert abs(live.offloaded - 12 * 257 / 2) <= 12 * flats


@pytest.mark.parametrize("stage", [1, 2, 3])
def test_the_traces_peak_is_the_formula_and_what_is_on_its_way(stage):
    """From the ledger's events. On the way: a bucket filled and one reduced; in stage 3 two units and two gradients."""
    for ranks in (2, 4):
        run = simulate(watched, [(stage, torch.float32, 1, {})] * ranks)
        unit = 4 * max(a * b + b for a, b in pairwise(WIDTHS))
        room = {1: 0, 2: 2 * (300 + 440), 3: 4 * unit}[stage]
        for rank in range(ranks):
            at_rest = run.results[rank][0][1, "backward"][0].total
            assert at_rest <= run.trace.peak_memory(rank) <= at_rest + room


def test_what_was_allocated_is_freed_or_still_held():
    for stage in (1, 2, 3):
        run = simulate(watched, [(stage, torch.bfloat16, 2, {})] * 3)
        for rank in range(3):
            held = {"parameters": 0, "gradients": 0, "optimizer": 0}
            for event in run.trace.of(rank):
                if event.kind in ("alloc", "free"):
                    held[event.label] += event.bytes if event.kind == "alloc" else -event.bytes
            live = run.results[rank][0][1, "step"][0]
            assert held == {"parameters": live.parameters, "gradients": live.gradients, "optimizer": live.optimizer}
