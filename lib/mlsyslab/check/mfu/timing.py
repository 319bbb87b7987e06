"""Judging how a product is timed: by how many were carried out, and by whether such times can be."""

from __future__ import annotations

import itertools
import os
import statistics
import time
from collections.abc import Sequence
from random import Random

import torch

from mlsyslab import measure
from mlsyslab.check import inputs
from mlsyslab.check.elsewhere import Elsewhere
from mlsyslab.check.exercise import Case
from mlsyslab.check.messages import article, count, is_number
from mlsyslab.check.mfu.fields import PACKAGES, case
from mlsyslab.check.mfu.operands import Operands
from mlsyslab.check.watched import Watched

#: FLOPs a second between which a processor's product of matrices lies, however old it is, and however many share it
LEAST, MOST = 0.5e9, 1e14
#: sides of matrices large enough for that to be told from the times
TELLING = 512
#: times by which it can be told whether they are counted from one beginning
SEVERAL = 8


def device_here() -> str:
    """A GPU where there is one; not while a grader runs, which may have no GPU to give away."""
    return "cuda" if torch.cuda.is_available() and inputs.SEED not in os.environ else "cpu"


class ProductSeconds(Watched):
    name, packages, counter = "product_seconds", PACKAGES, Operands

    def cases(self, rng: Random) -> list[Case]:
        found = [(TELLING, torch.float32, "cpu", 2, SEVERAL), (64, torch.float64, "cpu", 0, 3),
                 (128, torch.float32, "cpu", 5, 1), (256, torch.float64, "cpu", 1, 2),
                 (rng.randint(40, 200), torch.float32, "cpu", rng.randint(1, 9), rng.randint(2, 12))]
        if device_here() == "cuda":
            found.insert(0, (8192, torch.bfloat16, "cuda", 5, 20))
        return [self.case(*one) for one in found]

    def case(self, n: int, dtype: torch.dtype, device: str, warm_up: int, repeat: int) -> Case:
        return case((n, dtype, device, warm_up, repeat), None, "n dtype device warm_up repeat",
                    dtype=str(dtype).removeprefix("torch."))

    def watched(self, fn):
        """`fn`, noting besides how long it took; None where it runs elsewhere, and may have run before."""
        inner = super().watched(fn)

        def call(*given):
            begin = time.perf_counter()
            came = inner(*given)
            self.elapsed = None if isinstance(fn, Elsewhere) else time.perf_counter() - begin
            return came
        return call

    def wrong_values(self, came, case):
        *_, warm_up, repeat = case.arguments
        if not isinstance(came, (list, tuple)) or not all(is_number(seconds) for seconds in came):
            text = f"it returned {article(type(came).__name__)}, {came!r:.120}; expected a list of {count(repeat, 'time')}"
            return f"{text}\n  Give the times themselves; the median is a later thought." if is_number(came) else text
        came = list(map(float, came))
        if len(came) != repeat:
            text = f"it returned {count(len(came), 'time')}; expected {repeat}"
            return f"{text}\n  Those of the warm-up don't count." if warm_up and len(came) == warm_up + repeat else text
        if min(came) <= 0:
            return f"one of the times is {min(came):g} s: a time is that at the end less that at the beginning"
        return impossible(came, case, self.elapsed)

    def wrong_way(self, case):
        n, dtype, _, warm_up, repeat = case.arguments
        if self.products != warm_up + repeat:
            return (f"it carried out {count(self.products, 'product')}; expected {warm_up + repeat}, {warm_up} to warm up "
                    f"and {repeat} that are timed\n  {self.why(warm_up, repeat)}")
        least = 3 * n * n * dtype.itemsize
        if case.arguments[2] == "cpu" and self.peak < least:
            return (f"all that was there at one time took {self.peak:,} bytes; two matrices of {n} × {n} numbers of "
                    f"{dtype.itemsize} bytes and their product take {least:,}: "
                    f"{'are `n` and `dtype` used?' if self.peak < least * 2 / 3 else 'are there two matrices?'}")
        return self.counted and self.counted.wrong(warm_up)

    def why(self, warm_up: int, repeat: int) -> str:
        return {0: "Is the product one of torch's, a @ b?", repeat: "The warm-up is left out: carry out `warm_up` products "
                                                                    "before you begin to time.",
                1 + repeat: "Is `warm_up` used? It says how many products don't count.",
                2 * repeat: "Is `warm_up` used? It says how many products don't count.",
                warm_up: "Nothing is carried out between the two looks at the clock.",
                warm_up + 1: "Time each of `repeat` products by itself; one time divided says nothing of their spread.",
                }.get(self.products, "One product for each time, and `warm_up` before them.")


def impossible(times: Sequence[float], case: Case, elapsed: float | None) -> str | None:
    """Why these can't be the times of single products, in seconds."""
    n, dtype, device, *_ = case.arguments
    rate, shown = 2 * n**3 / statistics.median(times), f"{statistics.median(times):.3g} s"
    most = fastest(device, dtype)
    if rate > most and n >= TELLING:
        waits = "does it wait for the GPU, torch.cuda.synchronize(), before it stops the clock?" if device == "cuda" else \
            "is the product carried out between the two looks at the clock?"
        return f"the median, {shown}, is too short for {2 * n**3 / 1e9:,.1f} billion FLOPs on this device: {waits}"
    if len(times) >= SEVERAL and all(a < b for a, b in itertools.pairwise(times)) and times[-1] > len(times) / 2 * times[0]:
        return "the times grow and grow: each is to be that of one product, not that since the first one began"
    if len(times) >= SEVERAL and len(set(times)) == 1:
        return "all times are the same: time each product by itself; one time divided says nothing of their spread"
    if elapsed is not None and sum(times) > elapsed:
        return (f"the times add up to {sum(times):.3g} s, but the whole call took {elapsed:.3g} s: is each the "
                "time of one product, and in seconds?")
    if rate < LEAST and n >= TELLING:
        return f"the median, {shown}, is too long for a product of {n} × {n} matrices: are the times in seconds?"
    return None


def fastest(device: str, dtype: torch.dtype) -> float:
    """FLOPs a second that this device can't exceed, as far as it is known."""
    if device == "cpu":
        return MOST
    known, precision = measure.hardware.this_device(), measure.hardware.precision_name(dtype)
    return measure.peak(known, precision).flops if known and precision in known.precisions() else 1e16
