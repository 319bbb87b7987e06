"""`python -m mlsyslab.run` under torchrun and Slurm: two nodes' worth of processes on this machine, and what it says."""

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from mlsyslab.run import Misuse, find_place, first_host, input_of, load, tasks_per_node

HERE = Path(__file__).parent
RUN = ["-m", "mlsyslab.run"]


def environment(**more):
    return {**os.environ, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo", "PYTHONPATH": str(HERE), **more}


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]


def two_agents(*arguments):
    """Run two torchrun agents of two processes each that meet at one rendezvous; returns (statuses, all they printed)."""
    agent = [sys.executable, "-m", "torch.distributed.run", "--nnodes", "2", "--nproc-per-node", "2",
             "--rdzv-backend", "c10d", "--rdzv-endpoint", f"127.0.0.1:{free_port()}", "--rdzv-id", "test",
             "--local-addr", "127.0.0.1"]
    agents = [subprocess.Popen([*agent, *RUN, *arguments], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                               stderr=subprocess.STDOUT, text=True, env=environment()) for _ in range(2)]
    try:
        said = [agent.communicate(timeout=280)[0] for agent in agents]
    finally:
        for agent in agents:
            agent.kill()
    return [agent.returncode for agent in agents], "".join(said)


def test_two_nodes_under_torchrun(tmp_path):
    trace = tmp_path / "trace.json"
    statuses, said = two_agents("run_program:main", "--inputs", "run_program:inputs", "--trace", str(trace))
    assert statuses == [0, 0], said
    for rank in range(4):
        node = rank // 2
        assert f"rank {rank}: ([0, 0, 1, 1], {[2 * node, 2 * node + 1]}, True, True)" in said
    assert "4 ranks" in said and "8 messages" in said
    sends = [event for event in json.loads(trace.read_text())["traceEvents"] if event.get("cat") == "send"]
    assert sorted((e["tid"], e["args"]["peer"], e["args"]["bytes"]) for e in sends) == \
        sorted((r, (r + 1) % 4, n) for r in range(4) for n in (24, 600_000))


def test_a_stall_on_two_nodes_is_told_at_the_deadline():
    statuses, said = two_agents("run_program:stalls", "--timeout", "5")
    assert all(statuses)
    assert "rank 2 waits to send 20 bytes to rank 3" in said
    assert "rank 3 has already returned" in said
    assert "comm.send(torch.ones(5), (comm.rank + 1) % comm.size)" in said


def test_ranks_that_srun_starts():
    """Two nodes of one task each, as Slurm describes them."""
    port = str(free_port())
    ranks = [subprocess.Popen([sys.executable, *RUN, "run_program:main", "--inputs", "run_program:inputs"],
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                              env=environment(SLURM_PROCID=str(rank), SLURM_NTASKS="2", SLURM_LOCALID="0",
                                              SLURM_NODEID=str(rank), SLURM_JOB_NODELIST="localhost",
                                              SLURM_TASKS_PER_NODE="1(x2)", MASTER_PORT=port)) for rank in range(2)]
    try:
        said = [rank.communicate(timeout=280)[0] for rank in ranks]
    finally:
        for rank in ranks:
            rank.kill()
    assert [rank.returncode for rank in ranks] == [0, 0], said
    assert "rank 1: ([0, 1], [1], True, True)" in said[0]


@pytest.mark.parametrize("nodes, host", [("gpu[03-07,12],cpu1", "gpu03"), ("localhost", "localhost"), ("a1,b2", "a1"),
                                         ("rack[1-2]-node", "rack1-node")])
def test_the_first_host_of_a_node_list(nodes, host):
    assert first_host(nodes) == host


def test_tasks_of_each_node():
    assert tasks_per_node("4(x2),3") == [4, 4, 3]
    assert tasks_per_node("8") == [8]


@pytest.mark.parametrize("give, words", [
    (lambda: load("run_program"), "module:function"), (lambda: load("nowhere_to_be:found"), "no module 'nowhere_to_be'"),
    (lambda: load("run_program:nothing"), "no 'nothing'"),
    (lambda: input_of("run_program:numbers", 0, 2), "3 entries for 2"),
    (lambda: find_place({}), "torchrun"), (lambda: find_place({"RANK": "0", "WORLD_SIZE": "two"}), "WORLD_SIZE='two'"),
    (lambda: first_host(""), "MASTER_ADDR"), (lambda: tasks_per_node("many"), r"4\(x2\),3"),
])
def test_misuse_is_told_in_one_message(give, words):
    with pytest.raises(Misuse, match=words):
        give()


def test_help_and_a_start_without_torchrun():
    shown = subprocess.run([sys.executable, *RUN, "--help"], capture_output=True, text=True, timeout=120, env=environment())
    assert shown.returncode == 0
    for word in ("torchrun", "srun", "--inputs", "--backend", "--trace", "--timeout"):
        assert word in shown.stdout
    plain = {name: value for name, value in environment().items() if name not in ("RANK", "SLURM_PROCID")}
    alone = subprocess.run([sys.executable, *RUN, "run_program:main"], capture_output=True, text=True, timeout=120,
                           env=plain)
    assert alone.returncode == 1
    assert alone.stderr.startswith("python -m mlsyslab.run: neither torchrun nor srun has started this process")
