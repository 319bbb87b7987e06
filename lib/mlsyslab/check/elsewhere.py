"""A student's function that runs in another process, and is watched there."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from mlsyslab.comm import Network

if TYPE_CHECKING:
    from mlsyslab.check.runs import Outcome


class Elsewhere(ABC):
    """Stands for a function that runs in another process: what a check would watch here is watched there.

    The autograder's stubs are such. Called, it gives back what the function gives back.
    """

    @abstractmethod
    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """One call; a `Communicator` among the arguments stays in this process."""

    @abstractmethod
    def run(self, arguments: Sequence[tuple], link: Network, forbidden: Sequence[str] | None, timeout: float,
            watch: bool) -> Outcome:
        """`mlsyslab.check.runs.run` of it."""

    @abstractmethod
    def watched(self, *args: Any) -> tuple[Any, int, int, bool]:
        """One call: what it gives back, how many matrix products it took, the most bytes that the tensors it made took at
        one time, and whether it changed an argument."""
