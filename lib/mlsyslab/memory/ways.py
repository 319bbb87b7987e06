"""Ways to hold less, side by side: what each holds, and what it costs in time and in MFU."""

from __future__ import annotations

from dataclasses import dataclass

from mlsyslab.measure.hardware import Device, device, peak
from mlsyslab.memory.activations import saved, saved_total
from mlsyslab.memory.lifetime import ACTIVATIONS, training
from mlsyslab.memory.units import positive, whole
from mlsyslab.model.config import Config
from mlsyslab.model.flops import training_flops


@dataclass(frozen=True)
class Way:
    """peak_bytes: the most that is held.  flops: what is carried out over what the model needs, which is HFU over MFU.
    seconds: of one update at the given HFU.  mfu: what is left of that HFU."""

    name: str
    peak_bytes: int
    flops: float
    seconds: float
    mfu: float


def ways(config: Config, batch: int, of: Device | str, *, hfu: float = 0.5, link: float = 55e9, parts: int = 4,
         core: str = "written", precision: str = "mixed") -> list[Way]:
    """Each way for one update of `batch` sequences on one device.

    hfu: share of the peak that is reached, 0 … 1, the same for all.  link: bytes/s to host memory and from it, an assumption
    (PCIe 5 x16 has 64e9 on paper).  parts: of the batch, for accumulation.

    Swapping moves everything that is kept out and back; each way overlaps with a forward or a backward pass, and what
    doesn't fit into them is waited for.
    """
    of = device(of) if isinstance(of, str) else of
    positive("link", link), whole("parts", parts)
    if not 0 < hfu <= 1:
        raise ValueError(f"ways(hfu={hfu!r}): a utilization is more than 0 and at most 1, as 0.5 for 50 percent")
    rate = peak(of, "bf16" if "bf16" in of.tensor else "fp16").flops * hfu
    needed = training_flops(config, batch)

    def way(name: str, size: int = batch, *, recompute: str | None = None, every: int = 1, swapped: bool = False) -> Way:
        line = training(config, size, precision=precision, core=core, recompute=recompute, every=every, swapped=swapped,
                        device="cuda")
        done = training_flops(config, batch, recompute=recompute)
        seconds = done / rate + (waiting() if swapped else 0)
        return Way(name, line.peak, done / needed, seconds, needed / seconds / rate * hfu)

    def waiting() -> float:
        away = saved_total(saved(config, batch, dtype=ACTIVATIONS[precision], core=core, device="cuda")) / link
        return sum(max(0.0, away - share * needed / rate) for share in (1 / 3, 2 / 3))

    k = max(1, round(config.layers**0.5))
    return [way("nothing"), way("attention's core again", recompute="selective"),
            way(f"every {k} blocks again", recompute="full", every=k), way("every block again", recompute="full"),
            way("swapping", swapped=True), way(f"in {parts} parts", -(-batch // parts))]
