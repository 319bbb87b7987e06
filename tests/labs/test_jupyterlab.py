"""A student's way through the released lab, in JupyterLab in a real browser: write an answer, run it, read the verdict."""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path
from urllib.parse import urlsplit

import nbformat
import pytest

from autograder.sources import to_notebook

ROOT = Path(__file__).parents[2]
LAB = ROOT / "labs" / "collectives" / "collectives.ipynb"
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
SLOW = 180  # s, a guard against a hang

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="chromium isn't installed (apt install chromium)")

SETTINGS = {
    "notebook-extension/tracker": {"windowingMode": "none"},  # so that every cell is in the page
    "codemirror-extension/plugin": {"defaultConfig": {"autoClosingBrackets": False}},
    "apputils-extension/notification": {"fetchNews": "false", "checkForUpdates": False},
}

READY = """() => {
    const session = window.jupyterapp?.shell.currentWidget?.sessionContext;
    return session?.isReady && session.session?.kernel?.status === "idle";
}"""
RUN = """number => {
    const app = window.jupyterapp;
    app.shell.currentWidget.content.activeCellIndex = number;
    return app.commands.execute("notebook:run-cell");
}"""


@pytest.fixture
def server(tmp_path):
    """JupyterLab on a copy of the released lab, with nothing of the user's own settings; gives its address."""
    shutil.copy(LAB, tmp_path / LAB.name)
    settings = tmp_path / "settings" / "@jupyterlab"
    for name, values in SETTINGS.items():
        path = settings / f"{name}.jupyterlab-settings"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(values))
    folders = {"JUPYTERLAB_SETTINGS_DIR": "settings", "JUPYTERLAB_WORKSPACES_DIR": "workspaces", "IPYTHONDIR": "ipython",
               "JUPYTER_CONFIG_DIR": "config", "JUPYTER_DATA_DIR": "data", "JUPYTER_RUNTIME_DIR": "runtime", "HOME": ""}
    own = {name: str(tmp_path / folder) for name, folder in folders.items()}
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with open(tmp_path / "log", "w") as log:
        lab = subprocess.Popen([sys.executable, "-m", "jupyterlab", "--no-browser", "--allow-root", f"--port={port}",
                                "--ServerApp.port_retries=0", "--IdentityProvider.token=", "--ServerApp.ip=127.0.0.1",
                                "--LabApp.extension_manager=readonly", "--LabApp.expose_app_in_browser=True",
                                f"--ServerApp.root_dir={tmp_path}"],
                               cwd=tmp_path, env={**os.environ, **own},
                               stdout=log, stderr=subprocess.STDOUT, start_new_session=True)
    try:
        yield wait_for(f"http://127.0.0.1:{port}", lab, tmp_path / "log")
    finally:
        lab.send_signal(signal.SIGTERM)  # it shuts its kernels down
        try:
            lab.wait(60)
        except subprocess.TimeoutExpired:
            os.killpg(lab.pid, signal.SIGKILL)


def wait_for(address: str, lab: subprocess.Popen, log: Path) -> str:
    deadline = time.monotonic() + SLOW
    while time.monotonic() < deadline and lab.poll() is None:
        try:
            urllib.request.urlopen(f"{address}/api/status", timeout=5).close()
            return address
        except OSError:
            time.sleep(0.2)
    raise AssertionError(f"JupyterLab did not start:\n{log.read_text()[-4000:]}")


@pytest.fixture
def page():
    """A page of headless Chromium. Requests to other machines are stopped, and fail the test at its end."""
    from playwright.sync_api import sync_playwright

    strayed = []

    def guard(route):
        if urlsplit(route.request.url).hostname in ("127.0.0.1", None):
            route.continue_()
        else:
            strayed.append(route.request.url)
            route.abort()

    with sync_playwright() as playwright:
        flags = ["--disable-background-networking", *(["--no-sandbox"] if os.geteuid() == 0 else [])]
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=flags)
        page = browser.new_page(viewport={"width": 1400, "height": 1000})
        page.route("**/*", guard)
        page.set_default_timeout(SLOW * 1000)
        yield page
        browser.close()
    assert not strayed


class Notebook:
    """The open notebook; cells are named by their grade_id."""

    def __init__(self, page, path: Path):
        self.page = page
        self.numbers = {cell.id: number for number, cell in enumerate(nbformat.read(path, as_version=4).cells)}

    def cell(self, name: str):
        return self.page.locator(f".jp-Notebook > .jp-WindowedPanel-outer .jp-Cell >> nth={self.numbers[name]}")

    def write(self, name: str, source: str) -> None:
        self.cell(name).locator(".cm-content").click()
        self.page.keyboard.press("Control+A")
        self.page.keyboard.insert_text(source)

    def run(self, name: str) -> str:
        """Run a cell, and return what it puts out."""
        cell = self.cell(name)
        self.page.evaluate(RUN, self.numbers[name])  # ends when the cell has run
        assert any(map(str.isdigit, cell.locator(".jp-InputPrompt").first.inner_text())), f"{name} did not run"
        return "\n".join(cell.locator(".jp-OutputArea-output").all_inner_texts())


def test_an_answer_is_typed_and_checked(server, page):
    """The test cell passes on the solution, and names the mistake of a wrong one."""
    page.goto(f"{server}/lab/tree/{LAB.name}?reset")
    page.wait_for_function(READY)
    notebook = Notebook(page, LAB)
    notebook.run("imports")

    solution = next(cell for cell in to_notebook(ROOT / "solutions" / "collectives.py").cells if cell.id == "mst_broadcast")
    notebook.write("mst_broadcast", solution.source)
    notebook.run("mst_broadcast")
    assert "mst_broadcast: right in" in notebook.run("mst_broadcast_check")

    notebook.write("mst_broadcast", "def mst_broadcast(comm, tensor, root):\n    return tensor")
    notebook.run("mst_broadcast")
    message = notebook.run("mst_broadcast_check")
    assert "rank 1 returned" in message and "expected" in message
