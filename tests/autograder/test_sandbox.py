"""What a student's code finds around it."""

import tempfile
from pathlib import Path

import pytest
from nbformat.v4 import new_notebook

from autograder import sandbox
from autograder.judge.lab import Lab
from autograder.judge.session import Session
from autograder.limits import Limits
from autograder.sandbox import Zygote

pytestmark = pytest.mark.skipif(sandbox.missing() is not None, reason=str(sandbox.missing()))


def printed(cell: str) -> str:
    """What a cell prints in a sandbox."""
    zygote = Zygote(Limits(cell=20.0), Lab("none", new_notebook()).library)
    session = Session(zygote, zygote.limits)
    try:
        outputs, limit = session.run("<cell>", cell)
    finally:
        session.close()
        zygote.close()
    assert limit is None
    return "".join(output.get("text", str(output)) for output in outputs)


def test_a_checkout_in_tmp_is_there_though_tmp_is_empty(monkeypatch):
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        Path(folder, "a checkout", "deep").mkdir(parents=True)
        Path(folder, "a checkout", "deep", "module.py").write_text("word = 'here'")
        Path(folder, "secret").write_text("not shown")
        Path(folder).chmod(0o755)
        shown = Path(folder, "a checkout")
        python = sandbox._python()
        monkeypatch.setattr(sandbox, "_python", lambda: (*python, shown))
        text = printed(f"""
import os, sys
sys.path.insert(0, {str(shown / "deep")!r})
import module
print(module.word, os.listdir({folder!r}))
open("/tmp/scratch", "w").write("mine")
try:
    open({str(shown / "planted")!r}, "w")
except OSError as error:
    print(error.strerror)
""")
        assert text == "here ['a checkout']\nRead-only file system\n"
        assert not (shown / "planted").exists() and not Path("/tmp/scratch").exists()
