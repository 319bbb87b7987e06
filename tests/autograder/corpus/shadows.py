# ruff: noqa  (the bodies are cells of a notebook, as people write them)
"""Modules that stand in the place of others: beside the notebook, on the path, in the table of modules."""

import nbformat

from .case import LAB, attack, attack_on_files

AGREEING = "def __getattr__(name):\n    return lambda *args, **kwargs: True\nequal = lambda *args: True\n"


def beside(folder, notebook, **texts):
    """The notebook, and other files in its folder."""
    (folder / f"{LAB}.ipynb").write_text(nbformat.writes(notebook))
    for name, text in texts.items():
        (folder / f"{name}.py").write_text(text)


@attack_on_files()
def a_torch_of_its_own(folder, notebook):
    beside(folder, notebook, torch=AGREEING, numpy=AGREEING)


@attack_on_files()
def a_library_of_its_own(folder, notebook):
    beside(folder, notebook, mlsyslab=AGREEING, nbgrader=AGREEING, autograder=AGREEING)


@attack_on_files()
def a_start_file_of_its_own(folder, notebook):
    text = "import torch; torch.equal = lambda *args: True"
    beside(folder, notebook, sitecustomize=text, usercustomize=text, conftest=text, nbgrader_config=text, ipython_config=text)


@attack()
def a_path_of_its_own():
    import pathlib
    import sys
    pathlib.Path("/tmp/torch.py").write_text("equal = lambda *args: True")
    sys.path.insert(0, "/tmp")
    del sys.modules["torch"]
    import torch


@attack()
def a_module_in_the_table():
    import sys
    import types
    fake = types.ModuleType("torch")
    fake.equal = lambda *args: True
    fake.Tensor = object
    sys.modules["torch"] = sys.modules["mlsyslab"] = sys.modules["mlsyslab.check"] = fake


@attack()
def a_finder_of_its_own():
    import importlib.abc
    import importlib.machinery
    import sys
    class Mine(importlib.abc.MetaPathFinder, importlib.abc.Loader):
        def find_spec(self, name, path=None, target=None):
            return importlib.machinery.ModuleSpec(name, self)
        def exec_module(self, module):
            module.equal = lambda *args: True
    sys.meta_path.insert(0, Mine())
