"""Judging what is read off a run's log."""

from __future__ import annotations

import itertools
import re
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

from mlsyslab.check.exercise import Case
from mlsyslab.check.messages import count
from mlsyslab.check.mfu.fields import Fields


@dataclass(frozen=True)
class Line:
    """A line of a log.  kind: "start", "step", "restart" or another.  step: of a restart, the last one that is kept."""

    at: float
    kind: str
    step: int = 0
    tokens: int = 0


def written(lines: Sequence[Line], devices: int) -> str:
    """The log as text."""
    def text(line: Line) -> str:
        return {"start": f"start: {count(devices, 'device')}", "checkpoint": f"checkpoint after step {line.step}",
                "evaluation": f"evaluation after step {line.step}: loss 3.21",
                "step": f"step {line.step} loss {11 - 0.9 * line.step**0.4:.2f} tokens {line.tokens}",
                "restart": f"restart from step {line.step}: rank 17 was lost"}[line.kind]

    return "".join(f"[{line.at:8.1f}] {text(line)}\n" for line in lines)


def read(log: str) -> list[Line]:
    """What the text says."""
    form = re.compile(r"\[ *([\d.]+)\] (\w+)(?:.*step (\d+)|\s(\d+))?(?:.*tokens (\d+))?")
    found = [form.match(line).groups() for line in log.splitlines()]
    return [Line(float(at), kind, int(step or own or 0), int(tokens or 0)) for at, kind, step, own, tokens in found]


#: What happens in a log: how many steps come, or what comes between them; a restart says how many steps are lost.
PLANS: dict[str, list] = {
    "a checkpoint, a stall and a restart": [4, "checkpoint", 2, "stall", 2, "evaluation", 1, ("restart", 5), 6,
                                            "evaluation"],
    "a checkpoint": [5, "checkpoint", 4],
    "a restart": [6, "checkpoint", 3, ("restart", 3), 7],
    "restarts": [5, "checkpoint", 3, ("restart", 3), 5, "checkpoint", 2, ("restart", 2), 4, ("restart", 4), 3],
    "more tokens later": [4, "larger", 4, "larger", 5],
    "a start that comes to nothing": [("restart", 0), 6, "stall", 3],
    "nothing but steps": [7],
    "a restart at its end": [5, "checkpoint", 3, ("restart", 3)],  # nothing is done again there
}


def made(rng: Random, plan: Sequence) -> list[Line]:
    """A log in which these things happen."""
    at, step, tokens, usual, cold = 0.0, 0, 2 ** rng.randint(18, 22), rng.randint(40, 200), 3
    lines, stalled = [Line(at, "start")], False

    def after(seconds: float) -> float:
        nonlocal at
        at = round(at + seconds, 1)
        return at

    for what in plan:
        if isinstance(what, int):
            for _ in range(what):
                slow = {3: 8.0, 2: 1.5, 1: 1.2}.get(cold, 1.0) * (rng.uniform(15, 30) if stalled else 1.0)
                cold, stalled, step = cold - 1, False, step + 1
                lines.append(Line(after(slow * usual / 10 * rng.uniform(0.95, 1.05)), "step", step, tokens))
        elif what == "stall":
            stalled = True
        elif what == "larger":
            tokens, usual = 2 * tokens, usual * 1.7
        elif isinstance(what, tuple):
            step, cold = step - what[1], 3
            lines.append(Line(after(rng.uniform(10, 30) * usual / 10), "restart", step))
        else:
            lines.append(Line(after(rng.uniform(2, 4) * usual / 10), what, step))
    return lines


class LogMfu(Fields):
    name = "log_mfu"
    nouns = {"steady": "a fraction", "run": "a fraction"}

    def cases(self, rng: Random) -> list[Case]:
        return [self.case(rng, plan, warm_up) for plan, warm_up in itertools.product(PLANS, (2, 0, 1))]

    def case(self, rng: Random, plan: str, warm_up: int) -> Case:
        lines = made(rng, PLANS[plan])
        devices = rng.choice((1, 8, 64, 1000))
        flops, peak = rng.uniform(1e9, 1e12), rng.choice((312e12, 989.4e12, 2250e12))
        unit = flops / devices / peak
        target = rng.uniform(0.3, 0.55)  # whatever the tokens are, it shall look like an MFU
        flops *= target / (steady(lines, warm_up) * unit)
        unit = flops / devices / peak
        return Case((written(lines, devices), flops, peak, devices, warm_up),
                    {"steady": steady(lines, warm_up) * unit, "run": of_run(lines) * unit},
                    {"log": f"with {plan}" if plan != "nothing but steps" else "of nothing but steps",
                     "warm_up": warm_up, "devices": devices})

    def slips(self, field, log, flops_per_token, peak, devices, warm_up):
        lines, unit = read(log), flops_per_token / devices / peak
        rate = steady(lines, warm_up) if field == "steady" else of_run(lines)
        ways = of_steady(lines, warm_up) if field == "steady" else of_whole(lines, warm_up)
        return [*((value * unit, words) for value, words in ways),
                (100 * rate * unit, "That is in percent; a fraction is asked for."),
                (rate * unit * devices, "Is `devices` used? The peak is that of one."),
                (rate * flops_per_token / devices, "Those are FLOPs a second; MFU is their share of the peak."),
                (rate, "Those are tokens a second."),
                (rate / devices / peak, "Is `flops_per_token` used?")]


