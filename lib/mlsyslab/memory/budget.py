"""Training on paper: days for a number of tokens, devices for a number of days, the best size for a budget of FLOPs."""

from __future__ import annotations

import math

from mlsyslab.memory.units import positive, whole
from mlsyslab.model.config import Config
from mlsyslab.model.flops import flops_per_token

SECONDS_A_DAY = 86_400


def training_days(config: Config, tokens: float, devices: int, peak: float, mfu: float) -> float:
    """Days to train on `tokens` tokens: FLOPs over devices * peak * MFU.

    peak: FLOP/s of a device.  mfu: 0 … 1, that of the whole system, recomputation and communication included.
    """
    positive("tokens", tokens), whole("devices", devices), positive("peak", peak)
    return tokens * flops_per_token(config) / (devices * peak * _share(mfu)) / SECONDS_A_DAY


def devices_for(config: Config, tokens: float, days: float, peak: float, mfu: float) -> int:
    """How many devices finish in `days` days, if the MFU stays as it is."""
    positive("days", days)
    return math.ceil(training_days(config, tokens, 1, peak, mfu) / days - 1e-9)


def narayanan_days(parameters: float, tokens: float, devices: int, achieved: float) -> float:
    """8 T P / (n X): everything recomputed, and counted in the X FLOP/s a device (Narayanan et al. 2021, equation 4)."""
    return 8 * tokens * parameters / (devices * achieved) / SECONDS_A_DAY


def compute_optimal(flops: float) -> tuple[float, float]:
    """Parameters and tokens that a budget of `flops` is best spent on: C = 6 N D with D = 20 N (Hoffmann et al. 2022).

    The paper's three approaches agree that N and D grow alike, about as the square root of C; 20 tokens a parameter is the
    rule of thumb drawn from them, as in Chinchilla's 70 billion parameters and 1.4 trillion tokens.
    """
    parameters = math.sqrt(positive("flops", flops) / 120)
    return parameters, 20 * parameters


def _share(mfu: float) -> float:
    if not 0 < mfu <= 1:
        raise ValueError(f"mfu={mfu!r}: a utilization is more than 0 and at most 1, as 0.4 for 40 percent")
    return mfu
