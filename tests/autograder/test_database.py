"""The gradebook in PostgreSQL, by its URL, and what is said when it can't be reached."""

import dataclasses
import subprocess
import sys

import postgresql
import pytest
from nbgrader.dbutil import _temp_alembic_ini
from tiny_course import new_course

from autograder import class_report, samples, sandbox
from autograder.course import Course
from autograder.errors import CourseError
from autograder.grade import grade


@pytest.mark.skipif(sandbox.missing() is not None, reason=str(sandbox.missing()))
@pytest.mark.skipif(postgresql.missing() is not None, reason=str(postgresql.missing()))
def test_grades_in_postgresql_are_those_in_sqlite(tmp_path):
    course = new_course(tmp_path)
    samples.make(course, "tiny", tmp_path / "submitted")
    students = ["ada", "ben", "cleo", "dan"]  # eve's never ends
    points = [outcome.points for outcome in grade(course, "tiny", tmp_path / "submitted", students=students, workers=2)]
    with postgresql.server() as url:
        there = dataclasses.replace(course, grades=tmp_path / "there", database=url)
        found = grade(there, "tiny", tmp_path / "submitted", students=students, workers=2)
        assert [outcome.points for outcome in found] == points
        with there.gradebook() as gradebook:
            scores = {submission.student_id: submission.score for submission in gradebook.assignment_submissions("tiny")}
        assert scores == {outcome.student: outcome.total for outcome in found}
        assert class_report.make(there, "tiny")
        assert not (there.grades / "gradebook.db").exists()


@pytest.mark.parametrize("url", ["sqlite:////nowhere/at/all.db", "no url", "oracle+nothing://grader:secret@host/grades"])
def test_a_gradebook_that_cannot_be_opened_is_named_without_its_password(tmp_path, url):
    with pytest.raises(CourseError, match="the gradebook .* can't be opened") as caught:
        Course.at(tmp_path, database=url).gradebook()
    assert "secret" not in str(caught.value)


def test_the_environment_names_the_database(tmp_path, monkeypatch):
    monkeypatch.setenv("MLSYSLAB_DATABASE", "sqlite:////elsewhere.db")
    assert Course.at(tmp_path).db_url == "sqlite:////elsewhere.db"
    assert Course.at(tmp_path, database="sqlite:////third.db").db_url == "sqlite:////third.db"


def test_a_new_gradebook_has_the_version_that_alembic_calls_its_newest(course):
    with course.gradebook():
        pass
    with _temp_alembic_ini(course.db_url) as settings:
        alembic = [sys.executable, "-m", "alembic.config", "-c", settings, "current"]
        said = subprocess.run(alembic, capture_output=True, text=True, check=True).stdout
    assert said.split()[1:] == ["(head)"]
