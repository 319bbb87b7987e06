"""Builds the book: `python book/build.py` writes it to _build/html, doing only what has changed since the last time.

Pages are executed; a warning or an error on one of them fails the build.
"""

from __future__ import annotations

import fcntl
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
OUT = ROOT / "_build"


def build(out: Path = OUT) -> Path:
    """Build into `out`, one build at a time; returns the page to open. Raises CalledProcessError when the build fails."""
    out.mkdir(parents=True, exist_ok=True)
    with open(out / "book.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        try:
            subprocess.run([sys.executable, "-c", "from jupyter_book.cli.main import main; main()", "build", str(ROOT),
                            "--path-output", str(out.parent), "--warningiserror", "--keep-going"], check=True)
        except subprocess.CalledProcessError:
            # Sphinx would take the faulty pages as read, and say nothing about them the next time.
            shutil.rmtree(out / ".doctrees", ignore_errors=True)
            raise
    return out / "html" / "index.html"


if __name__ == "__main__":
    try:
        print(build())
    except subprocess.CalledProcessError as error:
        sys.exit(f"The book was not built; what is wrong stands above (exit code {error.returncode}).")
