"""What is left of the library in the sandbox.

The files of what is withheld aren't there at all; here is what an `import` of it finds instead. A module that only looks
(pictures, checks) does nothing, so that a cell that calls it goes on; what would be the answer says that it is withheld.
"""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.machinery
import sys
from types import ModuleType
from typing import Any

from mlsyslab.comm.simulate import SimulatedCommunicator

from .definitions import DEFINED
from .errors import Forbidden
from .line import Line
from .log import Logged

QUIET = ("mlsyslab.draw", "mlsyslab.check", "mlsyslab.bench")


class Nothing:
    """Whatever is asked of it, it gives itself and does nothing."""

    def __getattr__(self, name: str) -> Nothing:
        if name.startswith("__"):
            raise AttributeError(name)
        return self

    def __call__(self, *args: Any, **kwargs: Any) -> Nothing:
        return self

    def __repr__(self) -> str:
        return "nothing is checked or drawn here"


class Quiet(ModuleType):
    """A module that looks and does nothing."""

    __path__: list[str] = []

    def __getattr__(self, name: str) -> Nothing:
        if name.startswith("__"):
            raise AttributeError(name)
        return Nothing()


class Withheld(ModuleType):
    """A module that holds answers.  kept: modules of it that are there.  asked: functions that the judge calls instead."""

    __path__: list[str] = []

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        raise Forbidden(f"{self.__name__} is called (its {name}): in this exercise you write that yourself")


class Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds in place of the library's modules what stands for them.

    withheld: names of modules.  kept: modules in them that are there after all.  asked: for a module, the names of the
    functions that the judge calls.
    """

    def __init__(self, line: Line, withheld: list[str], kept: list[str], asked: dict[str, list[str]]):
        self.line, self.withheld, self.kept, self.asked = line, withheld, kept, asked

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> importlib.machinery.ModuleSpec | None:
        if within(name, (*QUIET, *self.withheld)) and not within(name, self.kept):
            return importlib.machinery.ModuleSpec(name, self, is_package=True)
        return None

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType:
        return (Quiet if within(spec.name, QUIET) else Withheld)(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        folder, *_ = sys.modules["mlsyslab"].__path__
        module.__path__ = ["/".join((folder, *module.__name__.split(".")[1:]))]
        for name in self.asked.get(module.__name__, ()):
            setattr(module, name, self.remote(module.__name__, name))
        if isinstance(module, Withheld):
            for name in self.kept:
                if name.rpartition(".")[0] == module.__name__:
                    keep(module, name)

    def remote(self, module: str, name: str) -> Any:
        def call(*args: Any, **kwargs: Any) -> Any:
            comm = args[0] if args else kwargs.get("comm")
            if name in DEFINED and isinstance(comm, (Logged, SimulatedCommunicator)):
                if isinstance(comm, Logged):
                    comm.library(module, name, args, kwargs)
                return DEFINED[name](*args, **kwargs)
            return self.line.request("library", module, name, list(args), kwargs, blocks=True)
        call.__name__ = call.__qualname__ = name
        call.__module__ = module
        return call


def keep(package: ModuleType, name: str) -> None:
    """Let a withheld package have what one of its modules names."""
    module = importlib.import_module(name)
    for public in getattr(module, "__all__", [key for key in vars(module) if not key.startswith("_")]):
        setattr(package, public, getattr(module, public))
    delattr(package, name.rpartition(".")[2])  # in the package itself, what has this name may be another thing


def within(name: str, modules: Any) -> bool:
    """Whether a module is one of these or in one of them."""
    return any(name == module or name.startswith(module + ".") for module in modules)
