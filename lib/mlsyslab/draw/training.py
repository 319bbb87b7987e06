"""Losses over a training run, one curve a method: they differ by colour and by dash, and carry their names at their ends."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from mlsyslab.draw.picture import Picture, number
from mlsyslab.draw.plot import CSS
from mlsyslab.draw.timeline import ticks
from mlsyslab.pipeline.convergence import Curve

LEFT, RIGHT, TOP, BOTTOM = 40, 112, 28, 42  # px round the plot
WIDTH, HEIGHT = 560, 320  # px


def training(curves: Mapping[str, Curve], title: str, *, window: int = 16, most: float = 2.0) -> Picture:
    """Plot the loss of each method over microbatches.

    window: microbatches over which a point of a curve is the mean.  most: the highest loss shown; what is above lies on it.
    """
    if not curves or any(len(curve.losses) < window for curve in curves.values()):
        raise ValueError(f"training needs at least one curve, and at least window={window} losses in each")
    return _Training(curves, title, window, most)


def smooth(losses: Sequence[float], window: int) -> list[tuple[int, float]]:
    """(microbatches so far, mean loss of the last `window` of them), every quarter of a window."""
    ends = range(window, len(losses) + 1, max(1, window // 4))
    return [(end, sum(losses[end - window:end]) / window) for end in ends]


class _Training(Picture):
    css = CSS

    def __init__(self, curves, title, window, most):
        finals = "; ".join(f"{name} ends at {curve.final:.2f}" for name, curve in curves.items())
        super().__init__(WIDTH, HEIGHT, title, f"Mean loss of {window} microbatches: {finals}.")
        self.steps, self.most = max(len(curve.losses) for curve in curves.values()), most
        self.text(LEFT, 14, title, "bold")
        self._axes()
        at = {name: smooth(curve.losses, window) for name, curve in curves.items()}
        for look, points in enumerate(at.values()):
            d = "L".join(f"{number(self.x(i))} {number(self.y(loss))}" for i, loss in points)
            self._add("path", f"curve c{look}", d=f"M{d}")
        self._names({name: points[-1][1] for name, points in at.items()})

    def x(self, microbatch: float) -> float:
        return LEFT + (self.width - LEFT - RIGHT) * microbatch / self.steps

    def y(self, loss: float) -> float:
        shown = min(loss, self.most) if math.isfinite(loss) else self.most
        return self.height - BOTTOM - (self.height - TOP - BOTTOM) * shown / self.most

    def _axes(self) -> None:
        bottom, right = self.height - BOTTOM, self.width - RIGHT
        for step in ticks(self.steps, 8):
            self.line(self.x(step), TOP, self.x(step), bottom, "grid")
            self.text(self.x(step), bottom + 16, f"{step:g}", "soft small mid")
        for loss in ticks(self.most, 5):
            self.line(LEFT, self.y(loss), right, self.y(loss), "grid")
            self.text(LEFT - 7, self.y(loss) + 4, f"{loss:g}", "soft small end")
        self.text((LEFT + right) / 2, bottom + 36, "microbatches", "soft mid")

    def _names(self, ends: Mapping[str, float]) -> None:
        """Each curve's name at its end, moved apart where they would meet."""
        last = -math.inf
        for y, look, name in sorted((self.y(loss), look, name) for look, (name, loss) in enumerate(ends.items())):
            last = max(y, last + 15)
            self.text(self.width - RIGHT + 8, last + 4, name, f"p{look}")
