"""Every submission ends in exactly one outcome, with the points that it has earned, whatever it does."""

import json
import shutil
import signal
import socket
import tempfile
import time
from io import StringIO
from pathlib import Path

import nbformat
import psutil
import pytest
from rich.console import Console
from tiny_course import ROOT, command, new_course

from autograder import report, samples, sandbox
from autograder.course import Course
from autograder.errors import CourseError
from autograder.grade import grade, lab_exercises
from autograder.labs import released
from autograder.limits import Limits
from autograder.outcome import GRADED, LIMITED, PERSON, Outcome

pytestmark = pytest.mark.skipif(sandbox.missing() is not None, reason=str(sandbox.missing()))

LIMITS = Limits(cell=4.0, output=50_000, disk=1 << 24, memory=4 << 30)
MARK = "314159.265"  # seconds that a process would sleep: how the tests know it again
SLOW = 180  # s, a guard against a hang

DOUBLE = "def double(x):\n    return 2 * x"


@pytest.fixture(scope="module")
def course(tmp_path_factory) -> Course:
    """The tiny course, with the five samples and a submission of each of ODD."""
    course = new_course(tmp_path_factory.mktemp("course"))
    samples.make(course, "tiny", course.submitted)
    for student, (spoil, *_) in ODD.items():
        spoil(course, student)
    return course


@pytest.fixture(scope="module")
def outcomes(course) -> dict[str, Outcome]:
    """How each of them ended."""
    return {outcome.student: outcome for outcome in run(course)}


def run(course, **more):
    return grade(course, "tiny", limits=LIMITS, workers=2, **more)


def points(outcome):
    """By exercise: double (3), warn (3), count (4)."""
    if not outcome.points:
        return None
    value = outcome.points.get
    return [value("test-double") + value("hidden-double"), value("test-warn"), value("test-count")]


# -- submissions that are not as they should be ---------------------------------------------------------------------------

def submit(course, student, change=None, text=None):
    """Hand in the reference solution after `change(notebook)`, or the bytes of `text`."""
    path = course.submitted / student / "tiny" / "tiny.ipynb"
    path.parent.mkdir(parents=True)
    notebook = nbformat.read(course.submitted / "ada" / "tiny" / "tiny.ipynb", as_version=4)
    if change is not None:
        change(notebook)
    path.write_text(nbformat.writes(notebook) if text is None else text)


def changed(change):
    return lambda course, student: submit(course, student, change)


def instead(name, source):
    """Another source for one cell."""
    return changed(lambda notebook: setattr(cell(notebook, name), "source", source))


def after(name, source):
    """A new cell after the one named."""
    def change(notebook):
        here = notebook.cells.index(cell(notebook, name))
        notebook.cells.insert(here + 1, nbformat.v4.new_code_cell(source))
    return changed(change)


def cell(notebook, name):
    return next(cell for cell in notebook.cells if cell.id == name)


def about(name, **metadata):
    """Other metadata of nbgrader's for one cell."""
    return changed(lambda notebook: cell(notebook, name).metadata.nbgrader.update(metadata))


def without(name):
    return changed(lambda notebook: notebook.cells.remove(cell(notebook, name)))


def twice(notebook):
    notebook.cells.append(nbformat.from_dict({**cell(notebook, "double"), "id": "again"}))


def linked(course, student):
    submit(course, student)
    (course.submitted / student / "tiny" / "tiny.ipynb").unlink()
    (course.submitted / student / "tiny" / "tiny.ipynb").symlink_to(course.submitted / "ada" / "tiny" / "tiny.ipynb")


def renamed(course, student):
    submit(course, student)
    folder = course.submitted / student / "tiny"
    (folder / "tiny.ipynb").rename(folder / "tiny (1).ipynb")


def wrong_time(course, student):
    submit(course, student)
    (course.submitted / student / "tiny" / "timestamp.txt").write_text("yesterday evening")


ALL = [3, 3, 4]
UNSTOPPABLE = "import time\nwhile True:\n    try:\n        time.sleep(1)\n    except KeyboardInterrupt:\n        pass"
LINGERING = f"import subprocess\nsubprocess.Popen(['sleep', '{MARK}'], start_new_session=True).pid"

