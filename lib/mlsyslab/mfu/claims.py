"""Utilizations as published, with what it takes to compute them again.

Narayanan et al. 2021 print throughput, no times; the seconds of a step are what their equation 3 makes of the aggregate
FLOP/s. Their "percentage of theoretical peak" counts recomputation, so it is an HFU, though the word was coined later.
"""

from __future__ import annotations

from dataclasses import dataclass

from mlsyslab.measure.hardware import peak
from mlsyslab.measure.utilization import utilization
from mlsyslab.model.config import Config
from mlsyslab.model.flops import palm_flops_per_token, training_flops
from mlsyslab.model.published import published


@dataclass(frozen=True)
class Claim:
    """One published utilization.

    model: name in `model.PUBLISHED`.  batch: sequences a step, all devices together.  seconds: of a step.
    recompute: what the run computed again.  mfu, hfu: as printed, in percent; None where not printed.
    counting: how its authors counted FLOPs, see `flops`.
    """

    name: str
    model: str
    device: str
    devices: int
    batch: int
    seconds: float
    recompute: str | None
    counting: str
    mfu: float | None
    hfu: float | None
    source: str

    @property
    def config(self) -> Config:
        return published(self.model).config

    def flops(self) -> tuple[float, float]:
        """Model FLOPs and hardware FLOPs of a step, as the authors count them.

        "exact": matrix products, as `model.training_flops`.
        "korthikanti": the same, but selective recomputation as 72 B L s h^2 (1 + s/3h + V/12Lh), their equation 8. That
        adds all three passes of attention's core; one more forward makes 2s/9h (`counted`).
        "palm": 6N + 12LHQT a token, N without rounding.
        """
        model = training_flops(self.config, self.batch)
        if self.counting == "palm":
            a_token = palm_flops_per_token(published(self.model).billions * 1e9, self.config)
            return (a_token * self.batch * self.config.sequence,) * 2
        if self.counting == "korthikanti" and self.recompute == "selective":
            c = self.config
            return model, model + 12 * self.batch * c.layers * c.sequence**2 * c.hidden
        return model, training_flops(self.config, self.batch, recompute=self.recompute)

    def reproduced(self) -> tuple[float, float]:
        """MFU and HFU in percent, computed again."""
        of_one = peak(self.device, "bf16")
        return tuple(100 * utilization(flops, self.seconds, of_one, self.devices) for flops in self.flops())

    def counted(self) -> float:
        """HFU in percent, if what is recomputed is counted once."""
        flops = training_flops(self.config, self.batch, recompute=self.recompute)
        return 100 * utilization(flops, self.seconds, peak(self.device, "bf16"), self.devices)


def claim(name: str) -> Claim:
    """The claim of that name."""
    if name not in CLAIMS:
        raise ValueError(f"claim({name!r}): there are {', '.join(CLAIMS)}")
    return CLAIMS[name]


@dataclass(frozen=True)
class NarayananRow:
    """A row of table 1 of Narayanan et al. 2021, as printed: billions of parameters, GPUs, batch, TFLOP/s a GPU, percent of
    peak, aggregate PFLOP/s; tensor- and pipeline-parallel sizes."""

    model: str
    tensor: int
    pipeline: int
    gpus: int
    batch: int
    tflops: int
    percent: int
    pflops: float

    @property
    def seconds(self) -> float:
        """Of a step: equation 3 over the aggregate FLOP/s."""
        return training_flops(published(self.model).config, self.batch, recompute="full") / (self.pflops * 1e15)


