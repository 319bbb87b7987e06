"""Ranks of one run after another on the same threads: none meets what another has left behind."""

import subprocess
import sys
import threading
import time

import pytest
import torch

from mlsyslab import Deadlock, RankFailed, simulate
from mlsyslab.comm import threads
from mlsyslab.comm.threads import KEPT, Thread


def idents(p):
    return set(simulate(lambda comm, _: threading.get_ident(), [None] * p).results)


def test_the_next_run_takes_the_threads_of_the_last():
    first = idents(8)
    assert len(first) == 8
    for p in (1, 5, 8):
        assert idents(p) <= first | {ident.thread.ident for ident in threads._waiting}
    before = threading.active_count()
    for p in range(1, 9):
        idents(p)
    assert threading.active_count() == before


def test_no_more_are_kept_than_that():
    assert simulate(lambda comm, _: comm.rank, [None] * (3 * KEPT)).results == list(range(3 * KEPT))
    deadline = time.monotonic() + 60
    while sum(thread.name.startswith("rank ") for thread in threading.enumerate()):
        assert time.monotonic() < deadline
    assert len(threads._waiting) <= KEPT


@pytest.mark.parametrize("leave", [
    lambda: torch.set_grad_enabled(False), lambda: torch.inference_mode().__enter__(),
    lambda: torch.autocast("cpu").__enter__(), lambda: torch.device("meta").__enter__()])
def test_what_a_rank_sets_for_its_thread_ends_with_it(leave):
    def state(comm, last):
        switches = torch.is_grad_enabled(), torch.is_inference_mode_enabled(), torch.is_autocast_enabled("cpu")
        found = *switches, torch.ones(1).device
        if last:
            leave()
        return found

    fresh = True, False, False, torch.device("cpu")
    for last in (True, True, False):
        assert simulate(state, [last] * 4).results == [fresh] * 4


def test_an_interrupt_hits_nobody_else():
    def endless(comm, _):
        while comm.rank == 0:
            pass
        comm.recv(torch.empty(1), source=0)

    for _ in range(5):
        with pytest.raises(Deadlock, match="still going on"):
            simulate(endless, [None] * 3, timeout=0.2)
        for p in (3, 8):
            assert simulate(lambda comm, _: comm.rank, [None] * p).results == list(range(p))


def test_who_was_interrupted_is_not_used_again_even_if_that_came_too_late():
    done, thread = threading.Event(), Thread(lambda: None, (), "rank 0")
    thread.join(10)
    assert not thread.is_alive()
    thread.interrupt(KeyboardInterrupt)
    Thread(done.set, (), "rank 0").join(10)
    assert done.is_set()


def test_errors_and_deadlocks_one_after_another():
    def fails(comm, _):
        raise KeyError(comm.rank)

    for _ in range(20):
        with pytest.raises(RankFailed, match="KeyError"):
            simulate(fails, [None] * 3)
        with pytest.raises(Deadlock, match="3 of 3 wait"):
            simulate(lambda comm, _: comm.recv(torch.empty(1), (comm.rank + 1) % 3), [None] * 3)
        assert len(idents(3)) == 3


def test_a_run_within_a_rank_and_runs_side_by_side():
    def outer(comm, p):
        return simulate(lambda inner, _: inner.rank, [None] * p).results

    assert simulate(outer, [2, 3, 4]).results == [[0, 1], [0, 1, 2], [0, 1, 2, 3]]
    found = []
    side = [threading.Thread(target=lambda: found.extend(simulate(outer, [3] * 2).results)) for _ in range(6)]
    for thread in side:
        thread.start()
    for thread in side:
        thread.join()
    assert found == [[0, 1, 2]] * 12


def test_in_a_forked_process_there_are_new_ones():
    code = """
import os
from mlsyslab import simulate
run = lambda: simulate(lambda comm, _: comm.rank, [None] * 4).results
assert run() == [0, 1, 2, 3]
child = os.fork()
assert run() == [0, 1, 2, 3]
if child:
    assert os.waitpid(child, 0)[1] == 0
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)
