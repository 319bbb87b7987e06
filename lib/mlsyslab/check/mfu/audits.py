"""Judging what is wrong with a published utilization."""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from random import Random
from typing import Any

from mlsyslab import measure
from mlsyslab.check.exercise import Case
from mlsyslab.check.messages import listing
from mlsyslab.check.mfu.fields import Fields, quoted

ERRORS = ("sparse", "precision", "recomputation", "embedding", "warm-up")
#: Whose peaks the lab prints, and in which precisions.
DEVICES, PRECISIONS = ("A100 SXM 80GB", "H100 SXM", "B200"), ("fp32", "tf32", "bf16")
PEAKS = {device: {precision: measure.peak(device, precision).flops for precision in PRECISIONS} for device in DEVICES}
#: Percentage points by which a claim differs from every other reading of its numbers.
APART = 0.25

_SEVEN = {"multiplied": 6_607_077_376, "embedding": 131_072_000}
#: Those that the lab prints: sparse peak, recomputation counted, warm-up included.
CLAIMS: list[dict[str, Any]] = [
    {"device": "H100 SXM", "devices": 256, "precision": "bf16", "tokens": 4_194_304, "warm_up": 2,
     "seconds": [9.83, 1.74, 1.52, 1.515, 1.516, 1.519, 1.514, 1.517, 1.516], **_SEVEN, "attention": 3_221_225_472,
     "recomputed": 0, "percent": 23.4},
    {"device": "A100 SXM 80GB", "devices": 64, "precision": "bf16", "tokens": 1_048_576, "warm_up": 1,
     "seconds": [8.41, 6.9, 6.88, 6.89, 6.887, 6.88, 6.885, 6.893], **_SEVEN, "attention": 12_884_901_888,
     "recomputed": 17_246_978_048, "percent": 53.2},
    {"device": "B200", "devices": 16, "precision": "bf16", "tokens": 524_288, "warm_up": 2,
     "seconds": [6.92, 2.31, 1.6, 1.61, 1.61, 1.6, 1.61, 1.62, 1.6, 1.61, 1.61, 1.6], **_SEVEN, "attention": 6_442_450_944,
     "recomputed": 0, "percent": 31.8},
]


class Audit(Fields):
    name = "audit"
    nouns = {"mfu": "a fraction", "error": f"None, {listing(map(quoted, ERRORS))}"}

    def cases(self, rng: Random) -> list[Case]:
        drawn = [made(rng, error) for _ in range(4) for error in (None, *ERRORS)]
        return [self.case(claim, letter) for claim, letter in
                zip([*CLAIMS, *drawn], [*"ABC", *(f"number {n}" for n in range(1, len(drawn) + 1))], strict=True)]

    def case(self, claim: dict[str, Any], called: str) -> Case:
        return Case((claim,), {"mfu": utilization(claim), "error": error_of(claim)},
                    {"claim": called, "device": claim["device"], "claimed": f"{claim['percent']}%"})

    def compare(self, came, case):
        wrong = super().compare(came, case)
        if wrong is None or not wrong.startswith('"error"'):
            return wrong
        error = came["error"]
        if error is not None and not (isinstance(error, str) and error in ERRORS):
            return f'"error" came as {error!r:.80}; expected one of None, {listing(map(quoted, ERRORS))}'
        return wrong

    def slips(self, field, claim):
        behind = claim["seconds"][claim["warm_up"]:]
        right = utilization(claim)
        if field == "error":
            return [(error, told(claim, error)) for error in (None, *ERRORS)]
        return [
            *((value, f"{'That is what is claimed, and it is wrong. ' if error == error_of(claim) else ''}{MISTAKES[error]}")
              for error, value in sorted(readings(claim), key=lambda reading: reading[0] != "precision") if error),
            (utilization(claim, seconds=statistics.mean(behind)), "Take the median of those behind the warm-up, not their "
                                                                  "mean."),
            (utilization(claim, seconds=statistics.median(claim["seconds"])), "The median is that of the steps behind the "
                                                                              "warm-up."),
            (claim["percent"] / 100, "That is the claim's own; tell what it is in truth."),
            (100 * right, "That is in percent; a fraction is asked for."),
            (claim["percent"], "That is the claim's own; tell what it is in truth."),
            (right * claim["devices"], "Is `devices` used? The peak is that of one; the tokens are those of all."),
            (utilization(claim, flops=2 * claim["multiplied"] + claim["attention"]), "A parameter takes 6 FLOPs a token: 2 "
                                                                                     "forward, 4 backward."),
            (utilization(claim, flops=6 * claim["multiplied"]), "Attention's own products are left out: what is in "
                                                                "`attention` is needed, too."),
            (utilization(claim, flops=6 * (claim["multiplied"] + claim["attention"])), "`attention` is FLOPs: no 6 there."),
            (utilization(claim, flops=6 * (claim["multiplied"] - claim["embedding"]) + claim["attention"]),
             "The embedding is not among what is multiplied: nothing is to be taken away."),
        ]


