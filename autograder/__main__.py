"""The command line: `python -m autograder labs|samples|grade|report|release`."""

from __future__ import annotations

import argparse
import gc
import os
import sys
from pathlib import Path

from rich.console import Console

from autograder.course import Course
from autograder.errors import CourseError
from autograder.limits import Limits

ROOT = Path(__file__).resolve().parents[1]


def main(argv: list[str] | None = None) -> int:
    arguments = parser().parse_args(argv)
    try:
        return arguments.run(arguments)
    except CourseError as error:
        print(f"{arguments.command}: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print(f"{arguments.command}: stopped; run it again to go on", file=sys.stderr)
        return 130


def parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(prog="python -m autograder", description="Labs, submissions and grades of the course.")
    commands = top.add_subparsers(dest="command", required=True, metavar="COMMAND")

    labs = commands.add_parser("labs", help="bring labs/ up to date with solutions/")
    labs.set_defaults(run=run_labs)

    samples = commands.add_parser("samples", help="make five submissions to try the grading with")
    samples.add_argument("lab", metavar="LAB")
    samples.add_argument("folder", metavar="DIR", type=Path)
    samples.set_defaults(run=run_samples)

    grade = commands.add_parser("grade", help="grade the submissions of a lab that are new or have changed")
    grade.add_argument("lab", metavar="LAB")
    grade.add_argument("--submissions", metavar="DIR", type=Path,
                       help="the folder of DIR/STUDENT/LAB/LAB.ipynb (GRADES/submitted)")
    grade.add_argument("--grades", type=Path, help="the folder for gradebook, feedback and outcomes (grades)")
    where = grade.add_mutually_exclusive_group()
    where.add_argument("--workers", metavar="N", type=positive(int), default=os.cpu_count() or 1,
                       help="how many at a time (%(default)s)")
    where.add_argument("--scheduler", metavar="ADDRESS",
                       help="grade on the workers of this Dask scheduler, for example tcp://HOST:8786")
    grade.add_argument("--cell-seconds", metavar="S", type=positive(float), default=Limits.cell,
                       help="limit of a cell (%(default)g)")
    grade.add_argument("--seconds", metavar="S", type=positive(float), default=Limits.submission,
                       help="limit of a submission (%(default)g)")
    grade.add_argument("--student", metavar="NAME", action="append", default=[],
                       help="grade this student's submission only, changed or not; may be given several times")
    grade.add_argument("--exercise", metavar="NAME", action="append", default=[],
                       help="give new points for this exercise only; may be given several times")
    grade.add_argument("--again", action="store_true", help="grade the unchanged ones too")
    grade.add_argument("--unsafe-no-sandbox", action="store_true",
                       help="run submissions as you, with all your files in reach")
    database(grade)
    grade.set_defaults(run=run_grade)

    report = commands.add_parser("report", help="report about a class: a page, and grades as CSV, for Canvas and Moodle too")
    report.add_argument("lab", metavar="LAB")
    report.add_argument("--grades", type=Path, help="the folder of gradebook and outcomes (grades)")
    database(report)
    report.set_defaults(run=run_report)

    release = commands.add_parser("release", help="make the students' archive: labs, library, requirements, how to start")
    release.add_argument("file", metavar="FILE", type=Path, nargs="?", default=ROOT / "_build" / "mlsyslab.zip",
                         help="where to (_build/mlsyslab.zip)")
    release.set_defaults(run=run_release)
    return top


def database(command: argparse.ArgumentParser) -> None:
    command.add_argument("--database", metavar="URL", help="the gradebook, for example postgresql+psycopg://USER@HOST/NAME "
                         "(the environment variable MLSYSLAB_DATABASE, or else SQLite in the folder of grades)")


def positive(number: type) -> type:
    """An argument that has to be a number above 0."""
    def read(text: str):
        value = number(text)
        if not 0 < value < float("inf"):
            raise ValueError
        return value
    read.__name__ = f"number above 0 ({number.__name__})"
    return read


def run_labs(arguments: argparse.Namespace) -> int:
    from autograder import labs

    course = Course.at(ROOT)
    for lab in course.labs:
        done = labs.make(course, lab)
        path = course.release(lab).relative_to(course.root)
        if done == "kept":
            print(f"{path}: kept, because it holds answers; move it away to have it made anew")
        else:
            print(f"{path}: {done}")
    return 0


def run_samples(arguments: argparse.Namespace) -> int:
    from autograder import samples

    for path in samples.make(Course.at(ROOT), arguments.lab, arguments.folder.resolve()):
        print(path)
    return 0


def run_grade(arguments: argparse.Namespace) -> int:
    gc.disable()  # what is loaded is no garbage, and to look for some takes a sixth of the time
    from autograder import report
    from autograder.grade import grade, lab_exercises

    gc.enable()
    course = Course.at(ROOT, arguments.grades, arguments.database)
    limits = Limits(cell=arguments.cell_seconds, submission=arguments.seconds)
    outcomes = grade(course, arguments.lab, arguments.submissions, limits, arguments.workers, arguments.again,
                     arguments.unsafe_no_sandbox, report.Progress(), arguments.student, arguments.exercise,
                     arguments.scheduler)
    console = Console()
    console.print(report.table(arguments.lab, lab_exercises(course, arguments.lab), outcomes))
    console.print(f"gradebook: {course.gradebook_name}\nfeedback:  {course.grades / 'feedback'}", soft_wrap=True)
    return 0


def run_report(arguments: argparse.Namespace) -> int:
    from autograder import class_report

    for path in class_report.make(Course.at(ROOT, arguments.grades, arguments.database), arguments.lab):
        print(path)
    return 0


def run_release(arguments: argparse.Namespace) -> int:
    from autograder import archive

    print(archive.make(Course.at(ROOT), arguments.file.resolve()))
    return 0


if __name__ == "__main__":
    status = main()
    gc.freeze()  # the process ends: to look for garbage once more in all that was loaded would take most of a second
    sys.exit(status)