NARAYANAN = (
    NarayananRow("megatron-1.7b", 1, 1, 32, 512, 137, 44, 4.4),
    NarayananRow("megatron-3.6b", 2, 1, 64, 512, 138, 44, 8.8),
    NarayananRow("megatron-7.5b", 4, 1, 128, 512, 142, 46, 18.2),
    NarayananRow("megatron-18.4b", 8, 1, 256, 1024, 135, 43, 34.6),
    NarayananRow("megatron-39.1b", 8, 2, 512, 1536, 138, 44, 70.8),
    NarayananRow("megatron-76.1b", 8, 4, 1024, 1792, 140, 45, 143.8),
    NarayananRow("megatron-145.6b", 8, 8, 1536, 2304, 148, 47, 227.1),
    NarayananRow("megatron-310.1b", 8, 16, 1920, 2160, 155, 50, 297.4),
    NarayananRow("megatron-529.6b", 8, 35, 2520, 2520, 163, 52, 410.2),
    NarayananRow("megatron-1008b", 8, 64, 3072, 3072, 163, 52, 502.0),
)


@dataclass(frozen=True)
class TrainingTime:
    """A row of table 2 of Narayanan et al. 2021: 300 billion tokens on so many GPUs at so many TFLOP/s each, in days."""

    model: str
    scheme: str
    gpus: int
    tflops: int
    days: int


TRAINING_TIMES = tuple(TrainingTime(*row) for row in (
    ("megatron-175b", "ZeRO-3", 384, 144, 90), ("megatron-175b", "ZeRO-3", 768, 88, 74),
    ("megatron-175b", "ZeRO-3", 1536, 44, 74), ("megatron-529.6b", "ZeRO-3", 640, 138, 169),
    ("megatron-529.6b", "ZeRO-3", 1120, 98, 137), ("megatron-529.6b", "ZeRO-3", 2240, 48, 140),
    ("megatron-175b", "PTD", 384, 153, 84), ("megatron-175b", "PTD", 768, 149, 43), ("megatron-175b", "PTD", 1536, 141, 23),
    ("megatron-529.6b", "PTD", 560, 171, 156), ("megatron-529.6b", "PTD", 1120, 167, 80),
    ("megatron-529.6b", "PTD", 2240, 159, 42)))


def _narayanan(row: NarayananRow) -> Claim:
    return Claim(f"narayanan {row.model.removeprefix('megatron-')}", row.model, "A100 SXM 80GB", row.gpus, row.batch,
                 row.seconds, "full", "exact", None, row.percent, "Narayanan et al. 2021, table 1")


def _korthikanti(name: str, model: str, gpus: int, batch: int, full: float, selective: float, mfu: float,
                 hfu: float) -> list[Claim]:
    """Two runs of one model: everything recomputed (no utilization printed), and attention's core alone."""
    source = "Korthikanti et al. 2022, tables 3 and 5; the percentages also in Megatron-LM's README of 2022"
    common = model, "A100 SXM 80GB", gpus, batch
    return [Claim(f"korthikanti {name}", *common, selective, "selective", "korthikanti", mfu, hfu, source),
            Claim(f"korthikanti {name}, full recomputation", *common, full, "full", "korthikanti", None, None, source)]


CLAIMS = {claim.name: claim for claim in (
    *map(_narayanan, NARAYANAN),
    *_korthikanti("22b", "megatron-22b", 8, 4, 1.42, 1.10, 41.5, 43.7),
    *_korthikanti("175b", "megatron-175b", 64, 64, 18.13, 13.75, 51.4, 52.8),
    *_korthikanti("530b", "megatron-529.6b", 280, 280, 49.05, 37.83, 56.0, 57.0),
    *_korthikanti("1t", "megatron-1008b", 512, 512, 94.42, 71.49, 56.3, 57.0),
    Claim("palm 540b", "palm-540b", "TPU v4", 6144, 2048, 2048 * 2048 / 238.3e3, None, "palm", 46.2, None,
          "Chowdhery et al. 2022, section 4.1 and appendix B: 238.3K tokens/s"),
    Claim("mt-nlg 530b", "megatron-529.6b", "A100 SXM 80GB", 2240, 1920, 60.1, None, "palm", 30.2, None,
          "Chowdhery et al. 2022, section 4.1, from Smith et al. 2022: 60.1 s a step"),
)}
