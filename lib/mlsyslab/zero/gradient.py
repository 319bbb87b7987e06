"""The gradient of a flat on its way: from backward, parameter by parameter, to the sum over all ranks."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from mlsyslab.zero.flat import Flat
from mlsyslab.zero.ledger import Ledger


class Gradient:
    """What this rank has of one flat's gradient.

    whole: (length,) this rank's own gradient, where it has one now.  shard: this rank's part of the sum over all ranks.
    """

    def __init__(self, flat: Flat, ledger: Ledger):
        self.flat, self.ledger = flat, ledger
        self.whole: torch.Tensor | None = None
        self.shard: torch.Tensor | None = None
        self.held: dict[int, torch.Tensor] = {}  # gradients that are not in `whole` yet, by number of the parameter
        self.filled: set[int] = set()  # the parameters whose gradient is in `whole`
        self.came: set[int] = set()  # … and has come since this backward began

    def add(self, i: int, gradient: torch.Tensor) -> None:
        """Take in the gradient of parameter number i."""
        place = self.flat.place(i, self.room())
        if i in self.filled:
            place += gradient
        else:
            place.copy_(gradient)
        self.filled.add(i)
        self.came.add(i)

    def hold(self, i: int, gradient: torch.Tensor) -> None:
        """Take in the gradient of parameter number i as autograd has made it; it is put into `whole` by `fill`.

        So `whole` needs its memory no earlier than that, when the one before it has been reduced.
        """
        if i in self.held:
            self.held[i] += gradient
        else:
            self.held[i] = gradient
            self.ledger.take("gradients", gradient.nbytes)
        self.came.add(i)

    @property
    def complete(self) -> bool:
        """Whether the gradients of all parameters have come."""
        return len(self.came) == len(self.flat.parameters)

    def fill(self) -> torch.Tensor:
        """`whole`, with zeros for parameters that the loss doesn't depend on."""
        whole = self.room()
        for i in list(self.held):
            self.add(i, self._release(i))
        for i in set(range(len(self.flat.parameters))) - self.filled:
            self.flat.place(i, whole).zero_()
        return whole

    def room(self) -> torch.Tensor:
        """Memory for `whole`."""
        if self.whole is None:
            self.whole = torch.empty(self.flat.length, dtype=self.flat.dtype, device=self.flat.device)
            self.ledger.take("gradients", self.whole.nbytes)
        return self.whole

    # -- when `whole` holds, in this rank's part, the sum over all ranks ----------------------------------------------

    def point(self, rank: int) -> None:
        """The shard is where it is in `whole`, which stays."""
        self.shard = self.flat.parts(self.whole)[rank]

    def keep(self, rank: int) -> None:
        """Add this rank's part to the shard, and let go of the rest."""
        part = self.flat.parts(self.whole)[rank]
        if self.shard is None:
            self.shard = part.clone()
            self.ledger.take("gradients", self.shard.nbytes)
        else:
            self.shard += part
        self._drop_whole()

    def forget(self) -> None:
        """Begin anew. Memory for a whole gradient stays, if there is any: the next step needs it again."""
        if self.shard is not None and self.whole is None:
            self.ledger.give("gradients", self.shard.nbytes)
        self.shard = None
        self.filled.clear()
        for i in list(self.held):
            self._release(i)

    def _release(self, i: int) -> torch.Tensor:
        self.ledger.give("gradients", self.held[i].nbytes)
        return self.held.pop(i)

    def _drop_whole(self) -> None:
        self.ledger.give("gradients", self.whole.nbytes)
        self.whole = None
        self.filled.clear()

    def tensors(self) -> Iterator[torch.Tensor]:
        return (tensor for tensor in (self.whole, self.shard, *self.held.values()) if tensor is not None)
