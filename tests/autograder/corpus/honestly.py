# ruff: noqa  (the bodies are cells of a notebook, as people write them)
"""Honest submissions that look odd: what people do who have solved the lab."""

import json

import nbformat

from .case import LAB, cell, honest, honest_cells, honest_files

NOTEBOOK = f"{LAB}.ipynb"


@honest()
def warnings_on_stderr():
    import sys
    import warnings
    warnings.warn("this is deprecated", DeprecationWarning, stacklevel=1)
    print("careful", file=sys.stderr)


@honest(at="scaled")
def warnings_while_a_test_runs():
    import warnings
    def scaled(tensor, factor):
        warnings.warn("slow path", stacklevel=1)
        print("scaling", tensor.shape)
        return (tensor * factor).to(tensor.dtype)


@honest()
def a_progress_bar():
    import sys
    for step in range(200):
        print(f"\r{step / 2:.0f}% {'#' * (step // 10)}", end="", file=sys.stderr)


@honest()
def a_cell_that_fails():
    1 / 0


@honest()
def a_cell_that_asks_for_input():
    name = input("your name? ")


@honest_cells()
def magics(notebook):
    source = "%matplotlib inline\n%time sum(range(10))\n!echo hello\nfiles = !ls"
    notebook.cells.insert(1, nbformat.v4.new_code_cell(source, id="magics"))


@honest()
def a_plot():
    import matplotlib.pyplot as plt
    plt.plot([1, 2, 3])
    plt.show()


@honest(at="after shift")
def imports_again():
    import torch
    import importlib
    import mlsyslab
    import math as m
    importlib.reload(mlsyslab)


@honest(at="mean")
def slow_but_fine():
    import time
    def mean(values):
        time.sleep(0.15)
        return sum(values) / len(values) if values else float("nan")


@honest(at="mean")
def answers_of_numpy():
    import numpy as np
    def mean(values):
        return np.mean(np.array(values, dtype=np.float64)) if values else np.nan


@honest(at="mean")
def answers_of_torch():
    import torch
    def mean(values):
        return torch.tensor(values, dtype=torch.float64).mean().item()


@honest(at="mean")
def a_lambda():
    mean = lambda values: sum(values) / len(values) if values else float("nan")


@honest(at="mean")
def a_partial_function():
    import functools
    def power_mean(power, values):
        return (sum(value ** power for value in values) / len(values)) ** (1 / power) if values else float("nan")
    mean = functools.partial(power_mean, 1)


@honest(at="mean")
def an_object_that_can_be_called():
    class Mean:
        def __call__(self, values):
            self.last = values
            return sum(values) / len(values) if values else float("nan")
    mean = Mean()


@honest(at="mean")
def a_cached_helper_and_a_decorator():
    import functools
    def logged(fn):
        @functools.wraps(fn)
        def inner(values):
            print("mean of", values)
            return fn(values)
        return inner
    @functools.lru_cache
    def total(values):
        return sum(values)
    @logged
    def mean(values):
        return total(tuple(values)) / len(values) if values else math.nan


@honest_cells()
def a_recursion_with_type_hints(notebook):
    cell(notebook, "mean").source = """from __future__ import annotations

def total(values: list[float]) -> float:
    return values[0] + total(values[1:]) if values else 0

def mean(values: list[float]) -> float:
    return total(values) / len(values) if values else math.nan"""


@honest(at="mean")
def names_with_accents():
    def mean(values):
        größe, 合計 = len(values), sum(values)
        return 合計 / größe if größe else math.nan


@honest(at="scaled")
def a_tensor_that_is_a_view():
    def scaled(tensor, factor):
        wide = (torch.stack([tensor, tensor], -1) * factor).to(tensor.dtype)
        return wide[..., 0]


@honest(at="scaled")
def a_tensor_with_a_gradient():
    def scaled(tensor, factor):
        if tensor.is_floating_point():
            tensor = tensor.clone().requires_grad_()
        return (tensor * factor).to(tensor.dtype)


@honest(at="shift")
def a_send_and_a_receive_that_wait():
    def shift(comm, tensor):
        out = torch.empty_like(tensor)
        works = [comm.isend(tensor, (comm.rank + 1) % comm.size), comm.irecv(out, (comm.rank - 1) % comm.size)]
        for work in works:
            work.wait()
        return out


