"""Processes: what arrives is what was sent, whatever it is, and a run is the same as when it is simulated."""

import itertools
import os
import sys
import threading

import pytest
import rank_programs as programs
import torch

from mlsyslab import Link, launch, simulate

WAYS = {"shared memory": {}, "gloo": {"MLSYSLAB_SHARED_MEMORY": "0"}}


@pytest.fixture(params=WAYS)
def way(request, monkeypatch):
    """Messages through shared memory, and through Gloo as between machines."""
    for name, value in WAYS[request.param].items():
        monkeypatch.setenv(name, value)
    return request.param


@pytest.mark.parametrize("p", [2, 3])
def test_every_dtype_and_shape_arrives_bit_by_bit(way, p):
    assert launch(programs.every_kind_of_tensor, [None] * p).results == [[]] * p


def test_views_are_sent_and_received_as_they_are(way):
    assert launch(programs.not_contiguous, [None] * 2).results == [[True] * 6] * 2


def test_messages_match_by_tag_and_order(way):
    assert launch(programs.tags_in_any_order, [None] * 2).results[1] == [True] * 12


def test_what_comes_is_combined_whatever_its_length_and_layout(way):
    for rank, (as_expected, events) in enumerate(launch(programs.combining, [None] * 2).results):
        assert as_expected == [True] * 16
        assert events == [("send", 2_800_004, 1 - rank), ("recv", 2_800_004, 1 - rank), ("combine", 2_800_004, -1)]


@pytest.mark.parametrize("messages", [(26_000, 1), (3_000, 1000)])
def test_more_messages_than_a_pipe_holds(messages):
    assert launch(programs.many_under_way, [messages] * 2).results == [True, True]


def test_a_rank_that_is_done_still_tells_what_others_wait_for():
    assert launch(programs.done_before_its_notes_are_read, [26_000] * 2, timeout=120).results == [True, True]


@pytest.mark.parametrize("p", [1, 2, 3, 5])
@pytest.mark.parametrize("length", [3, 40_000])
def test_a_run_is_what_it_is_when_simulated(p, length):
    inputs = [torch.arange(length, dtype=torch.float32) + rank for rank in range(p)]
    real, simulated = (world(programs.mixture, [x.clone() for x in inputs]) for world in (launch, simulate))
    for (x, *rest), (expected, *others) in zip(real.results, simulated.results, strict=True):
        assert torch.equal(x, expected)
        assert rest == others
    for rank in range(p):
        for count in ("messages", "bytes_sent", "bytes_combined"):
            assert getattr(real.trace, count)(rank) == getattr(simulated.trace, count)(rank)
        assert [e.label for e in real.trace.of(rank) if e.kind == "compute"] == \
            [e.label for e in simulated.trace.of(rank) if e.kind == "compute"]


def test_gloo_between_machines_counts_the_same(monkeypatch):
    monkeypatch.setenv("MLSYSLAB_SHARED_MEMORY", "0")
    inputs = [torch.ones(5000) * rank for rank in range(3)]
    real, simulated = (world(programs.mixture, [x.clone() for x in inputs]) for world in (launch, simulate))
    assert [real.trace.messages(r) for r in range(3)] == [simulated.trace.messages(r) for r in range(3)]
    assert all(torch.equal(a[0], b[0]) for a, b in zip(real.results, simulated.results, strict=True))


def test_all_ranks_share_one_clock():
    """A token goes from rank to rank: on a common clock nobody has it before the one before has let go of it."""
    run = launch(programs.chain, [0.02] * 4)
    for (_, released), (taken, _) in itertools.pairwise(run.results):
        assert taken >= released
    sends = [event for event in run.trace if event.kind == "send"]
    assert all(0 <= event.start <= event.end <= run.time for event in run.trace)
    assert [event.rank for event in sends] == [0, 1, 2]
    assert run.trace.rounds == 3
    assert run.time >= 4 * 0.02