#: What is wrong with each, in words.
MISTAKES = {
    "sparse": "The peak is the one with sparsity; a training step multiplies dense matrices.",
    "precision": "The peak is that of another precision than the products are computed in.",
    "recomputation": "What is computed a second time is counted, too: that is HFU.",
    "embedding": "The embedding at the input is counted: a token looks up its row, which is no product.",
    "warm-up": "The steps of the warm-up are in the mean.",
}


def told(claim: dict[str, Any], error: str | None) -> str:
    """What that error would give, against what is claimed."""
    found = " or ".join(f"{100 * value:.1f}%" for other, value in readings(claim) if other == error)
    if error is None:
        return f"The MFU is {found}, and the claim says {claim['percent']}%: something is wrong with it."
    because = f"By {quoted(error)} it would have come to {found}; the claim says {claim['percent']}%"
    if error_of(claim) is None:
        return f"{because}, and so it is: nothing is wrong with it."
    return f"{because}."


def utilization(claim: dict[str, Any], *, flops: float | None = None, seconds: float | None = None,
                peak: float | None = None) -> float:
    """The MFU; the keywords, each in place of what is right, are for mistakes."""
    if flops is None:
        flops = 6 * claim["multiplied"] + claim["attention"]
    if seconds is None:
        seconds = statistics.median(claim["seconds"][claim["warm_up"]:])
    if peak is None:
        peak = PEAKS[claim["device"]][claim["precision"]]
    return claim["tokens"] * flops / (seconds * claim["devices"] * peak)


def readings(claim: dict[str, Any]) -> Iterator[tuple[str | None, float]]:
    """What a claim comes to with each error, and with none."""
    peaks, flops = PEAKS[claim["device"]], 6 * claim["multiplied"] + claim["attention"]
    yield None, utilization(claim)
    yield "sparse", utilization(claim, peak=2 * peaks[claim["precision"]])
    for precision, peak in peaks.items():
        if precision != claim["precision"]:
            yield "precision", utilization(claim, peak=peak)
    yield "recomputation", utilization(claim, flops=flops + claim["recomputed"])
    yield "embedding", utilization(claim, flops=flops + 6 * claim["embedding"])
    yield "warm-up", utilization(claim, seconds=statistics.mean(claim["seconds"]))


def error_of(claim: dict[str, Any]) -> str | None:
    """The reading that gives the claimed figure."""
    return min(readings(claim), key=lambda reading: abs(100 * reading[1] - claim["percent"]))[0]


def made(rng: Random, error: str | None) -> dict[str, Any]:
    """A claim with that error, and with no other that would explain it."""
    while True:
        claim = drawn(rng)
        values = [100 * value for other, value in readings(claim) if other == error]
        claim["percent"] = round(rng.choice(values), 1)
        apart = [abs(100 * value - claim["percent"]) for other, value in readings(claim) if other != error
                 and not (error is None and value == utilization(claim))]
        if min(apart) > APART and 10 < claim["percent"] < 90:
            return claim


def drawn(rng: Random) -> dict[str, Any]:
    """A run that could have been, without a claim."""
    device, precision = rng.choice(DEVICES), rng.choice(("bf16", "bf16", "bf16", "tf32"))
    L, h, s, V = rng.randint(8, 48), 128 * rng.randint(6, 64), 2 ** rng.randint(10, 14), 1000 * rng.randint(32, 256)
    blocks, attention = 12 * L * h * h, 12 * L * h * s
    recomputed = rng.choice((0, attention // 3, 2 * blocks + attention // 3))
    tokens, devices, warm_up = 2 ** rng.randint(18, 23), 2 ** rng.randint(3, 11), rng.randint(1, 4)
    flops = 6 * (blocks + V * h) + attention
    usual = tokens * flops / (rng.uniform(0.25, 0.5) * devices * PEAKS[device][precision])

    def around(times: float) -> float:
        return float(f"{usual * times:.4g}")

    cold = [around(rng.uniform(1.5, 6) if step else rng.uniform(4, 12)) for step in range(warm_up)]
    warm = [around(rng.uniform(0.99, 1.02)) for _ in range(rng.randint(12, 30))]
    warm[rng.randrange(len(warm))] = around(rng.uniform(2, 4))  # a stall
    return {"device": device, "devices": devices, "precision": precision, "tokens": tokens, "warm_up": warm_up,
            "seconds": [*cold, *warm], "multiplied": blocks + V * h, "embedding": V * h, "attention": attention,
            "recomputed": recomputed}
