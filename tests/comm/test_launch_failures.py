"""Whatever goes wrong in a rank is told at once and as it was, and nothing is left behind."""

import gc
import glob
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
import rank_programs as programs
import torch

from mlsyslab import CommError, Deadlock, RankFailed, launch, simulate


def children_of(process):
    """The processes below `process`."""
    found = []
    for path in glob.glob("/proc/[0-9]*/stat"):
        try:
            pid, parent = int(path.split("/")[2]), int(Path(path).read_text().rpartition(")")[2].split()[1])
        except OSError:
            continue
        if parent == process:
            found += [pid, *children_of(pid)]
    return found


def footprint():
    """What a run could leave behind: ranks, open files, files in /tmp and /dev/shm (a browser has dotted ones)."""
    gc.collect()
    ranks = {rank for server in children_of(os.getpid()) for rank in children_of(server)}
    return ranks, len(os.listdir("/proc/self/fd")), set(glob.glob("/tmp/mlsyslab*") + glob.glob("/dev/shm/[!.]*"))


@pytest.fixture(autouse=True)
def nothing_is_left():
    launch(programs.torch_distributed, [torch.ones(1)])  # the fork server is there
    ranks, files, named = footprint()
    yield
    after = footprint()  # what other tests of this process have left may end meanwhile
    assert after[0] <= ranks and after[1] <= files and after[2] <= named


@pytest.mark.parametrize("failing", [0, 3])
def test_a_rank_that_raises_is_told_with_its_own_traceback(failing):
    with pytest.raises(RankFailed) as caught:
        launch(programs.raises, [failing] * 4)
    assert (caught.value.rank, caught.value.size, caught.value.reason) == (failing, 4, "ValueError: odd length")
    assert 'raise ValueError("odd length")' in caught.value.details
    assert "rank_programs.py" in caught.value.details
    assert isinstance(caught.value.__cause__, ValueError)


@pytest.mark.parametrize("how, reason", [("SIGKILL", "killed by SIGKILL"), ("SIGSEGV", "killed by SIGSEGV"),
                                         ("_exit", "exited with status 3"), ("exit", "SystemExit: enough")])
def test_a_rank_that_dies_is_told_with_how(how, reason):
    with pytest.raises(RankFailed, match=reason) as caught:
        launch(programs.ends_by, [how] * 3)
    assert caught.value.rank == 1


def test_the_dead_rank_is_named_and_not_those_it_took_along():
    with pytest.raises(RankFailed, match="rank 1 of 3 failed: killed by SIGKILL"):
        launch(programs.ends_inside_gloo, [None] * 3)


@pytest.mark.parametrize("program, p, given", [
    (programs.all_send_first, 2, 3), (programs.all_send_first, 5, 1000),
    (programs.waits_for_one_that_returned, 2, None), (programs.wrong_tag, 2, None),
    (programs.one_misses_the_barrier, 3, None), (programs.one_misses_the_barrier, 4, None),
    (programs.exchange_with_the_wrong_one, 3, 3), (programs.exchange_with_the_wrong_one, 4, 1000),
    (programs.exchange_under_two_tags, 2, 3), (programs.exchange_under_two_tags, 2, 1000),
])
def test_a_deadlock_is_the_same_picture_as_when_it_is_simulated(program, p, given):
    pictures = []
    for world in (simulate, launch):
        with pytest.raises(Deadlock) as caught:
            world(program, [given] * p)
        pictures.append(caught.value)
    simulated, real = pictures
    assert real.waits == simulated.waits
    assert real.cycle == simulated.cycle
    assert str(real) == str(simulated)
    assert ("use sendrecv" in str(real)) == (program is programs.all_send_first)


def test_between_machines_too(monkeypatch):
    monkeypatch.setenv("MLSYSLAB_SHARED_MEMORY", "0")
    with pytest.raises(Deadlock, match="rank 0 → rank 1 → rank 2 → rank 0"):
        launch(programs.all_send_first, [1000] * 3)


def test_who_is_slow_is_not_taken_for_stuck():
    assert launch(programs.slow_but_alive, [2.0] * 3).results == [True] * 3


def test_a_run_that_never_ends_is_ended_at_the_deadline():
    with pytest.raises(Deadlock, match="still going on after 1 s") as caught:
        launch(programs.never_ends, [None] * 2, timeout=1)
    first, second = caught.value.waits
    assert (first.kind, first.code) in {("a part that doesn't end", "while True:"), ("a part that doesn't end", "pass")}
    assert (second.kind, second.hint) == ("barrier", "not there: rank 0")


@pytest.mark.parametrize("sends", [((3, 5), torch.float32), ((3, 4), torch.float64), ((12,), torch.float32),
                                   ((0,), torch.bool)])
def test_what_does_not_fit_is_named_on_both_sides(sends):
    with pytest.raises(RankFailed) as caught:
        launch(programs.mismatch, [sends] * 2)
    assert isinstance(caught.value.__cause__, CommError)
    shape, dtype = sends
    for words in (f"{str(dtype).removeprefix('torch.')} of shape {shape}", "float32 of shape (3, 4)"):
        assert words in caught.value.reason


def test_a_result_that_cannot_travel_is_told():
    with pytest.raises(RankFailed, match="cannot be sent back to the caller"):
        launch(programs.returns_a_lock, [None])


def test_what_a_rank_started_ends_with_it(tmp_path):
    with pytest.raises(RankFailed):
        launch(programs.starts_a_process_and_fails, [str(tmp_path / "pid")] * 2)
    await_end(int((tmp_path / "pid").read_text()))


def test_control_c_ends_all_ranks(tmp_path):
    def interrupt():
        while len(list(tmp_path.glob("rank*"))) < 3:
            time.sleep(0.05)
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    thread.start()
    with pytest.raises(KeyboardInterrupt):
        launch(programs.tells_pid_and_stays, [str(tmp_path)] * 3, timeout=120)
    thread.join()
    for file in tmp_path.glob("rank*"):
        await_end(int(file.read_text()))


@pytest.mark.parametrize("fork", ["1", "0"])
def test_no_rank_outlives_a_caller_that_was_killed(tmp_path, fork):
    here = str(Path(programs.__file__).parent)
    code = f"""import sys; sys.path.insert(0, {here!r})
import rank_programs, mlsyslab
mlsyslab.launch(rank_programs.tells_pid_and_stays, [{str(tmp_path)!r}] * 2)"""
    environ = {**os.environ, "MLSYSLAB_FORK": fork, "OMP_NUM_THREADS": "1"}
    caller = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.DEVNULL, env=environ)
    until = time.monotonic() + 120
    while len([f for f in tmp_path.glob("rank*") if f.read_text()]) < 2:
        assert caller.poll() is None and time.monotonic() < until
        time.sleep(0.1)
    below = children_of(caller.pid)
    caller.kill()
    caller.wait()
    for process in {*below, *(int(file.read_text()) for file in tmp_path.glob("rank*"))}:
        await_end(process)


def await_end(process):
    """Return when `process` is gone; a minute is a guard, not a claim."""
    until = time.monotonic() + 60
    while os.path.exists(f"/proc/{process}"):
        if Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] == "Z":
            return  # ended; whoever adopted it has not yet looked
        assert time.monotonic() < until, f"process {process} is still there"
        time.sleep(0.05)
