"""Labs are made from their sources: the same ones every time, and only when they have changed."""

import nbformat
import pytest

from autograder import labs
from autograder.errors import CourseError
from autograder.sources import make_notebook, to_notebook


def source(tmp_path, text):
    path = tmp_path / "lab.py"
    path.write_text(text)
    return path


def test_cells_are_named_by_their_grade_id_or_by_the_last_one_before(course):
    names = [cell.id for cell in to_notebook(course.source("tiny")).cells]
    assert names[:5] == ["start-1", "start-2", "about-double", "double", "test-double"]
    assert names[6:9] == ["hidden-double-1", "warn", "test-warn"]


def test_the_same_source_makes_the_same_lab(course):
    assert labs.released(course, "tiny") == labs.released(course, "tiny")


def test_a_lab_is_made_again_only_when_its_source_has_changed(course):
    assert labs.make(course, "tiny") == "made"
    assert labs.make(course, "tiny") == "unchanged"
    path = course.source("tiny")
    path.write_text(path.read_text().replace("Three exercises", "Just three exercises"))
    assert labs.make(course, "tiny") == "made"
    assert "Just three exercises" in course.release("tiny").read_text()


def test_an_older_source_is_taken_too(course):
    """As when git checks out an earlier version: the time of change goes back."""
    import os

    before = make_notebook(course, "tiny").read_text()
    path = course.source("tiny")
    path.write_text(path.read_text().replace("A tiny lab", "An older lab"))
    os.utime(path, (1e9, 1e9))
    os.utime(course.notebook("tiny"), (2e9, 2e9))
    assert make_notebook(course, "tiny").read_text() != before


def test_answers_in_a_released_lab_are_not_overwritten(course):
    labs.make(course, "tiny")
    path = course.release("tiny")
    lab = nbformat.read(path, as_version=4)
    next(cell for cell in lab.cells if cell.id == "double").source = "def double(x):\n    return 2 * x"
    nbformat.write(lab, path)
    assert labs.make(course, "tiny") == "kept"
    assert "return 2 * x" in path.read_text()


def test_a_released_lab_that_was_only_run_is_made_anew(course):
    labs.make(course, "tiny")
    path = course.release("tiny")
    lab = nbformat.read(path, as_version=4)
    lab.cells[1].execution_count = 7
    nbformat.write(lab, path)
    assert labs.make(course, "tiny") == "made"


@pytest.mark.parametrize(("cell", "message"), [
    ('# %% nbgrader={"solution": true}\nx = 1\n', "no grade_id"),
    ('# %% nbgrader={"grade_id": "a"}\n# %% nbgrader={"grade_id": "a"}\nx = 1\n', "'a' is given to two cells"),
])
def test_a_source_with_a_slip_is_refused_with_its_name(tmp_path, cell, message):
    with pytest.raises(CourseError, match=message):
        to_notebook(source(tmp_path, cell))


def test_what_a_source_leaves_out_is_filled_in(tmp_path):
    nb = to_notebook(source(tmp_path, '# %% nbgrader={"grade_id": "a", "grade": true, "points": 3}\nassert True\n'))
    assert nb.cells[0].metadata.nbgrader == {"grade_id": "a", "grade": True, "points": 3, "locked": True, "solution": False,
                                             "task": False, "schema_version": 3}


def test_an_unknown_lab_is_answered_with_the_ones_there_are(course):
    with pytest.raises(CourseError, match="no lab 'big'.* the labs are tiny"):
        make_notebook(course, "big")
