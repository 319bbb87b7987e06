"""Go through a submission from top to bottom: its cells run in the sandbox, the lab's tests here."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field

from nbformat import NotebookNode

from autograder.errors import NeedsPerson
from autograder.gpus import Gpu
from autograder.judge.lab import SETUP, TEST, Lab
from autograder.judge.outputs import Outputs
from autograder.judge.session import Session
from autograder.judge.tests import Tested, Tests
from autograder.limits import Limits
from autograder.outcome import GRADED, LIMITED, PERSON, Verdict
from autograder.rebuild import Rebuilt
from autograder.sandbox import Lost, Zygote

TRIES = 3  # sandboxes that one submission may cost


@dataclass
class Judged:
    """notebook: with its outputs.  verdicts: one an exercise.  limits: what was cut short outside of the tests."""

    notebook: NotebookNode
    verdicts: list[Verdict]
    limits: list[str] = field(default_factory=list)


class Judge:
    """Judges submissions of one lab, one at a time.  seed: of hidden tests.  unsafe: with no sandbox at all.

    gpu: what submissions may use.
    """

    def __init__(self, lab: Lab, limits: Limits, seed: str, unsafe: bool = False, gpu: Gpu | None = None):
        self.lab, self.limits = lab, limits
        self.tests = Tests(lab, seed)
        self.zygote = Zygote(limits, lab.library, lab.cells, unsafe, gpu)

    def close(self) -> None:
        self.zygote.close()

    def judge(self, rebuilt: Rebuilt) -> Judged:
        """Raises NeedsPerson where the sandbox doesn't survive it."""
        for _ in range(TRIES):
            with suppress(Lost):
                return self._judge(rebuilt)
            self.zygote.close()
        raise NeedsPerson(f"the sandbox went {TRIES} times while it ran")

    def _judge(self, rebuilt: Rebuilt) -> Judged:
        self.zygote.ready()  # its start is not on the submission's time
        session, names, limits, tested = Session(self.zygote, self.limits), {}, [], {}
        try:
            for place in rebuilt.places:
                if self.zygote.lost:
                    break
                if place.cell.cell_type != "code":
                    continue
                if place.part is not None and place.part.role == TEST:
                    done = self.tests.run(place.part, session, names, self.limits.output)
                    tested[place.part.name], outputs = done, done.outputs
                elif place.part is None or place.part.role != SETUP or place.part.number >= self.lab.first:
                    outputs, limit = session.run(place.file, place.cell.source)
                    where = place.part.name if place.part else f"an added cell after {place.after}"
                    limits += [f"{where}: {limit}"] if limit else []
                else:
                    outputs = Outputs(0)
                place.cell.outputs = list(outputs)
        finally:
            session.close()
        if self.zygote.lost:
            raise Lost("it went while a submission ran")
        return Judged(rebuilt.notebook, self._verdicts(rebuilt, tested), limits)

    def _verdicts(self, rebuilt: Rebuilt, tested: dict[str, Tested]) -> list[Verdict]:
        verdicts = []
        for exercise in self.lab.exercises:
            points, why, kind = {}, [], GRADED
            for name in exercise.points:
                if name not in tested:
                    points[name], kind = None, PERSON
                    why.append(f"{name} is graded by hand")
                    continue
                done = tested[name]
                points[name] = done.points
                kind = LIMITED if done.limit and kind == GRADED else kind
                why += [done.limit, *said(done.outputs)] if done.limit else said(done.outputs)
            if doubt := rebuilt.doubts.get(exercise.name):
                kind, why = PERSON, [doubt, *why]
            verdicts.append(Verdict(exercise.name, kind, points, why))
        return verdicts


def said(outputs: Outputs) -> list[str]:
    """The errors of a test cell, but for the limit that ended it."""
    return [f"{output.ename}: {output.evalue}" for output in outputs
            if output.output_type == "error" and output.ename != "Limit"]
