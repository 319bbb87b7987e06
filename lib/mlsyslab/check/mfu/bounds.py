"""Judging what holds a product up: arithmetic or memory."""

from __future__ import annotations

from random import Random

from mlsyslab.check.exercise import Case
from mlsyslab.check.mfu.fields import Fields, case

#: FLOPs a second and bytes a second of an H100, of an A100, and of devices on which things come out even
DEVICES = [(989.4e12, 3.35e12), (312e12, 2.039e12)]


class RooflineOf(Fields):
    name = "roofline"
    nouns = {"intensity": "FLOPs a byte", "seconds": "seconds", "bound": '"compute" or "memory"'}

    def cases(self, rng: Random) -> list[Case]:
        products = [(4096, 4096, 4096, 2), (1, 4096, 11_008, 2), (64, 4096, 4096, 4), (3, 5, 7, 2), (16_384, 64, 16_384, 2)]
        products += [(2 ** rng.randint(0, 14), rng.randint(1, 9999), rng.randint(1, 9999), rng.choice((1, 2, 4)))
                     for _ in range(6)]
        found = [self.case(*product, *device) for product in products for device in DEVICES]
        return [*found, self.case(48, 48, 48, 2, 16e12, 1e12)]  # both take equally long

    def case(self, *given) -> Case:
        m, n, p, item, peak, bandwidth = given
        return case(given, roofline(*given), "m n p item peak bandwidth")

    def slips(self, field, m, n, p, item, peak, bandwidth):
        flops, moved = 2 * m * n * p, item * (m * n + n * p + m * p)
        read, written = item * (m * n + n * p), item * m * p
        compute, memory = flops / peak, moved / bandwidth
        return {
            "intensity": [
                (moved / flops, "That is bytes for each FLOP: turn it over."),
                (flops / moved / 2, "A term of a sum takes two FLOPs."),
                (flops / read, "The result is written, too: m × p numbers."),
                (flops / written, "Both matrices are read, too."),
                (flops / (moved / item), "That is FLOPs for each number: a number has `item` bytes."),
                (flops / (moved / item * 8 * item), "That is FLOPs for each bit."),
                (peak / bandwidth, "That is the device's ridge; the product's own intensity doesn't depend on the device."),
            ],
            "seconds": [
                (compute + memory, "Both work at the same time: the slower one counts, not the sum."),
                (min(compute, memory), f"That is what {'memory' if memory < compute else 'arithmetic'} takes; the product "
                                       "waits for the slower of the two."),
                (max(compute / 2, memory), "A term of a sum takes two FLOPs."),
                (max(compute, read / bandwidth), "The result is written, too: m × p numbers."),
                (max(compute, memory / item), "A number has `item` bytes."),
            ],
            "bound": [("memory", "Both take equally long here: call it \"compute\".") if compute == memory else
                      ("compute" if compute < memory else "memory",
                       f"Arithmetic takes {compute:.3g} s, memory {memory:.3g} s: the slower one holds it up.")],
        }[field]


def roofline(m: int, n: int, p: int, item: int, peak: float, bandwidth: float) -> dict:
    flops, moved = 2 * m * n * p, item * (m * n + n * p + m * p)
    compute, memory = flops / peak, moved / bandwidth
    return {"intensity": flops / moved, "seconds": max(compute, memory),
            "bound": "compute" if compute >= memory else "memory"}