def test_torch_distributed_is_set_up():
    run = launch(programs.torch_distributed, [torch.tensor([float(rank)]) for rank in range(3)])
    assert run.results == [torch.tensor([3.0])] * 3


def test_a_send_that_was_not_waited_for_arrives(way):
    run = launch(programs.uses_isend_without_wait, [None] * 2)
    assert torch.equal(run.results[1], torch.arange(1000.0))


def test_ranks_have_the_callers_folder_environment_and_paths(monkeypatch, tmp_path):
    monkeypatch.setenv("MLSYSLAB_TEST", "here")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path, "/somewhere/else"])
    for folder, variable, path, threads in launch(programs.surroundings, [None] * 2).results:
        assert (os.path.realpath(folder), variable, path) == (os.path.realpath(tmp_path), "here", sys.path)
        assert threads == max(1, len(os.sched_getaffinity(0)) // 2)


def test_what_ranks_print_appears_where_the_caller_prints(capsys):
    launch(programs.speaks, ["hello"] * 3)
    shown = capsys.readouterr()
    assert sorted(shown.out.splitlines()) == sorted([f"hello {r}" for r in range(3)] + [f"raw {r}" for r in range(3)])
    assert sorted(shown.err.splitlines()) == [f"hello {r}" for r in range(3)]


def test_functions_written_on_the_spot_and_modules_nobody_can_import():
    factor = 7
    assert launch(lambda comm, x: comm.rank * x * factor, [3, 3]).results == [0, 21]
    import types
    module = types.ModuleType("made_up_by_a_test")
    sys.modules[module.__name__] = module
    try:
        exec("def helper(x): return x + 1\ndef fn(comm, x): return helper(x)", module.__dict__)
        assert launch(module.fn, [1, 2]).results == [2, 3]
    finally:
        del sys.modules[module.__name__]


def test_results_are_plain_values_of_their_own():
    big = torch.zeros(1000, 1000)
    run = launch(lambda comm, _: {"view": big[comm.rank], "text": "a", "bf16": torch.ones(3).bfloat16()}, [0, 0])
    assert run.results[1]["view"].untyped_storage().nbytes() == 4000  # not the million of which it is a row
    assert run.results[0]["bf16"].dtype == torch.bfloat16


def test_several_runs_at_once_from_threads():
    results = {}

    def go(number):
        results[number] = launch(programs.torch_distributed, [torch.tensor([float(number)])] * 2).results[0].item()

    threads = [threading.Thread(target=go, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=120)
    assert results == {0: 0.0, 1: 2.0, 2: 4.0}


def test_the_link_to_plan_with_can_be_given():
    assert launch(lambda comm, _: comm.link, [0, 0], link=Link(1e-3, 1e-6, 1e-7)).results[0] == Link(1e-3, 1e-6, 1e-7)


@pytest.mark.parametrize("arguments, words", [
    ((None, [1]), "fn"), ((programs.speaks, []), "inputs is empty"), ((programs.speaks, [1], "mpi"), "auto, gloo, nccl"),
])
def test_wrong_arguments_are_told(arguments, words):
    with pytest.raises((TypeError, ValueError), match=words):
        launch(*arguments)


@pytest.mark.skipif(torch.cuda.device_count() > 0, reason="this machine has a GPU")
def test_nccl_without_gpus_is_told():
    with pytest.raises(ValueError, match="a GPU for each of the 2 ranks, and this machine has 0"):
        launch(programs.speaks, [1, 1], backend="nccl")


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="NCCL between ranks needs two GPUs or more")
def test_nccl_does_what_gloo_does():
    inputs = [torch.arange(40_000.0) + rank for rank in range(2)]
    real = launch(programs.mixture, [x.clone() for x in inputs], backend="nccl")
    simulated = simulate(programs.mixture, inputs)
    for (x, *_), (expected, *_) in zip(real.results, simulated.results, strict=True):
        assert torch.equal(x, expected)
    assert [real.trace.bytes_sent(r) for r in range(2)] == [simulated.trace.bytes_sent(r) for r in range(2)]
