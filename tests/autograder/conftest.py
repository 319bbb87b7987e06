import pytest
from tiny_course import new_course

from autograder.course import Course


@pytest.fixture
def course(tmp_path) -> Course:
    return new_course(tmp_path)