# What is handed in; the kind of its outcome; its points by exercise; a part of the reason.
ODD = {
    "warns on stderr": (after("start-2", "import warnings\nwarnings.warn('careful')"), GRADED, ALL, ""),
    "prints in a test": (instead("double", "def double(x):\n    print('x is', x)\n    return 2 * x"), GRADED, ALL, ""),
    "changes a test": (instead("test-double", "assert True"), GRADED, ALL, ""),
    "changes a test it fails": (changed(lambda notebook: (setattr(cell(notebook, "test-count"), "source", "pass"),
                                                          setattr(cell(notebook, "count"), "source", "pass"))),
                                GRADED, [3, 3, 0], ""),
    "raises points": (about("test-double", points=50), GRADED, ALL, ""),
    "other kernel": (changed(lambda notebook: notebook.metadata.update(kernelspec={"name": "x", "display_name": "x"})),
                     GRADED, ALL, ""),
    "a cell twice": (changed(twice), GRADED, ALL, ""),
    "no test cell": (without("test-count"), GRADED, ALL, ""),
    "never ends outside": (after("double", "while True:\n    pass"), LIMITED, ALL, "time: it ran longer than 4 s"),
    "cannot be stopped": (after("double", UNSTOPPABLE), LIMITED, ALL, "time: it ran longer than 4 s"),
    "ends the kernel": (instead("warn", "import os\nos._exit(0)"), LIMITED, [3, 0, 4], "it ended itself"),
    "kills everything": (instead("warn", "import os\nos.kill(-1, 9)"), GRADED, [3, 0, 4], ""),
    "takes memory": (instead("warn", "x = bytearray(10**11)"), LIMITED, [3, 0, 4], "memory"),
    "floods": (after("double", "while True:\n    print('x' * 1000)"), LIMITED, ALL, "output"),
    "prints much": (after("double", "for i in range(1000):\n    print('x' * 1000)"), LIMITED, ALL, "output"),
    "fills the disk": (after("double", "open('big', 'wb').write(bytes(10**8))"), GRADED, ALL, ""),
    "leaves a process": (after("double", LINGERING), GRADED, ALL, ""),
    "not a notebook": (lambda course, student: submit(course, student, text="hello"), PERSON, None, "no notebook"),
    "a conflict": (lambda course, student: submit(course, student, text="<<<<<<< HEAD\n{}\n=======\n{}\n>>>>>>> theirs\n"),
                   PERSON, None, "merge conflict"),
    "nested": (lambda course, student: submit(course, student, text="[" * 100_000), PERSON, None, "no notebook"),
    "a link": (linked, PERSON, None, "link"),
    "renamed": (renamed, GRADED, ALL, ""),
    "odd points": (about("test-double", points="many"), GRADED, ALL, ""),
    "odd metadata": (changed(lambda notebook: cell(notebook, "double").metadata.update(nbgrader=[1])),
                     GRADED, ALL, ""),
    "no time": (wrong_time, PERSON, None, "timestamp"),
}


@pytest.mark.parametrize("student", ODD)
def test_an_odd_submission_ends_in_its_outcome(outcomes, student):
    _, kind, expected, why = ODD[student]
    outcome = outcomes[student]
    if student == "takes memory" and outcome.kind == GRADED:  # Python refused it before the limit ended it
        kind, why = GRADED, ""
    assert (outcome.kind, points(outcome)) == (kind, expected), outcome
    assert why in " ".join(outcome.why) and bool(outcome.why) == (kind != GRADED)


@pytest.mark.parametrize(("student", "kind", "expected"), [
    ("ada", GRADED, ALL), ("ben", GRADED, [3, 3, 0]), ("cleo", GRADED, [0, 0, 0]), ("dan", GRADED, [0, 3, 4]),
    ("eve", LIMITED, [3, 0, 4])])
def test_each_sample_gets_its_grade(outcomes, student, kind, expected):
    assert (outcomes[student].kind, points(outcomes[student])) == (kind, expected)


def test_every_submission_has_one_outcome(course, outcomes):
    assert set(outcomes) == {path.name for path in course.submitted.iterdir()}


def test_the_gradebook_holds_the_same_points(course, outcomes):
    with course.gradebook() as gradebook:
        for student, outcome in outcomes.items():
            submission = gradebook.find_submission("tiny", student)
            assert submission.score == outcome.total
            assert submission.needs_manual_grade == (outcome.kind == PERSON)


def test_every_graded_submission_has_feedback_and_no_other(course, outcomes):
    for student, outcome in outcomes.items():
        assert course.feedback("tiny", student).exists() == (outcome.kind != PERSON)


def test_the_table_shows_points_by_exercise(course, outcomes):
    console = Console(width=100, record=True, file=StringIO())
    three = [outcomes[name] for name in ("ben", "eve", "a link")]
    console.print(report.table("tiny", lab_exercises(course, "tiny"), three))
    rows = [" ".join(line.split()) for line in console.export_text().splitlines()]
    assert rows[-5:-2] == ["ben 3 3 0 6 graded", "eve 3 0 4 7 limited", "a link – – – – needs a person"]
    assert rows[-1] == "1 double, 2 warn, 3 count"


