"""A guide to training a model: does it fit, is it done in time, and if not, what next? Each answer with its reason.

First what costs nothing, then what costs time, then more devices: one device; memory saved by accumulation and checkpointing
(swapping comes last, it waits for a slow link); data parallelism for time; the model itself split only where it must be.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from mlsyslab.measure.hardware import Device, device, peak
from mlsyslab.memory.budget import training_days
from mlsyslab.memory.lifetime import training
from mlsyslab.memory.units import positive, whole
from mlsyslab.model.config import Config
from mlsyslab.model.flops import training_flops

#: of a device's memory, what a job can use; the rest goes to the framework, workspaces and fragmentation
USABLE = 0.9


@dataclass(frozen=True)
class Plan:
    """fits: whether one device holds the model in training, as planned.  batch, accumulate: sequences at a time on a device,
    and how many times before an update.  recompute: what is computed again.  replicas, split: copies of the model, and
    devices that share one copy.  days: of training.  steps: what was asked, and answered, in order."""

    fits: bool
    batch: int
    accumulate: int
    recompute: str | None
    replicas: int
    split: int
    days: float
    peak_bytes: float
    steps: tuple[str, ...]

    @property
    def devices(self) -> int:
        return self.replicas * self.split

    def __str__(self) -> str:
        return "\n".join(self.steps)


def plan(config: Config, tokens: float, of: Device | str, *, batch: int = 1, days: float | None = None, mfu: float = 0.4,
         core: str = "fused") -> Plan:
    """Plan to train `config` on `tokens` tokens, `batch` sequences an update, on devices of one kind, in mixed precision.

    days: the longest that is acceptable; any when not given.  mfu: of a device without recomputation, 0 … 1.
    core: attention, "fused" or "written".
    """
    of = device(of) if isinstance(of, str) else of
    whole("batch", batch), positive("tokens", tokens)
    if days is not None:
        positive("days", days)
    guide = _Guide(config, tokens, of, batch, mfu, core)
    guide.fit()
    guide.in_time(days)
    return guide.plan


class _Guide:
    """Goes through the questions, changing the plan where an answer asks for it."""

    def __init__(self, config: Config, tokens: float, of: Device, batch: int, mfu: float, core: str):
        self.config, self.tokens, self.of, self.total, self.core = config, tokens, of, batch, core
        self.mfu, self.room = mfu, USABLE * of.memory * 1e9
        self.rate = peak(of, "bf16" if "bf16" in of.tensor else "fp16").flops
        held = self._peak(batch, None)
        self.plan = Plan(held <= self.room, batch, 1, None, 1, 1, 0.0, held, ())

    def fit(self) -> None:
        """Does it fit on one device? If not: checkpointing, then smaller parts of the batch, then both, then splitting."""
        self._say(f"Does it fit? A step of {self.total} sequences holds {_gb(self.plan.peak_bytes)}, {self.of.name} has "
                  f"{_gb(self.room)} to use: {'yes' if self.plan.fits else 'no'}.")
        if self.plan.fits:
            return
        for recompute, why in ((None, "accumulate gradients over smaller parts; it costs no FLOPs"),
                               ("selective", "compute attention's core again as well; it costs few FLOPs"),
                               ("full", "compute every block again as well; it costs a third more FLOPs")):
            if recompute == "selective" and self.core == "fused":
                continue  # a fused core keeps no weights to save
            part = self._largest_part(recompute)
            if part:
                held = self._peak(part, recompute)
                times = math.ceil(self.total / part)
                self.plan = replace(self.plan, fits=True, batch=part, accumulate=times, recompute=recompute, peak_bytes=held)
                self._say(f"With {part} at a time it holds {_gb(held)} and fits: {why}.")
                return
        held = self._peak(1, "full")
        split = math.ceil(held / self.room)
        self.plan = replace(self.plan, batch=1, accumulate=self.total, recompute="full", split=split,
                            peak_bytes=held / split)
        self._say(f"One sequence with every block computed again still holds {_gb(held)}. Swapping would wait for the link "
                  f"to the host. So the model is split over at least {split} devices, by layers or within them.")

    def in_time(self, days: float | None) -> None:
        """Is the time acceptable? If not: data parallelism, as far as the batch can be shared out."""
        needed = self._days(1)
        found = replace(self.plan, days=needed)
        if days is None or needed <= days:
            verdict = "acceptable" if days is not None else "for you to judge"
            self.plan = found
            self._say(f"Is the time acceptable? {needed:,.1f} days on {self.plan.split} device(s): {verdict}.")
            return
        replicas = math.ceil(needed / days - 1e-9)
        share = max(1, self.total // replicas)
        self.plan = replace(found, replicas=replicas, days=self._days(replicas), batch=min(self.plan.batch, share),
                            accumulate=max(1, math.ceil(share / self.plan.batch)))
        self._say(f"Is the time acceptable? {needed:,.1f} days on {self.plan.split} device(s) are more than {days:g}: no. "
                  f"With {replicas} replicas, data-parallel, {self.plan.days:,.1f} days, if the MFU stays: look at the "
                  "links next.")
        if replicas > self.total:
            self._say(f"But {replicas} replicas of at least one sequence each make a batch larger than {self.total}: take "
                      "a larger batch, or split the model within its layers so that each replica is faster.")

    def _days(self, replicas: int) -> float:
        """Recomputation makes the same model FLOPs take longer: the MFU falls by the ratio of the two."""
        again = training_flops(self.config, 1, recompute=self.plan.recompute) / training_flops(self.config, 1)
        return training_days(self.config, self.tokens, replicas * self.plan.split, self.rate, self.mfu / again)

    def _largest_part(self, recompute: str | None) -> int:
        """The most sequences at a time that fit, 0 if none does; what is held grows with them."""
        low, high = 0, self.total
        while low < high:
            middle = (low + high + 1) // 2
            low, high = (middle, high) if self._peak(middle, recompute) <= self.room else (low, middle - 1)
        return low

    def _peak(self, batch: int, recompute: str | None) -> int:
        return training(self.config, batch, precision="mixed", core=self.core, recompute=recompute, device="cuda").peak

    def _say(self, step: str) -> None:
        self.plan = replace(self.plan, steps=(*self.plan.steps, step))


def _gb(n: float) -> str:
    return f"{n / 1e9:,.1f} GB"