def steady(lines: Sequence[Line], warm_up: int) -> float:
    """Tokens a second of the median step."""
    return statistics.median(rates(lines, warm_up))


def rates(lines: Sequence[Line], warm_up: int, *, again: bool = True, from_step: bool = False,
          lost: bool = True) -> list[float]:
    """Of each step; the keywords are for mistakes.

    again: whether there is a warm-up behind a restart, too.  from_step: whether a step begins where the one before it ended.
    lost: whether steps count whose work was lost.
    """
    found, since, before, stepped = [], 0, lines[0].at, lines[0].at
    kept = {id(line) for line in there(lines)}
    for line in lines:
        if line.kind == "restart":
            since = 0 if again else since
            stepped = line.at
        elif line.kind == "step":
            since += 1
            if since > warm_up and (lost or id(line) in kept):
                found.append(line.tokens / (line.at - (stepped if from_step else before)))
            stepped = line.at
        before = line.at
    return found


def there(lines: Sequence[Line], *, more: int = 0) -> list[Line]:
    """The steps whose work is there at the end.  more: for mistakes, how many too many a restart keeps."""
    found: list[Line] = []
    for line in lines:
        if line.kind == "restart":
            found = [step for step in found if step.step <= line.step + more]
        elif line.kind == "step":
            found.append(line)
    return found


def of_run(lines: Sequence[Line]) -> float:
    """Tokens a second of all that came of it."""
    return sum(step.tokens for step in there(lines)) / (lines[-1].at - lines[0].at)


def of_steady(lines: Sequence[Line], warm_up: int) -> list[tuple[float, str]]:
    own, every = rates(lines, warm_up), rates(lines, 0)
    starts = [line.at for line in lines if line.kind in ("start", "restart")]
    steps = [line for line in lines if line.kind == "step"]

    def median(found: list[float]) -> float:
        return statistics.median(found) if found else 0.0

    return [
        (median(every), "The steps of the warm-up are counted, too: leave out `warm_up` of them behind each start."),
        (median(rates(lines, warm_up, again=False)), "Behind a restart there is a warm-up again."),
        (median(rates(lines, warm_up, from_step=True)), "A step begins at the line before it, whatever line that is: to "
                                                        "write a checkpoint is not part of a step."),
        (median(rates(lines, warm_up, lost=False)), "Steps whose work was lost later count, too: their rates are as true."),
        (statistics.mean(own), "That is the mean; one stall spoils it. Take the median."),
        (statistics.mean(every), "That is the mean of all steps. Take the median, and leave out the warm-up."),
        (statistics.median_low(own), "Of an even number the median is the mean of the middle two (statistics.median)."),
        (statistics.median_high(own), "Of an even number the median is the mean of the middle two (statistics.median)."),
        (median(every[warm_up + 1:]), "That leaves out one step too many."),
        (median(rates(lines, warm_up + 1)), "That leaves out one step too many."),
        (of_run(lines), "That is of the whole run."),
        (sum(step.tokens for step in steps) / (lines[-1].at - starts[0]), "That is all tokens over all the time."),
    ]


def of_whole(lines: Sequence[Line], warm_up: int) -> list[tuple[float, str]]:
    steps, kept = [line for line in lines if line.kind == "step"], there(lines)
    first, last = lines[0].at, lines[-1].at
    done, tokens = sum(step.tokens for step in steps), sum(step.tokens for step in kept)
    numbers = {step.step for step in steps}
    restarts = [line.at for line in lines if line.kind == "restart"]
    alone = sum(line.at - before.at for before, line in itertools.pairwise(lines) if line.kind == "step")

    def over(tokens: float, seconds: float) -> float:
        return tokens / seconds if seconds else 0.0

    return [
        (over(done, last - first), "What was lost and done again is counted twice."),
        *((over(sum(counted), last - first), "A restart from step r keeps the steps up to r, r too, and none behind it.")
          for others in (there(lines, more=-1), there(lines, more=1))
          for counted in ([step.tokens for step in others], {step.step: step.tokens for step in others}.values())),
        (over(tokens, steps[-1].at - first), "The time runs to the last line, whatever line that is."),
        (over(tokens, last - steps[0].at), "The time runs from the first line: the first step takes time, too."),
        (over(tokens, steps[-1].at - steps[0].at), "The time runs from the first line to the last."),
        (over(done, steps[-1].at - first), "What was lost and done again is counted twice; the time runs to the last line."),
        (over(tokens, alone), "That is the time of the steps alone: checkpoints, restarts and all else take time, too."),
        (over(done, alone), "That is the time of the steps alone, and counts twice what was done again."),
        (over(tokens, last - (restarts[-1] if restarts else first)), "The time runs from the first line, not a restart."),
        (over(sum({step.step: step.tokens for step in steps}.values()), last - first),
         "Some steps were lost and never done again: they count for nothing."),
        (over(len(numbers) * steps[0].tokens, last - first), "Steps needn't have equally many tokens."),
        (over(len(kept) * steps[0].tokens, last - first), "Steps needn't have equally many tokens."),
        (over(len(kept) * steps[-1].tokens, last - first), "Steps needn't have equally many tokens."),
        (over(sum(step.tokens for step in kept[warm_up:]), last - first), "The warm-up's tokens count for the run."),
        (over(steps[-1].tokens, last - first), "Those are the last step's tokens over all the time."),
        (steady(lines, warm_up), "That is the steady rate."),
    ]
