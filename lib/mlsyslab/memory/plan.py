"""A guide to training a model: does it fit, is it done in time, and if not, what next? Each answer with its reason.

First what costs nothing, then what costs time, then more devices: one device; memory saved by accumulation and checkpointing
(swapping comes last, it waits for a slow link); the optimizer's state shared out among replicas; the model itself split only
where it must be; data parallelism for time.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from mlsyslab.measure.hardware import Device, device, peak
from mlsyslab.memory.budget import training_days
from mlsyslab.memory.lifetime import training
from mlsyslab.memory.states import state_bytes
from mlsyslab.memory.units import positive, whole
from mlsyslab.model.config import Config
from mlsyslab.model.flops import training_flops
from mlsyslab.model.parameters import parameters

#: of a device's memory, what a job can use; the rest goes to the framework, workspaces and fragmentation
USABLE = 0.9


@dataclass(frozen=True)
class Plan:
    """fits: whether one device holds the model in training, as planned.  batch, accumulate: sequences at a time on a device,
    and how many times before an update.  recompute: what is computed again.  replicas, split: copies of the model, and
    devices that share one copy.  sharded: among how many replicas the optimizer's state is shared out (ZeRO, stage 1).
    days: of training.  steps: what was asked, and answered, in order."""

    fits: bool
    batch: int
    accumulate: int
    recompute: str | None
    replicas: int
    split: int
    sharded: int
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
        self.state = state_bytes(parameters(config))["optimizer"]
        self.plan = Plan(False, batch, 1, None, 1, 1, 1, 0.0, 0.0, ())
        held = self._peak(batch, None)
        self.plan = replace(self.plan, fits=held <= self.room, peak_bytes=held)

    def fit(self) -> None:
        """Does it fit on one device? If not: in parts, with checkpoints, with a sharded state; and only then split."""
        self._say(f"Does it fit? A step of {self.total} sequences holds {_gb(self.plan.peak_bytes)}, {self.of.name} has "
                  f"{_gb(self.room)} to use: {'yes' if self.plan.fits else 'no'}.")
        if self.plan.fits:
            return
        if self._fits_in_parts():
            return
        held = self._peak(1, "full")
        self._say(f"One sequence with every block computed again still holds {_gb(held)}. Swapping would wait for the link "
                  "to the host.")
        ranks = self._least_ranks(held)
        if ranks:
            self._say(f"Of the optimizer's state each of {ranks} data-parallel replicas needs to keep its part only "
                      "(ZeRO, stage 1); it costs no traffic.")
            self.plan = replace(self.plan, replicas=ranks, sharded=ranks)
            self._fits_in_parts()
            return
        split = math.ceil(held / self.room)
        self.plan = replace(self.plan, batch=1, accumulate=self.total, recompute="full", split=split,
                            peak_bytes=held / split)
        self._say(f"So the model is split over at least {split} devices, by layers or within them.")

    @property
    def share(self) -> int:
        """Sequences of an update that a replica has, the one with the most."""
        return math.ceil(self.total / self.plan.replicas)

    def _fits_in_parts(self) -> bool:
        """Whether a replica's share of the batch fits in parts; plans the gentlest way in which it does."""
        for recompute, why in ((None, "accumulate gradients over smaller parts; it costs no FLOPs"),
                               ("selective", "compute attention's core again as well; it costs few FLOPs"),
                               ("full", "compute every block again as well; it costs a third more FLOPs")):
            if recompute == "selective" and self.core == "fused":
                continue  # a fused core keeps no weights to save
            part = self._largest_part(recompute)
            if part:
                held = self._peak(part, recompute)
                times = math.ceil(self.share / part)
                self.plan = replace(self.plan, fits=True, batch=part, accumulate=times, recompute=recompute, peak_bytes=held)
                self._say(f"With {part} at a time it holds {_gb(held)} and fits: {why}.")
                return True
        return False

    def _least_ranks(self, held: float) -> int:
        """The fewest replicas, of at least a sequence each, that fit when the optimizer's state is shared out; 0: none."""
        room = self.room - (held - self.state)  # for a rank's part of the state
        ranks = math.ceil(self.state / room) if room > 0 else 0
        return ranks if ranks <= self.total else 0

    def in_time(self, days: float | None) -> None:
        """Is the time acceptable? If not: data parallelism, as far as the batch can be shared out."""
        needed, least = self._days(self.plan.replicas), self.plan.replicas
        found = replace(self.plan, days=needed)
        if days is None or needed <= days:
            verdict = "acceptable" if days is not None else "for you to judge"
            self.plan = found
            self._say(f"Is the time acceptable? {needed:,.1f} days on {self.plan.devices} device(s): {verdict}.")
            return
        replicas = math.ceil(least * needed / days - 1e-9)
        share = max(1, self.total // replicas)
        self.plan = replace(found, replicas=replicas, days=self._days(replicas), batch=min(self.plan.batch, share),
                            accumulate=max(1, math.ceil(share / self.plan.batch)))
        self._say(f"Is the time acceptable? {needed:,.1f} days on {least * self.plan.split} device(s) are more than "
                  f"{days:g}: no. With {replicas} replicas, data-parallel, {self.plan.days:,.1f} days, if the MFU stays: "
                  "look at the links next.")
        if replicas > self.total:
            self._say(f"But {replicas} replicas of at least one sequence each make a batch larger than {self.total}: take "
                      "a larger batch, or split the model within its layers so that each replica is faster.")

    def _days(self, replicas: int) -> float:
        """Recomputation makes the same model FLOPs take longer: the MFU falls by the ratio of the two."""
        again = training_flops(self.config, 1, recompute=self.plan.recompute) / training_flops(self.config, 1)
        return training_days(self.config, self.tokens, replicas * self.plan.split, self.rate, self.mfu / again)

    def _largest_part(self, recompute: str | None) -> int:
        """The most sequences at a time that fit, 0 if none does; what is held grows with them."""
        low, high = 0, self.share
        while low < high:
            middle = (low + high + 1) // 2
            low, high = (middle, high) if self._peak(middle, recompute) <= self.room else (low, middle - 1)
        return low

    def _peak(self, batch: int, recompute: str | None) -> float:
        """Bytes on a device; of the optimizer's state, which is there all the time, its part."""
        run = training(self.config, batch, precision="mixed", core=self.core, recompute=recompute, device="cuda")
        return run.peak - self.state * (1 - 1 / self.plan.sharded)

    def _say(self, step: str) -> None:
        self.plan = replace(self.plan, steps=(*self.plan.steps, step))


def _gb(n: float) -> str:
    return f"{n / 1e9:,.1f} GB"
