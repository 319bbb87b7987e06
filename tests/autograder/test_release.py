"""The students' archive: what is needed is in it, and nothing that gives an answer away."""

import re
import subprocess
import sys
import zipfile

import nbformat
import pytest
from tiny_course import ROOT

from autograder import archive
from autograder.course import Course
from autograder.errors import CourseError
from autograder.sources import to_notebook

COURSE = Course.at(ROOT)
REGION = re.compile(r"### BEGIN (SOLUTION|HIDDEN TESTS)\n(.*?)### END", re.DOTALL)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """The archive, unpacked."""
    place = tmp_path_factory.mktemp("release")
    with zipfile.ZipFile(archive.make(COURSE, place / "course.zip")) as packed:
        packed.extractall(place)
    return place / archive.NAME


def test_labs_library_requirements_and_how_to_start_are_there(folder):
    files = {"requirements.txt", "README.md", "pyproject.toml", "LICENSE"}
    assert {path.name for path in folder.iterdir()} == {"labs", "lib"} | files
    assert {path.name for path in (folder / "labs").iterdir()} == set(COURSE.labs)
    assert (folder / "lib" / "mlsyslab" / "comm" / "communicator.py").is_file()
    assert all(f"labs/{lab}/{lab}.ipynb" in (folder / "README.md").read_text() for lab in COURSE.labs)


def test_nothing_else_is_there(folder):
    kinds = {path.suffix for path in folder.rglob("*") if path.is_file()}
    assert not kinds & {".pyc", ".db", ".html", ".csv"}
    others = ("__pycache__", "solutions", "autograder", "tests", "seed")
    assert not [path for path in folder.rglob("*") if path.name in others]


@pytest.mark.parametrize("lab", COURSE.labs)
def test_no_solution_and_no_hidden_test_is_in_a_lab(folder, lab):
    notebook = nbformat.read(folder / "labs" / lab / f"{lab}.ipynb", as_version=4)
    text = "\n".join(cell.source for cell in notebook.cells)
    sources = [cell.source for cell in to_notebook(COURSE.source(lab)).cells]
    given = "\n".join(REGION.sub("", source) for source in sources)
    lines = [line.strip() for source in sources for region in REGION.finditer(source) for line in region[2].splitlines()]
    secrets = [line for line in lines if len(line) > 25 and line not in given]
    assert secrets and not [line for line in secrets if line in text]
    assert "hidden=True" not in text and not any(cell.get("outputs") for cell in notebook.cells)


def test_the_library_works_from_the_archive(folder):
    code = "import mlsyslab as lib; print(lib.__file__, lib.simulate(lambda comm, x: x + comm.rank, [1, 1]).results)"
    run = subprocess.run([sys.executable, "-c", code], env={"PYTHONPATH": str(folder / "lib")}, capture_output=True,
                         text=True, cwd=folder, timeout=300, check=True)
    assert run.stdout.startswith(str(folder)) and "[1, 2]" in run.stdout


def test_the_same_course_makes_the_same_archive(tmp_path):
    one, two = (archive.make(COURSE, tmp_path / name).read_bytes() for name in ("one.zip", "two.zip"))
    assert one == two


def test_a_lab_that_would_give_something_away_is_not_released(tmp_path, monkeypatch):
    monkeypatch.setattr(archive, "released", lambda course, lab: "### BEGIN SOLUTION\nx = 1\n")
    with pytest.raises(CourseError, match="would give away"):
        archive.make(COURSE, tmp_path / "course.zip")
    assert not (tmp_path / "course.zip").exists()


def test_requirements_that_are_missing_are_named(tmp_path):
    (tmp_path / "requirements.txt").write_text("torch==2.13.0\n")
    with pytest.raises(CourseError, match="doesn't name cloudpickle, ipywidgets"):
        archive.requirements(Course.at(tmp_path))
