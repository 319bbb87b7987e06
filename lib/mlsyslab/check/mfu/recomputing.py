"""Judging MFU and HFU of a step in which something is computed twice."""

from __future__ import annotations

from random import Random

from mlsyslab.check.exercise import Case
from mlsyslab.check.mfu.fields import Fields


class Utilizations(Fields):
    name = "utilizations"
    nouns = {"mfu": "a fraction", "hfu": "a fraction", "seconds": "seconds"}

    def cases(self, rng: Random) -> list[Case]:
        layers = [(96, 24, 72), (96, 0, 0), (96, 96, 0), (96, 0, 96), (10, 3, 0), (10, 0, 4), (1, 1, 0)]
        for _ in range(5):
            L = rng.randint(3, 120)
            full = rng.randint(1, L - 1)
            layers.append((L, full, rng.randint(1, L - full)))
        return [self.case(rng, *one) for one in layers]

    def case(self, rng: Random, L: int, full: int, selective: int) -> Case:
        layer = rng.randint(10**12, 10**14)
        core, output = int(layer * rng.uniform(0.02, 0.3)), int(layer * rng.uniform(0.3, 3))
        model, hardware = flops(L, layer, core, output, full, selective)
        peak, hfu = rng.choice((312e12, 989.4e12, 2250e12)), rng.uniform(0.3, 0.6)
        seconds = float(f"{hardware / hfu / peak:.5g}")
        right = {"mfu": model / seconds / peak, "hfu": hardware / seconds / peak, "seconds": seconds * model / hardware}
        return Case((L, layer, core, output, full, selective, seconds, peak), right,
                    {"L": L, "full": full, "selective": selective})

    def slips(self, field, L, layer, core, output, full, selective, seconds, peak):
        model, hardware = flops(L, layer, core, output, full, selective)
        recomputed = hardware - model
        if field == "seconds":
            return [
                (seconds * hardware / model, "Without recomputation there is less to do, which takes less time: turn the "
                                             "ratio over."),
                (seconds, "Nothing would be computed twice then: the step would be shorter."),
                (seconds * 0.75, "3/4 holds if every layer, and the output too, is computed again as a whole."),
                (model / peak, "The hardware does as many FLOPs a second as it does now, not its peak."),
                (seconds * recomputed / hardware, "That is what recomputation takes; asked is what is left without it."),
            ]
        ways = {
            "mfu": [
                (hardware, "That is HFU: MFU counts what the model needs, and not what is computed a second time."),
                (model / 3, "That is forward alone; backward takes twice as much."),
                (model / 3 * 2, "That is backward alone; forward takes half as much."),
                (3 * L * layer, "The output matrix is left out."),
                (3 * (layer + output), "There are L layers."),
                (3 * (L * (layer + core) + output), "`core` is a part of `layer`, counted there already."),
                (3 * (L - full) * layer + 3 * output, "Layers that are computed again are needed, too: each counts once."),
            ],
            "hfu": [
                (model, "That is MFU: HFU counts what is computed a second time, too."),
                (model * 4 / 3, "Not everything is computed again: `full` layers as a whole, of `selective` others the "
                                "core, of the output matrix nothing."),
                (hardware + output, "Nothing of the output matrix is computed twice."),
                (model + full * layer, "Of the `selective` layers the core is computed again."),
                (model + selective * core, "The `full` layers are computed again, as a whole."),
                (model + (full + selective) * layer, "Of the `selective` layers only the core is computed again."),
                (hardware + full * core, "`core` is a part of `layer`, counted there already."),
                (model + 3 * recomputed, "Only forward is repeated; backward is done once."),
                (model + 2 * recomputed, "Recomputation repeats the forward once."),
                (model + full * layer + (L - full) * core, "Only `selective` of the other layers compute their core again."),
                (model + L * layer, "Only `full` of the layers are computed again as a whole."),
                (model - recomputed, "What is recomputed comes on top."),
                (hardware - 3 * output, "The output matrix is left out."),
            ],
        }[field]
        right = model if field == "mfu" else hardware
        return [*((value / seconds / peak, words) for value, words in ways),
                (100 * right / seconds / peak, "That is in percent; a fraction is asked for."),
                (right / seconds, "Those are FLOPs a second; divide by the peak.")]


def flops(L: int, layer: int, core: int, output: int, full: int, selective: int) -> tuple[int, int]:
    """What the model needs, and what the hardware does."""
    model = 3 * (L * layer + output)
    return model, model + full * layer + selective * core
