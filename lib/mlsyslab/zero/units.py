"""What stage 3 gathers at one time: a module with its parameters."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from torch import nn

from mlsyslab.zero.flat import Flat, Named, flats_of


class Unit:
    """A module whose parameters come and go together.

    flats: its parameters that belong to no unit inside it.
    uses: forward passes whose backward is still to come.
    """

    def __init__(self, name: str, module: nn.Module, parameters: list[Named], ranks: int):
        self.name, self.module = name, module
        self.flats: list[Flat] = flats_of(parameters, ranks, name or "model")
        self.inside = set(module.modules())
        self.uses = 0

    def holds(self, other: Unit) -> bool:
        """Whether `other` is this unit or lies inside it."""
        return other.module in self.inside


CONTAINERS = nn.ModuleList, nn.ModuleDict, nn.Sequential


def default_units(model: nn.Module) -> list[nn.Module]:
    """The children of `model` and, of children that only hold others, theirs."""

    def inside(module: nn.Module) -> Iterator[nn.Module]:
        for child in module.children():
            yield from inside(child) if isinstance(child, CONTAINERS) else [child]

    return [module for module in inside(model) if any(True for _ in module.parameters())]


def units_of(model: nn.Module, modules: Sequence[nn.Module] | None, parameters: list[Named], ranks: int) -> list[Unit]:
    """The units of `model`, in its order; each parameter is in the smallest unit that holds all its uses.

    modules: which modules are to be units; `default_units` where None is given. The model itself is one where a parameter
    lies in none of them, or, tied, in several.
    """
    modules = default_units(model) if modules is None else list(modules)
    known = {module: name for name, module in model.named_modules()}
    for module in modules:
        if module not in known:
            raise ValueError(f"units: {type(module).__name__} is no module of the model")
    candidates = [module for module in known if module in set(modules) or module is model]
    names = dict(parameters)
    of: dict[nn.Module, list[Named]] = {module: [] for module in candidates}
    users: dict[nn.Parameter, list[nn.Module]] = {}
    for module in known:
        for parameter in module.parameters(recurse=False):
            users.setdefault(parameter, []).append(module)
    inside = {module: set(module.modules()) for module in candidates}
    for name, parameter in names.items():
        around = [module for module in candidates if inside[module].issuperset(users[parameter])]
        of[min(around, key=lambda module: len(inside[module]))].append((name, parameter))
    return [Unit(known[module], module, of[module], ranks) for module in candidates if of[module]]
