"""Judging the bubble of pipelined inference, by the simulated run."""

from __future__ import annotations

import math
from random import Random

from mlsyslab import pipeline
from mlsyslab.check.exercise import Case
from mlsyslab.check.messages import article, is_number
from mlsyslab.check.pipeline.unaided import Unaided

#: How far apart two bubbles may be by rounding: computed in float32, 1 - x is as coarse as 1.
CLOSE = 1e-6


class InferenceBubble(Unaided):
    name = "inference_bubble"

    def cases(self, rng: Random) -> list[Case]:
        cases = []
        for p, m in ((4, 8), (3, 5), (2, 1), (5, 3), (8, 16), (4, 1), (rng.randint(6, 12), rng.randint(2, 30)), (1, 4)):
            cases += [self.case([2.0] * p, m), self.case([float(rng.randint(1, 9)) for _ in range(p)], m)]
        return cases

    def case(self, times: list[float], m: int) -> Case:
        p = len(times)
        run = pipeline.simulate(pipeline.schedule("inference", p, m), F=times)
        equal = "equal" if len(set(times)) == 1 else "unequal"
        return Case((times, m), run.bubble, {"world size": p, "microbatches": m, "stages": equal})

    def compare(self, came, case):
        times, m = case.arguments
        if not is_number(came):
            return f"it returned {article(type(came).__name__)}, {came!r}; expected a number from 0 to 1"
        right = case.expected
        if math.isclose(came, right, rel_tol=CLOSE, abs_tol=CLOSE):
            return None
        text = (f"inference_bubble({times}, {m}) came as {float(came):.6g}, expected {right:.6g}: "
                "idle time over total time in the simulated run")
        likely = mistake(came, right, times, m)
        return f"{text}\n  {likely}" if likely else text


def mistake(came: float, right: float, times: list[float], m: int) -> str | None:
    """Which slip leads to this number."""
    p, work, slowest = len(times), sum(times), max(times)
    total = work + (m - 1) * slowest
    slips = [
        (100 * right, "That is in percent; give the fraction."),
        (1 - right, "That is the fraction in which the ranks work; the bubble is the rest."),
        (right / (1 - right), "That is idle time over working time; the bubble ratio asked for is idle over total time."),
        ((p - 1) / (m + p - 1), "That is right for stages that take the same time; the slowest one sets the pace of the "
                                "others."),
        (1 - m * work / (p * (work + m * slowest)), "After the first microbatch has come through there are m-1 to come, "
                                                    "not m."),
        ((p - 1) / (m + p), "m microbatches through p equal stages take m+p-1 slots, not m+p."),
        (p / (m + p - 1), "The first microbatch passes p-1 stages before the last one has anything to do, not p."),
        (1 - m * work / (p * m * slowest), "That is a pipeline that is full all the time: filling and draining it is left "
                                           "out."),
        ((total - m * work / p), "That is idle seconds a rank; divide by the seconds that the run takes."),
        (1 - work / total, "Every rank works on all m microbatches, one after the other."),
    ]
    return next((text for value, text in slips if math.isclose(came, value, rel_tol=CLOSE, abs_tol=CLOSE)), None)