def test_nothing_that_a_submission_started_is_left(outcomes):
    alive = [process.info["cmdline"] for process in psutil.process_iter(["cmdline"]) if process.info["cmdline"]]
    assert not [line for line in alive if MARK in line]
    assert not [child for child in psutil.Process().children(recursive=True) if child.name() == "bwrap"]


def test_a_second_run_grades_nothing_and_a_changed_submission_is_graded_again(course, outcomes, monkeypatch):
    done = []
    advance = report.Progress.advance
    monkeypatch.setattr(report.Progress, "advance",
                        lambda bar, outcome: (done.append(outcome.student), advance(bar, outcome)))
    assert {outcome.student: outcome for outcome in run(course)} == outcomes
    assert done == []

    path = course.submitted / "cleo" / "tiny" / "tiny.ipynb"
    notebook = nbformat.read(path, as_version=4)
    cell(notebook, "double").source = DOUBLE
    nbformat.write(notebook, path)
    again = {outcome.student: outcome for outcome in run(course)}
    assert done == ["cleo"]
    assert points(again["cleo"]) == [3, 0, 0]


# -- what a submission can reach ------------------------------------------------------------------------------------------

SPY = """
import json, os, pathlib, socket, subprocess
from IPython.display import HTML, display

def attempt(action):
    try:
        return repr(action())[:200]
    except Exception as error:
        return type(error).__name__

course, root, port = {course!r}, {root!r}, {port}
print(json.dumps([
    attempt(lambda: os.listdir(course)),
    attempt(lambda: open(course + "/solutions/tiny.py").read()),
    attempt(lambda: open(course + "/grades/gradebook.db", "rb").read()),
    attempt(lambda: open(course + "/planted", "w").write("x")),
    attempt(lambda: os.makedirs(root + "/planted")),
    attempt(lambda: os.listdir(root + "/solutions")),
    attempt(lambda: open(root + "/lib/mlsyslab/planted.py", "w")),
    attempt(lambda: open("/etc/passwd").read()),
    attempt(lambda: socket.create_connection(("127.0.0.1", port), timeout=2)),
    attempt(lambda: socket.getaddrinfo("example.org", 443)),
    attempt(lambda: open("/proc/1/root" + course + "/solutions/tiny.py").read()),
    attempt(lambda: open(pathlib.__file__, "a")),
    attempt(lambda: os.environ["SECRET_OF_THE_GRADER"]),
]))
display(HTML("<script>document.title = 'planted'</script><img src=x onerror='planted()'>"))
"""


def test_a_submission_reaches_nothing_of_the_course(tmp_path, monkeypatch):
    """It finds no file of the course, no network, no variable of the grader, and plants nothing, in files or feedback."""
    monkeypatch.setenv("SECRET_OF_THE_GRADER", "x")
    course = new_course(tmp_path)
    samples.make(course, "tiny", tmp_path / "samples")
    shutil.copytree(tmp_path / "samples" / "ada", course.submitted / "ada")
    with socket.create_server(("127.0.0.1", 0)) as server:
        after("double", SPY.format(course=str(tmp_path), root=str(ROOT), port=server.getsockname()[1]))(course, "spy")
        (outcome,) = (outcome for outcome in run(course) if outcome.student == "spy")
    assert points(outcome) == ALL
    notebook = nbformat.read(course.autograded("tiny", "spy"), as_version=4)
    outputs = [output for part in notebook.cells for output in part.get("outputs", [])]
    text = next(output.text for output in outputs if output.get("name") == "stdout")
    gone, no_network = {"FileNotFoundError", "OSError", "PermissionError"}, {"ConnectionRefusedError", "gaierror"}
    answers = json.loads(text)
    del answers[4]  # where the checkout lies in /tmp, the sandbox's own, empty /tmp takes the folder; the checkout does not
    assert set(answers[:7] + answers[9:11]) <= gone, answers
    assert set(answers[7:9]) <= no_network and answers[11] == "KeyError", answers
    assert not any(path.exists() for path in (tmp_path / "planted", ROOT / "planted", ROOT / "lib/mlsyslab/planted.py"))
    page = course.feedback("tiny", "spy").read_text()
    assert "planted" in page and "<script>document.title" not in page and "<img src=x" not in page


# -- the command ----------------------------------------------------------------------------------------------------------

@pytest.mark.parametrize(("arguments", "message"), [
    (["grade", "big"], "there is no lab 'big'"),
    (["grade", "tiny"], "there is no folder"),
    (["grade", "tiny", "--workers", "0"], "number above 0"),
    (["grade", "tiny", "--cell-seconds", "nan"], "number above 0"),
    (["samples", "big", "x"], "there is no lab 'big'"),
])
def test_a_slip_on_the_command_line_is_answered_in_one_line(tmp_path, arguments, message):
    process = command(new_course(tmp_path), *arguments)
    _, said = process.communicate(timeout=SLOW)
    assert process.returncode == 2 and message in said and "Traceback" not in said


