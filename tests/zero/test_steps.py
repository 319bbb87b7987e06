"""N ranks make the steps that one process makes on the whole batch: every parameter, after every step."""

import pytest
import torch
from zero_models import OPTIMIZERS, alone, batches, together

from mlsyslab import launch, simulate

RAGGED = batches(3, rows=9, last=5)  # the last batch is smaller, and no number of ranks but 3 divides the first


def worst(results, expected):
    """The largest distance of any parameter of any rank after any step, and of any step's loss."""
    after, losses = expected
    found = max((here[step][name] - after[step][name]).abs().max().item()
                for here, _ in results for step in range(len(after)) for name in after[step])
    summed = [sum(rank[step] for _, rank in results) for step in range(len(losses))]
    return max(found, *(abs(a - b) for a, b in zip(summed, losses, strict=True)))


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("stage", [1, 2, 3])
def test_n_ranks_are_one_process_simulated(stage, optimizer):
    """Tied, frozen and unused parameters, several buckets, shards of uneven length, microbatches, a ragged last batch."""
    expected = alone(optimizer, RAGGED)
    for ranks in (1, 2, 3, 4):
        for accumulate in (1, 2):
            run = simulate(together, [(stage, optimizer, RAGGED, {"bucket_bytes": 400}, accumulate, None)] * ranks)
            assert worst(run.results, expected) < 1e-10, (ranks, accumulate)


@pytest.mark.parametrize("ranks", [1, 2, 3, 4])
def test_n_ranks_are_one_process_on_gloo(ranks):
    cases = [(stage, optimizer, RAGGED, {"bucket_bytes": 400}, accumulate, None)
             for stage in (1, 2, 3) for optimizer in ("SGD", "Adam") for accumulate in (1, 2)]
    run = launch(_several, [cases] * ranks, backend="gloo")
    for i, (_, optimizer, *_) in enumerate(cases):
        assert worst([results[i] for results in run.results], alone(optimizer, RAGGED)) < 1e-10, cases[i]


def _several(comm, cases):
    return [together(comm, case) for case in cases]


@pytest.mark.parametrize("stage", [1, 2, 3])
def test_no_two_ranks_differ_by_a_bit(stage):
    run = simulate(together, [(stage, "AdamW", RAGGED, {"bucket_bytes": 400}, 1, None)] * 4)
    (first, _), *others = run.results
    assert all(torch.equal(here[step][name], first[step][name])
               for here, _ in others for step in range(len(first)) for name in first[step])


@pytest.mark.parametrize("options", [{"overlap": False}, {"bucket_bytes": 1}, {}, {"offload": True},
                                     {"prefetch": 0}, {"prefetch": 3}])
def test_options_that_change_when_and_where_but_not_what(options):
    """Without overlap, a bucket for each parameter, one for all; optimizer state on the CPU; units ahead."""
    expected = alone("AdamW", RAGGED)
    for stage in (1, 2, 3):
        run = simulate(together, [(stage, "AdamW", RAGGED, options, 1, None)] * 3)
        assert worst(run.results, expected) < 1e-10


@pytest.mark.parametrize("stage", [1, 2, 3])
def test_clipping_over_shards_is_clipping_of_the_whole(stage):
    """A norm that is too long in every step, and one that never is."""
    for clip in (0.01, 100.0):
        run = simulate(together, [(stage, "SGD", RAGGED, {"bucket_bytes": 400}, 2, clip)] * 3)
        assert worst(run.results, alone("SGD", RAGGED, clip=clip)) < 1e-10


@pytest.mark.parametrize("stage", [1, 2, 3])
def test_more_ranks_than_rows_and_than_elements(stage):
    """Ranks without a row, and shards without an element, take part in everything."""
    few = batches(2, rows=3, last=2)
    run = simulate(together, [(stage, "Adam", few, {"bucket_bytes": 1}, 1, None)] * 9)
    assert worst(run.results, alone("Adam", few)) < 1e-10
