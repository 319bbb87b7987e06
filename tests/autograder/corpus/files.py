"""Files that are no notebook, or lead elsewhere, or are more than they seem. Nobody's code is in them: a person looks."""

import io
import json
import os
import zipfile

import nbformat

from autograder.outcome import PERSON

from .case import HONEST, LAB, attack_on_cells, attack_on_files, cell, saved

NOTEBOOK = f"{LAB}.ipynb"
LOOK = {"kinds": (PERSON,), "points": None}


@attack_on_files(**LOOK, why="link")
def a_link_to_another_student(folder, notebook):
    (folder / NOTEBOOK).symlink_to(folder.parents[1] / "aaa" / LAB / NOTEBOOK)


@attack_on_files(**LOOK, why="link")
def a_link_to_the_solutions(folder, notebook):
    (folder / NOTEBOOK).symlink_to(folder.parents[3] / "solutions" / LAB / NOTEBOOK)


@attack_on_files(**LOOK, why="link")
def a_folder_that_is_a_link(folder, notebook):
    folder.rmdir()
    folder.symlink_to(folder.parents[1] / "aaa" / LAB)


@attack_on_files(**LOOK)
def a_pipe_that_nobody_writes_to(folder, notebook):
    os.mkfifo(folder / NOTEBOOK)


@attack_on_files(**LOOK)
def a_folder_called_as_the_notebook(folder, notebook):
    (folder / NOTEBOOK).mkdir()


@attack_on_files(**LOOK, why="bytes")
def a_file_far_too_large(folder, notebook):
    with (folder / NOTEBOOK).open("wb") as file:
        file.truncate(1 << 34)  # a hole: it takes no room


@attack_on_files(**LOOK, why="nested too deeply")
def lists_in_lists(folder, notebook):
    (folder / NOTEBOOK).write_text("[" * 200_000)


@attack_on_files(**LOOK, why="no notebook")
def bytes_of_no_meaning(folder, notebook):
    (folder / NOTEBOOK).write_bytes(bytes(range(256)) * 40)


@attack_on_files(**LOOK, why="no notebook")
def a_pickle(folder, notebook):
    (folder / NOTEBOOK).write_bytes(b"cos\nsystem\n(S'touch /tmp/corpus-pickled'\ntR.")


@attack_on_files(**LOOK, why="no notebook")
def a_zip_with_paths_that_climb(folder, notebook):
    held = io.BytesIO()
    with zipfile.ZipFile(held, "w") as archive:
        archive.writestr(f"../../../aaa/{LAB}/{NOTEBOOK}", "{}")
        archive.writestr("/tmp/corpus-unzipped", "x")
        archive.writestr("bomb", bytes(1 << 24))
    (folder / NOTEBOOK).write_bytes(held.getvalue())


@attack_on_files(**LOOK, why="no collectives.ipynb")
def only_an_archive(folder, notebook):
    with zipfile.ZipFile(folder / "collectives.zip", "w") as archive:
        archive.writestr(NOTEBOOK, nbformat.writes(notebook))


@attack_on_files(**LOOK, why="but a.ipynb, b.ipynb")
def two_notebooks_of_other_names(folder, notebook):
    for name in ("a.ipynb", "b.ipynb"):
        (folder / name).write_text(nbformat.writes(notebook))


@attack_on_files(**LOOK, why="merge conflict")
def a_file_in_the_middle_of_a_merge(folder, notebook):
    text = nbformat.writes(notebook)
    (folder / NOTEBOOK).write_text(f"<<<<<<< HEAD\n{text}=======\n{text}>>>>>>> theirs\n")


@attack_on_files(**LOOK, why="timestamp")
def handed_in_before_the_beginning_of_time(folder, notebook):
    saved(lambda notebook: None)(folder, notebook)
    (folder / "timestamp.txt").write_text("-99999-01-01 00:00:00 UTC")


@attack_on_files(**LOOK)
def an_object_of_another_kind(folder, notebook):
    (folder / NOTEBOOK).write_text(json.dumps({"nbformat": 4, "nbformat_minor": 5, "metadata": [], "cells": {"a": 1}}))


@attack_on_cells(kinds=(PERSON,), points=HONEST, why="merge conflict")
def a_cell_in_the_middle_of_a_merge(notebook):
    cell(notebook, "shift").source = "<<<<<<< HEAD\ndef shift(comm, tensor):\n=======\ndef shift(c, t):\n>>>>>>> theirs"


@attack_on_cells()
def cells_called_like_paths(notebook):
    for number, place in enumerate(("../../../aaa/x", "/etc/passwd", "a\x00b", "x" * 10_000)):
        extra = nbformat.v4.new_code_cell("pass", id=f"path-{number}")
        extra.metadata["nbgrader"] = {"grade_id": place}
        extra.metadata["name"] = place
        notebook.cells.append(extra)
