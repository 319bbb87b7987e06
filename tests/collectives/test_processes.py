"""On processes every operation by every algorithm gives what its definition and torch.distributed say.

One world a p, in which all cases run one after another.
"""

import pytest
import torch
import torch.distributed as dist
from collective_cases import REDUCING, WORLDS, Case, call, counted, expected, grid, inputs, same

from mlsyslab import CommError, collectives, launch
from mlsyslab.collectives import even_lengths

GLOO = {torch.uint8, torch.int8, torch.int32, torch.int64, torch.float16, torch.float32, torch.float64}  # that Gloo reduces
OPS = {"sum": dist.ReduceOp.SUM, "product": dist.ReduceOp.PRODUCT, "min": dist.ReduceOp.MIN, "max": dist.ReduceOp.MAX}


def by_torch(case, mine):
    """What torch.distributed gives this rank for the same call, or None where its Gloo backend has no such call."""
    p, rank = dist.get_world_size(), dist.get_rank()
    if case.op in REDUCING:
        if case.dtype not in GLOO or case.reduction not in OPS or case.rows == 0:
            return None
        total = mine.clone(memory_format=torch.contiguous_format)
        dist.all_reduce(total, OPS[case.reduction])
        return total.split(case.lengths)[rank] if case.op == "reduce_scatter" else total
    if case.op == "broadcast":
        got = mine.clone(memory_format=torch.contiguous_format).view(torch.uint8) if case.tail == () and case.rows else None
        if got is None:
            return None
        dist.broadcast(got, case.root)
        return got.view(case.dtype)
    if case.op in ("scatter", "gather", "all_gather", "all_to_all") and case.dtype in GLOO and len(set(case.lengths)) == 1:
        whole = mine.contiguous()
        if case.op == "scatter":
            got = torch.empty_like(whole[:case.lengths[0]])
            dist.scatter(got, list(whole.split(case.lengths)) if rank == case.root else None, case.root)
            return got
        if case.op == "gather":
            rows = [torch.empty_like(whole) for _ in range(p)] if rank == case.root else None
            dist.gather(whole, rows, case.root)
            return torch.cat(rows) if rank == case.root else None
        got = torch.empty((p * len(whole), *case.tail) if case.op == "all_gather" else whole.shape, dtype=case.dtype)
        if case.op == "all_gather":
            dist.all_gather(list(got.split(len(whole))) if len(whole) else [got] * p, whole)
        else:
            dist.all_to_all_single(got, whole)
        return got
    return None


@pytest.mark.parametrize("p", WORLDS)
def test_every_algorithm_agrees_with_the_definition_and_with_torch_distributed(p):
    cases = grid(p, seed=3) if p < 10 else grid(p, seed=3)[::2]
    given = [inputs(case, seed) for seed, case in enumerate(cases)]

    def all_cases(comm, mine):
        ours = []
        for case, tensor in zip(cases, mine, strict=True):
            before = len(comm.world.trace)
            result = call(comm, case, tensor)
            sent = [event.bytes for event in comm.world.trace[before:] if event.kind == "send"]
            ours.append((result, len(sent), sum(sent)))
        return ours, [by_torch(case, tensor) for case, tensor in zip(cases, mine, strict=True)]

    run = launch(all_cases, [[tensors[rank] for tensors in given] for rank in range(p)], backend="gloo")
    compared = 0
    for i, case in enumerate(cases):
        want, counts = expected(case, given[i]), counted(case)
        for rank, (ours, torchs) in enumerate(run.results):
            result, messages, sent = ours[i]
            assert same(result, want[rank]), (case, rank, result, want[rank])
            assert (messages, sent) == (counts[rank].messages, counts[rank].sent), (case, rank)
            if torchs[i] is not None and not (case.op == "reduce" and rank != case.root):
                assert same(torchs[i], result), (case, rank, torchs[i], result)
                compared += 1
    assert compared > 20 * p


@pytest.mark.parametrize("p", [2, 3])
def test_long_vectors_are_the_messages_that_the_closed_forms_say(p):
    """However a long message is cut on its way, the trace shows it as one, and one combination for it."""
    rows = 1_200_001
    cases = [Case("all_reduce", "ring", even_lengths(rows, p), dtype=torch.int64, reduction="max"),
             Case("reduce_scatter", "ring", even_lengths(rows, p), dtype=torch.float32),
             Case("reduce_scatter", "ring", [rows] + [0] * (p - 1), True, dtype=torch.int8),
             Case("reduce_scatter", "ring", [700_000] + [3] * (p - 1), True, tail=(2,), dtype=torch.int32),
             Case("all_reduce", "hierarchical", even_lengths(rows, p), dtype=torch.float32)]
    given = [inputs(case, 0) for case in cases]
    for case, tensors in zip(cases, given, strict=True):
        run = launch(lambda comm, x, case=case: call(comm, case, x), tensors, backend="gloo")
        assert all(map(same, run.results, expected(case, tensors))), case
        for rank, count in enumerate(counted(case)):
            found = run.trace.messages(rank), run.trace.bytes_sent(rank), run.trace.bytes_combined(rank)
            assert found == (count.messages, count.sent, count.combined), (case, rank)


@pytest.mark.parametrize("rows", [10, 2_000_000])
def test_ranks_that_disagree_on_their_shapes_are_told(rows):
    with pytest.raises(CommError, match="which expects"):
        launch(lambda comm, x: collectives.all_reduce(comm, x, algorithm="ring"), [torch.ones(rows), torch.ones(rows + 4)],
               backend="gloo")
