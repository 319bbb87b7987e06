"""What a person sees of a grading: its progress, and the table of grades."""

from __future__ import annotations

import rich.progress
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from autograder.judge.lab import Exercise
from autograder.outcome import GRADED, Outcome


class Progress:
    """A bar with the rate and the time left; quiet: nothing at all."""

    def __init__(self, quiet: bool = False):
        columns = (rich.progress.TextColumn("{task.description}"), rich.progress.BarColumn(),
                   rich.progress.MofNCompleteColumn(), rich.progress.TextColumn("{task.fields[rate]}"),
                   rich.progress.TimeRemainingColumn())
        self.bar = rich.progress.Progress(*columns, console=Console(stderr=True), disable=quiet)

    def __enter__(self) -> Progress:
        self.bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.bar.stop()

    def begin(self, new: int, old: int) -> None:
        """new: how many will be graded; old: how many have been, before."""
        described = "grading" + (f" (and {old} unchanged)" if old else "")
        self.task = self.bar.add_task(described, total=new, rate="")

    def advance(self, outcome: Outcome) -> None:
        self.bar.advance(self.task)
        speed = self.bar.tasks[0].finished_speed or self.bar.tasks[0].speed
        self.bar.update(self.task, rate=f"{60 * speed:.0f} a minute" if speed else "")
        if outcome.kind != GRADED:
            self.bar.console.print(Text(f"{outcome.student}: {outcome.kind}: {'; '.join(outcome.why)}"))


def table(lab: str, exercises: list[Exercise], outcomes: list[Outcome]) -> Table:
    """Points of each student by exercise; the exercises are numbered, and named below."""
    names = ", ".join(f"{number} {exercise.name}" for number, exercise in enumerate(exercises, 1))
    grades = Table(title=f"{lab}: points by exercise", caption=Text(names), caption_justify="left",
                   box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))  # narrow: a lab of a dozen exercises fits into 80 columns
    grades.add_column("student", overflow="fold")
    for number, exercise in enumerate(exercises, 1):
        grades.add_column(f"{number}\n/{exercise.most:g}", justify="right", no_wrap=True)
    grades.add_column(f"total\n/{sum(exercise.most for exercise in exercises):g}", justify="right", no_wrap=True)
    grades.add_column("outcome")
    for outcome in outcomes:
        cells = [_points(exercise, outcome) for exercise in exercises]
        total = f"{outcome.total:g}" if outcome.points else "–"
        grades.add_row(Text(outcome.student), *cells, total, outcome.kind)
    return grades


def _points(exercise: Exercise, outcome: Outcome) -> str:
    given = [outcome.points.get(name) for name in exercise.points]
    if any(points is None for points in given):
        return "–"
    return f"{sum(given):g}"
