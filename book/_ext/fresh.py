"""Runs a page again when what it was computed from has changed.

Executed pages are kept in a cache whose key is the code on the page. That code calls the library, so the cache lives in
a folder named for the library's contents: after any change there, every page is computed anew.
"""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Iterator
from pathlib import Path

from sphinx.application import Sphinx
from sphinx.config import Config


def sources(root: Path) -> Iterator[Path]:
    """What pages are computed from: the library, the measured results that the book shows, the pinned packages."""
    yield from sorted((root / "lib").rglob("*.py"))
    yield from sorted(path for path in (root / "book" / "measured").rglob("*") if path.is_file())
    yield root / "requirements.txt"


def fingerprint(root: Path) -> str:
    """A short name for the contents of all sources."""
    digest = hashlib.sha256()
    for path in sources(root):
        digest.update(str(path.relative_to(root)).encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()[:16]


def choose_cache(app: Sphinx, config: Config) -> None:
    """Name the cache for the library, and drop the caches of earlier states of it."""
    caches = Path(app.confdir, "_build", "executed")
    current = caches / fingerprint(Path(app.confdir))
    for stale in set(caches.glob("*")) - {current}:
        shutil.rmtree(stale)
    config.nb_execution_cache_path = str(current)


def setup(app: Sphinx) -> dict[str, bool]:
    app.connect("config-inited", choose_cache)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
