"""nbgrader's own commands work at the root of a checkout in which nothing has been made yet."""

import json
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import nbformat
import pytest
from nbgrader.apps import NbGraderAPI
from traitlets.config import PyFileConfigLoader

from autograder import labs, samples, sandbox

NBGRADER = str(Path(sys.executable).with_name("nbgrader"))
SLOW = 300  # s, a guard against a hang

needs_sandbox = pytest.mark.skipif(sandbox.missing() is not None, reason=str(sandbox.missing()))


def nbgrader(course, *arguments):
    """Run an nbgrader command at the root of the course; returns what it says."""
    run = subprocess.run([NBGRADER, *arguments], cwd=course.root, capture_output=True, text=True, check=False, timeout=SLOW)
    assert run.returncode == 0, run.stderr
    return run.stdout + run.stderr


def score(course, student):
    with course.gradebook() as gradebook:
        return gradebook.find_submission("tiny", student).score


def test_generate_assignment_makes_the_lab_that_labs_makes(course):
    expected = labs.released(course, "tiny")
    shutil.rmtree(course.root / "solutions" / "tiny")
    nbgrader(course, "generate_assignment", "tiny")
    assert course.release("tiny").read_text() == expected


def test_generate_assignment_works_from_python_too(course):
    """With the course's configuration, but none of its own commands run before."""
    api = NbGraderAPI(config=PyFileConfigLoader("nbgrader_config.py", str(course.root)).load_config())
    assert api.generate_assignment("tiny")["success"]
    assert course.release("tiny").exists()
    assert api.get_assignment("tiny")["max_score"] == 10


@needs_sandbox
def test_from_assignment_to_exported_grades(course):
    """generate_assignment, autograde, generate_feedback and export, each as a command, on a lab that is already released."""
    labs.make(course, "tiny")  # as in a fresh clone: labs/ is there, the gradebook isn't
    samples.make(course, "tiny", course.submitted)
    for student in ("cleo", "dan", "eve"):
        shutil.rmtree(course.submitted / student)
    nbgrader(course, "generate_assignment", "tiny")
    nbgrader(course, "autograde", "tiny")
    assert [score(course, student) for student in ("ada", "ben")] == [10, 6]  # exercise 2 writes to stderr
    nbgrader(course, "generate_feedback", "tiny")
    assert course.feedback("tiny", "ada").exists()
    nbgrader(course, "export")
    rows = (course.grades / "grades.csv").read_text().splitlines()
    assert len(rows) == 3 and not list(course.root.glob("*.csv"))


def test_validate_tells_a_solved_lab_from_an_unsolved_one(course):
    labs.make(course, "tiny")
    lab = nbformat.read(course.release("tiny"), as_version=4)
    next(cell for cell in lab.cells if cell.id == "double").source = "def double(x):\n    return 2 * x"
    lab.cells = lab.cells[:5]
    nbformat.write(lab, course.root / "solved.ipynb")
    said = nbgrader(course, "validate", "labs/tiny/tiny.ipynb", "solved.ipynb")
    assert "VALIDATION FAILED ON 3 CELL(S)" in said and said.count("Success") == 1


def test_the_formgrader_lists_the_assignments(course):
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    extensions = {"nbgrader.server_extensions.formgrader": True}
    with open(course.root / "log", "w") as log:
        server = subprocess.Popen(
            [sys.executable, "-m", "jupyter_server", "--no-browser", "--allow-root", f"--port={port}",
             "--ServerApp.port_retries=0", "--IdentityProvider.token=",
             f"--ServerApp.jpserver_extensions={extensions}", f"--ServerApp.root_dir={course.root}"],
            cwd=course.root, stdout=log, stderr=subprocess.STDOUT)
    try:
        listed = fetch(f"http://127.0.0.1:{port}/formgrader/api/assignments", server)
        assert [assignment["name"] for assignment in json.loads(listed)] == ["tiny"]
        assert b"formgrader" in fetch(f"http://127.0.0.1:{port}/formgrader/manage_assignments", server).lower()
    finally:
        server.terminate()
        server.wait(SLOW)


def fetch(address, server):
    deadline = time.monotonic() + SLOW
    while time.monotonic() < deadline and server.poll() is None:
        try:
            with urllib.request.urlopen(address, timeout=SLOW) as answer:
                return answer.read()
        except urllib.error.HTTPError:
            raise
        except OSError:
            time.sleep(0.2)
    raise AssertionError(f"no answer from {address}")