def test_without_a_sandbox_nothing_is_graded(tmp_path, monkeypatch):
    course = new_course(tmp_path)
    samples.make(course, "tiny", course.submitted)
    monkeypatch.setenv("PATH", str(tmp_path))
    sandbox.missing.cache_clear()
    try:
        with pytest.raises(CourseError, match="bubblewrap isn't installed.*apt install bubblewrap.*--unsafe-no-sandbox"):
            run(course)
        (tmp_path / "bwrap").write_text("#!/bin/sh\necho 'bwrap: setting up uid map: Permission denied' >&2; exit 1\n")
        (tmp_path / "bwrap").chmod(0o755)
        sandbox.missing.cache_clear()
        with pytest.raises(CourseError, match="setting up uid map.*mlsyslab.doctor.*--unsafe-no-sandbox"):
            run(course)
    finally:
        sandbox.missing.cache_clear()
    assert not (course.grades / "outcomes").exists()


def test_unsafe_grades_without_a_sandbox(tmp_path):
    course = new_course(tmp_path)
    samples.make(course, "tiny", tmp_path / "samples")
    shutil.copytree(tmp_path / "samples" / "eve", course.submitted / "eve")
    there = set(Path(tempfile.gettempdir()).glob("grading-*"))
    (outcome,) = run(course, unsafe=True)
    assert (outcome.kind, points(outcome)) == (LIMITED, [3, 0, 4])
    deadline = time.monotonic() + SLOW
    while set(Path(tempfile.gettempdir()).glob("grading-*")) - there:  # its home goes a moment after the grader has
        assert time.monotonic() < deadline
        time.sleep(0.1)


def bubbles(process):
    return [child for child in psutil.Process(process.pid).children(recursive=True) if child.name() == "bwrap"]


def test_ctrl_c_stops_cleanly_and_the_next_run_goes_on(tmp_path):
    """Stopped while a submission that never ends is running: no process is left, and a second run grades all."""
    course = new_course(tmp_path)
    samples.make(course, "tiny", tmp_path / "samples")
    shutil.copytree(tmp_path / "samples" / "eve", course.submitted / "eve")
    process = command(course, "grade", "tiny", "--workers", "1")
    deadline = time.monotonic() + SLOW
    while not (inside := bubbles(process)):
        assert time.monotonic() < deadline and process.poll() is None
        time.sleep(0.1)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=SLOW)
    assert process.returncode == 130 and "run it again to go on" in said
    psutil.wait_procs(inside, timeout=SLOW)  # a sandbox goes a moment after the worker that started it
    assert not [child for child in inside if child.is_running() and child.status() != psutil.STATUS_ZOMBIE]
    assert not course.outcome("tiny", "eve").exists()
    assert [outcome.kind for outcome in run(course)] == [LIMITED]


def test_the_limit_of_the_whole_submission_ends_it(tmp_path):
    course = new_course(tmp_path)
    samples.make(course, "tiny", tmp_path / "samples")
    shutil.copytree(tmp_path / "samples" / "eve", course.submitted / "eve")
    (outcome,) = grade(course, "tiny", limits=Limits(submission=15))
    assert outcome.kind == LIMITED and "longer than 15 s" in outcome.why[-1]
    assert outcome.points["test-count"] == 0  # it came after the end


def test_a_lab_whose_exercises_changed_is_graded_anew_unless_a_person_wrote_grades(tmp_path):
    course = new_course(tmp_path)
    samples.make(course, "tiny", tmp_path / "samples")
    shutil.copytree(tmp_path / "samples" / "cleo", course.submitted / "cleo")
    run(course)
    source = course.source("tiny")
    source.write_text(source.read_text().replace('"test-double"', '"another-test"'))
    (outcome,) = run(course)
    assert "another-test" in outcome.points and "test-double" not in outcome.points

    with course.gradebook() as gradebook:
        gradebook.find_grade("another-test", "tiny", "tiny", "cleo").manual_score = 1
        gradebook.db.commit()
    source.write_text(source.read_text().replace('"another-test"', '"third-test"'))
    with pytest.raises(CourseError, match="exercises of tiny have changed.*--grades"):
        run(course)


def test_samples_differ_from_the_released_lab_in_solution_cells_only(course):
    empty = {part.id: part.source for part in nbformat.reads(released(course, "tiny"), as_version=4).cells}
    for student in samples.STUDENTS:
        notebook = nbformat.read(Path(course.submitted / student / "tiny" / "tiny.ipynb"), as_version=4)
        assert {part.id for part in notebook.cells if part.source != empty[part.id]} <= {"double", "warn", "count"}
