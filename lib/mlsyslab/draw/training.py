"""Losses over a training run, one curve a method."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from mlsyslab.draw.lines import lines
from mlsyslab.draw.picture import Picture
from mlsyslab.pipeline.convergence import Curve


def training(curves: Mapping[str, Curve], title: str, *, window: int = 16, most: float = 2.0) -> Picture:
    """Plot the loss of each method over microbatches.

    window: microbatches over which a point of a curve is the mean.  most: the highest loss shown; what is above lies on it.
    """
    if not curves or any(len(curve.losses) < window for curve in curves.values()):
        raise ValueError(f"training needs at least one curve, and at least window={window} losses in each")
    finals = "; ".join(f"{name} ends at {curve.final:.2f}" for name, curve in curves.items())
    return lines({name: smooth(curve.losses, window) for name, curve in curves.items()}, title, "microbatches", "loss",
                 y_span=(0.0, most), description=f"Mean loss of {window} microbatches: {finals}.")


def smooth(losses: Sequence[float], window: int) -> list[tuple[int, float]]:
    """(microbatches so far, mean loss of the last `window` of them), every quarter of a window."""
    ends = range(window, len(losses) + 1, max(1, window // 4))
    return [(end, sum(losses[end - window:end]) / window) for end in ends]
