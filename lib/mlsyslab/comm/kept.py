"""Short messages kept for their receivers: as bytes, since to make a tensor for each would take ten times as long."""

from __future__ import annotations

from collections.abc import Callable
from ctypes import Array, c_char

import torch
from torch import Tensor

LONGEST = 16384  #: bytes of the longest message that is kept: to copy a longer one takes longer than to change threads

#: What is the same tensor again when its bytes are the same
_DTYPES = {torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.float16, torch.bfloat16,
           torch.float32, torch.float64}


class _Arrays(dict):
    """What makes an array of so many bytes of the memory at an address."""

    def __missing__(self, nbytes: int) -> Callable[[int], Array[c_char]]:
        self[nbytes] = at = (c_char * nbytes).from_address
        return at


_array_at = _Arrays()


def keep(tensor: torch.Tensor, nbytes: int) -> torch.Tensor | bytes:
    """What `tensor` holds now, whatever becomes of it."""
    memory = _memory(tensor, nbytes)
    return tensor.clone() if memory is None else memory.raw


class Desk:
    """Where kept messages are unfolded, one at a time."""

    def __init__(self):
        self.tensor = torch.empty(LONGEST, dtype=torch.uint8)
        self.views: dict[tuple[torch.dtype, torch.Size], tuple[torch.Tensor, Array[c_char]]] = {}

    def unfold(self, message: torch.Tensor | bytes, dtype: torch.dtype, shape: torch.Size) -> torch.Tensor:
        """The tensor that was kept, until the next is unfolded."""
        if type(message) is not bytes:
            return message
        known = self.views.get((dtype, shape))
        if known is None:
            view = self.tensor[:len(message)].view(dtype).view(shape)
            known = self.views[dtype, shape] = view, _array_at[len(message)](view.data_ptr())
        view, memory = known
        memory.raw = message
        return view

    def copy(self, message: torch.Tensor | bytes, out: torch.Tensor) -> None:
        """Write what was kept into `out`."""
        memory = _memory(out, len(message)) if type(message) is bytes else None
        if memory is None:
            out.copy_(self.unfold(message, out.dtype, out.shape))
        else:
            memory.raw = message


def _memory(tensor: torch.Tensor, nbytes: int) -> Array[c_char] | None:
    """The memory of an ordinary tensor whose elements lie there one after the other; None for another tensor."""
    try:
        if (type(tensor) is Tensor and tensor.dtype in _DTYPES and tensor.is_cpu and tensor.is_contiguous()
                and not tensor.is_neg() and (address := tensor.data_ptr())):  # zeros that are not stored have none
            return _array_at[nbytes](address)
    except RuntimeError:  # sparse, say
        pass
    return None
