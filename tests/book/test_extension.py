"""The book's Sphinx extension: when pages run again, where the browser's files come from, what widgets are written with."""

from __future__ import annotations

import io
import json
import tarfile

import fresh
import lean
import pytest
import vendor
from ipywidgets.embed import embed_data
from sphinx.errors import ExtensionError

from mlsyslab.draw.widgets import explore, stepper


@pytest.fixture
def tree(tmp_path):
    """A checkout in little."""
    for name in ("lib/mlsyslab/ring.py", "book/measured/ring.json", "requirements.txt", "book/page.md"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("before")
    return tmp_path


@pytest.mark.parametrize("name", ["lib/mlsyslab/ring.py", "lib/mlsyslab/new.py", "book/measured/ring.json",
                                  "requirements.txt"])
def test_pages_run_again_when_what_they_were_computed_from_changes(tree, name):
    before = fresh.fingerprint(tree)
    (tree / name).write_text("after")
    assert fresh.fingerprint(tree) != before


def test_pages_do_not_run_again_for_prose(tree):
    before = fresh.fingerprint(tree)
    (tree / "book/page.md").write_text("after")
    assert fresh.fingerprint(tree) == before


def test_assets_are_fetched_once(tmp_path, monkeypatch):
    monkeypatch.setattr(vendor, "PACKAGES", ())
    vendor.vendor(tmp_path / "assets")
    monkeypatch.setattr(vendor, "download", None)
    vendor.vendor(tmp_path / "assets")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["assets"]


def test_an_archive_that_was_changed_is_refused(tmp_path, monkeypatch):
    def npm(arguments, cwd, **_):
        (cwd / "thing.tgz").write_bytes(b"not what was pinned")
        return type("Done", (), {"returncode": 0, "stdout": "thing.tgz\n", "stderr": ""})

    monkeypatch.setattr(vendor, "npm", npm)
    with pytest.raises(ExtensionError, match="SHA-512"):
        vendor.download(vendor.PACKAGES[0], tmp_path)


def test_only_the_named_files_are_taken(tmp_path):
    archive = tmp_path / "thing.tgz"
    with tarfile.open(archive, "w:gz") as tar:
        for name in ("package/dist/a.js", "package/dist/deep/a.js", "package/b.js", "package/LICENSE", "package/dist/a.map"):
            tar.addfile(tarfile.TarInfo(name), io.BytesIO())
    vendor.unpack(vendor.Package("thing", "1", "", ("dist/*.js",)), archive, tmp_path / "out")
    assert {str(path.relative_to(tmp_path / "out")) for path in (tmp_path / "out").rglob("*") if path.is_file()} == {
        "dist/a.js", "LICENSE"}


def test_widgets_are_written_as_ipywidgets_would_without_defaults():
    views = [explore(lambda p, n: f"<p>{p} {n}</p>", menus=["p"], p=[1, 2], n={"few": 1, "many": 9}), stepper(["a", "b"])]
    whole = embed_data(views, drop_defaults=False)["manager_state"]
    expected = embed_data(views, drop_defaults=True)["manager_state"]
    assert json.loads(lean.lean(json.dumps(whole))) == json.loads(json.dumps(expected)) != json.loads(json.dumps(whole))