@honest(at="shift")
def even_ranks_first():
    def shift(comm, tensor):
        out, right, left = torch.empty_like(tensor), (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size
        print("rank", comm.rank, "of", comm.size)
        if comm.rank == 0:
            comm.send(tensor, right)
            comm.recv(out, left)
        else:
            comm.recv(out, left)
            comm.send(tensor, right)
        return out


@honest(at="after shift")
def tries_of_its_own():
    run = simulate(shift, [torch.full((2,), float(rank)) for rank in range(4)])
    print(run.results, run.trace)
    scaled(torch.ones(3), 2), mean([1, 2])


@honest(at="after shift_test")
def names_of_the_tests_used_for_something_else():
    inputs = [1, 2, 3]
    simulate = "done"
    scaled_right = None


@honest()
def settings_of_the_whole_notebook():
    import random
    import numpy as np
    import logging
    import torch
    torch.manual_seed(1)
    random.seed(1)
    np.random.seed(1)
    torch.set_printoptions(precision=2)
    logging.basicConfig(level=logging.DEBUG)
    logging.debug("started")


@honest()
def warnings_that_are_errors():
    import warnings
    warnings.simplefilter("error")


@honest(at="after mean")
def a_thread_that_is_joined():
    from concurrent.futures import ThreadPoolExecutor
    with ThreadPoolExecutor(2) as pool:
        print(list(pool.map(mean, [[1, 2], [3]])))


@honest_cells()
def another_kernel(notebook):
    notebook.metadata["kernelspec"] = {"name": "my-conda-env", "display_name": "Python (conda)", "language": "python"}


@honest_cells()
def cells_in_another_order(notebook):
    solved = [cell(notebook, name) for name in ("shift", "mean", "scaled")]
    notebook.cells[:] = [part for part in notebook.cells if part not in solved] + solved


@honest_cells()
def all_metadata_stripped(notebook):
    for part in notebook.cells:
        part.metadata.clear()
    notebook.metadata.clear()


@honest_cells()
def a_cell_twice(notebook):
    notebook.cells.append(nbformat.from_dict({**cell(notebook, "scaled"), "id": "again"}))


@honest_cells()
def an_empty_cell_and_the_answer_in_a_new_one(notebook):
    answer = cell(notebook, "scaled").source
    cell(notebook, "scaled").source = ""
    notebook.cells.append(nbformat.v4.new_code_cell(answer, id="new"))


@honest_cells()
def a_solution_in_two_cells(notebook):
    notebook.cells.insert(1, nbformat.v4.new_code_cell("import torch\n\ndef times(a, b):\n    return a * b", id="helper"))
    cell(notebook, "scaled").source = "def scaled(tensor, factor):\n    return times(tensor, factor).to(tensor.dtype)"


@honest_cells()
def texts_deleted_and_notes_added(notebook):
    notebook.cells[:] = [part for part in notebook.cells if part.cell_type == "code"]
    notebook.cells.insert(0, nbformat.v4.new_markdown_cell("my notes", id="notes"))
    notebook.cells.append(nbformat.v4.new_raw_cell("raw", id="raw"))


@honest_cells()
def a_picture_in_a_note(notebook):
    pixel = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
    for number, text in enumerate(("![a](attachment:a.png)", "![b](attachment:lost.png) and <img src='attachment:'>")):
        note = nbformat.v4.new_markdown_cell(text, id=f"note-{number}")
        note["attachments"] = {"a.png": {"image/png": pixel}}
        notebook.cells.append(note)


@honest_cells()
def outputs_of_its_own_runs(notebook):
    for part in notebook.cells:
        if part.cell_type == "code":
            part.execution_count = 7
            part.outputs = [nbformat.v4.new_output("stream", text="an old run", name="stderr")]


@honest_files()
def windows_line_ends(folder, notebook):
    for part in notebook.cells:
        part.source = part.source.replace("\n", "\r\n")
    (folder / NOTEBOOK).write_bytes(nbformat.writes(notebook).replace("\n", "\r\n").encode())


@honest_files()
def a_byte_order_mark(folder, notebook):
    (folder / NOTEBOOK).write_bytes(b"\xef\xbb\xbf" + nbformat.writes(notebook).encode())


@honest_files()
def an_older_format_without_ids(folder, notebook):
    told = json.loads(nbformat.writes(notebook))
    told["nbformat_minor"] = 4
    for part in told["cells"]:
        del part["id"]
    (folder / NOTEBOOK).write_text(json.dumps(told))


@honest_files()
def renamed(folder, notebook):
    (folder / "collectives (2) final.ipynb").write_text(nbformat.writes(notebook))


@honest_files()
def other_files_beside_it(folder, notebook):
    (folder / NOTEBOOK).write_text(nbformat.writes(notebook))
    (folder / ".ipynb_checkpoints").mkdir()
    (folder / ".ipynb_checkpoints" / "collectives-checkpoint.ipynb").write_text("{}")
    (folder / "data.csv").write_text("1,2\n")
    (folder / "timestamp.txt").write_text("2026-10-01 12:00:00 UTC\n")
