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
    (tmp_path / "nbgrader_config.py").write_text((ROOT / "nbgrader_config.py").read_text().replace(
        "sys.path.insert(0, str(ROOT))", f"sys.path.insert(0, {str(ROOT)!r})"))
    (tmp_path / "grades").mkdir()
    return Course.at(tmp_path)
