"""The base of this lab's checks of what makes tensors: the library's own ways to save memory are kept out."""

from __future__ import annotations

from mlsyslab import memory
from mlsyslab.check import watched


class Watched(watched.Watched):
    packages = (memory,)
