"""A course of one tiny lab, in a folder of its own."""

import shutil
import subprocess
import sys
from pathlib import Path

from autograder.course import Course

ROOT = Path(__file__).parents[2]
TINY = Path(__file__).with_name("tiny.py")


def new_course(root: Path) -> Course:
    (root / "solutions").mkdir()
    shutil.copy(TINY, root / "solutions" / "tiny.py")
    shutil.copy(ROOT / "nbgrader_config.py", root)
    (root / "autograder").symlink_to(ROOT / "autograder")
    return Course.at(root)


def command(course, *arguments, **more):
    """`python -m autograder`, with the course's root in the place of the checkout."""
    code = f"import pathlib, autograder.__main__ as it; it.ROOT = pathlib.Path({str(course.root)!r}); exit(it.main())"
    return subprocess.Popen([sys.executable, "-c", code, *arguments], cwd=ROOT, text=True, stdout=subprocess.PIPE,
                            stderr=subprocess.PIPE, **more)
