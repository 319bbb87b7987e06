"""The built book, served to a real browser that reaches nothing but this machine."""

from __future__ import annotations

import functools
import http.server
import os
import shutil
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "book"), str(ROOT / "book" / "_ext")]  # build.py, and the book's Sphinx extensions


@pytest.fixture(scope="session")
def html() -> Path:
    """The folder of the built book, brought up to date as `make book` does it."""
    import build

    return build.build().parent


class _Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_):
        """Say nothing: what fails is counted in the browser."""


@pytest.fixture(scope="session")
def site(html) -> Iterator[str]:
    """The address under which the book is served."""
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(_Quiet, directory=html)) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()


@pytest.fixture(scope="module")  # not longer: a thread runs one Playwright at a time, and other tests start their own
def browser():
    """Headless Chromium."""
    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    if chromium is None:
        pytest.skip("chromium is not installed (Debian, Ubuntu: apt install chromium)")
    from playwright.sync_api import sync_playwright

    arguments = ["--disable-background-networking"] + (["--no-sandbox"] if os.geteuid() == 0 else [])
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=arguments)
        yield browser
        browser.close()
