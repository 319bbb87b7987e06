"""A course of one tiny lab in a temporary folder."""

import shutil
from pathlib import Path

import pytest

from autograder.course import Course

ROOT = Path(__file__).parents[2]
TINY = Path(__file__).with_name("tiny.py")


@pytest.fixture
def course(tmp_path) -> Course:
    (tmp_path / "solutions").mkdir()
    shutil.copy(TINY, tmp_path / "solutions" / "tiny.py")
    shutil.copy(ROOT / "nbgrader_config.py", tmp_path)
    (tmp_path / "autograder").symlink_to(ROOT / "autograder")
    return Course.at(tmp_path)
