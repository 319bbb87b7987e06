"""A launch works from wherever Python runs: a script, a shell, a notebook, a sandbox with no network."""

import os
import shutil
import subprocess
import sys

import nbformat
import pytest
from nbclient import NotebookClient

PROGRAM = """
import torch
from mlsyslab import launch

def neighbour(rank):
    return (rank + 1) % 2

def program(comm, x):
    got = torch.empty_like(x)
    comm.sendrecv(x, neighbour(comm.rank), got, neighbour(comm.rank))
    print("rank", comm.rank)
    return got.tolist()

print(launch(program, [torch.full((100,), 1.0), torch.full((100,), 2.0)]).results == [[2.0] * 100, [1.0] * 100])
"""
SHOWN = ["True", "rank 0", "rank 1"]


def python(*arguments, stdin=None, environ=(), before=()):
    """The lines that a fresh interpreter prints."""
    done = subprocess.run([*before, sys.executable, *arguments], input=stdin, capture_output=True, text=True, timeout=280,
                          env={**os.environ, "OMP_NUM_THREADS": "1", **dict(environ)})
    assert done.returncode == 0, done.stderr
    return sorted(done.stdout.split("\n"))[1:]


def test_a_script_without_a_guard(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(PROGRAM)
    assert python(str(script)) == SHOWN


def test_a_command_line_and_standard_input():
    assert python("-c", PROGRAM) == SHOWN
    assert python("-", stdin=PROGRAM) == SHOWN


def test_where_nothing_can_fork_ranks_are_started_afresh(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(PROGRAM)
    assert python(str(script), environ={"MLSYSLAB_FORK": "0"}) == SHOWN


def test_a_notebook_whose_functions_live_in_cells():
    before, after = PROGRAM.split("print(launch")
    cells = [nbformat.v4.new_code_cell(text) for text in (
        before, "print(launch" + after,
        "def fails(comm, x):\n    raise ValueError('in a cell')\ntry:\n    launch(fails, [0, 0])\n"
        "except Exception as error:\n    print(error)")]
    notebook = NotebookClient(nbformat.v4.new_notebook(cells=cells), timeout=280).execute()
    texts = ["".join(output.get("text", "") for output in cell.outputs) for cell in notebook.cells]
    assert sorted(texts[1].split("\n"))[1:] == SHOWN
    assert "raise ValueError('in a cell')" in texts[2]  # the line of a cell, which lies in no file


def can_isolate():
    probe = ["bwrap", "--ro-bind", "/", "/", "--unshare-net", "true"]
    return shutil.which("bwrap") is not None and subprocess.run(probe, capture_output=True).returncode == 0


@pytest.mark.skipif(not can_isolate(), reason="bubblewrap is not there, or may not make namespaces")
def test_a_sandbox_with_no_network_and_nothing_to_write_to():
    sandbox = ["bwrap", "--ro-bind", "/", "/", "--proc", "/proc", "--dev", "/dev", "--unshare-all", "--die-with-parent"]
    assert python("-c", PROGRAM, before=sandbox) == SHOWN
