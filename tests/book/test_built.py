"""What the built files hold, and what they must not."""

from __future__ import annotations

import functools
import html as entities
import re
from pathlib import Path
from urllib.parse import unquote, urldefrag

import pytest
from bs4 import BeautifulSoup
from pages import pages

ROOT = Path(__file__).resolve().parents[2]
READABLE = {".html", ".md", ".ipynb", ".py", ".txt", ".js", ".json", ".csv"}
MARKS = ("### BEGIN SOLUTION", "### END SOLUTION", "### BEGIN HIDDEN TESTS", "### END HIDDEN TESTS")


def words(text: str) -> str:
    """Text without mark-up, and with single spaces."""
    return " ".join(entities.unescape(re.sub(r"<[^>]*>", "", text)).split())


def secrets() -> list[str]:
    """The solutions and hidden tests of every lab, those long enough to be nobody else's words."""
    blocks = []
    for source in sorted((ROOT / "solutions").glob("*.py")):
        blocks += re.findall(r"### BEGIN (?:SOLUTION|HIDDEN TESTS)\n(.*?)### END", source.read_text(), re.DOTALL)
    return [words(block) for block in blocks if len(words(block)) >= 60]


def test_no_file_holds_a_solution_or_a_hidden_test(html):
    told = secrets()
    for file in (path for path in html.rglob("*") if path.suffix in READABLE and "assets" not in path.parts):
        text = file.read_text(errors="replace")
        if "instructors" not in file.name:  # the page that explains the marks
            assert not [mark for mark in MARKS if mark in text], file
        plain = words(text)
        assert not [secret for secret in told if secret in plain], file


def test_only_the_book_is_built(html):
    made = {str(path.relative_to(html)) for path in html.rglob("*.html") if "_static" not in path.parts}
    assert made == {"index.html", *pages()}


@functools.cache
def parsed(file: Path) -> BeautifulSoup:
    """A built page."""
    return BeautifulSoup(file.read_text(), "html.parser")


@functools.cache
def anchors(file: Path) -> set[str]:
    """What links into a page can point at."""
    return {tag["id"] for tag in parsed(file).select("[id]")}


@pytest.mark.parametrize("name", pages())
def test_links_resolve(html, name):
    page = parsed(html / name)
    for link in (a["href"] for a in page.select("a[href]")):
        if re.match(r"[a-z]+:", link) or link == "#":
            continue
        path, anchor = urldefrag(link)
        target = ((html / name).parent / unquote(path)).resolve() if path else html / name
        assert target.exists(), link
        assert not anchor or unquote(anchor) in anchors(target), link


@pytest.mark.parametrize("name", pages())
def test_nothing_is_left_unresolved(html, name):
    """Footnotes and references without a target, which docutils marks as problematic."""
    page = parsed(html / name)
    assert not page.select(".problematic, .system-message")
    assert not re.findall(r"\[\^\w+\]|\{\w+\}`", page.select_one("article, main").get_text())


@pytest.mark.parametrize("name", pages())
def test_page_names_no_other_machine_to_load_from(html, name):
    page = parsed(html / name)
    loading = page.select("script[src], link[rel=stylesheet], img[src], iframe[src]")
    loaded = [tag.get("src") or tag.get("href") for tag in loading]
    assert not [address for address in loaded if re.match(r"([a-z]+:)?//", address)]
