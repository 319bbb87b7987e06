"""Every page in a real browser: offline, by keyboard, on a phone, in the dark, and from a folder."""

from __future__ import annotations

import pytest
from pages import pages, visit

CHAPTERS = [name for name in pages() if name.startswith("book/")]


@pytest.mark.parametrize("name", pages())
def test_page_needs_nothing_from_outside_and_is_accessible(browser, site, name):
    with visit(browser, site, name) as page:
        assert page.violations() == []
        assert page.errors == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("name", pages())
def test_page_fits_a_phone(browser, site, name, scheme):
    with visit(browser, site, name, width=390, height=844, scheme=scheme) as page:
        assert page.page.evaluate("document.documentElement.scrollWidth") <= 390
        assert page.violations() == []
        assert page.errors == []


@pytest.mark.parametrize("name", CHAPTERS)
def test_mathematics_is_typeset(browser, site, html, name):
    formulas = (html / name).read_text().count('class="math ')
    with visit(browser, site, name) as page:
        assert page.page.locator(".math mjx-container").count() >= formulas
        assert page.page.locator("mjx-container [data-mjx-error], mjx-merror").count() == 0


@pytest.mark.parametrize("name", CHAPTERS)
def test_arrow_keys_move_widgets(browser, site, name):
    with visit(browser, site, name) as page:
        widgets = page.page.locator(".cell_output > .output > .jupyter-widgets, .widget-subarea > .jupyter-widgets")
        for number in range(widgets.count()):
            widget = widgets.nth(number)
            for slider in widget.locator(".noUi-handle:visible").all():
                check_slider(page.page, widget, slider)
        assert page.errors == []


def check_slider(page, widget, slider):
    """Right and left arrow show something else and the same again."""
    assert slider.get_attribute("aria-label")
    slider.focus()
    before, place = widget.inner_html(), slider.get_attribute("aria-valuetext")
    forth, back = ("ArrowRight", "ArrowLeft") if at_start(slider) else ("ArrowLeft", "ArrowRight")
    page.keyboard.press(forth)
    page.wait_for_function("([slider, old]) => slider.getAttribute('aria-valuetext') !== old", arg=[slider.element_handle(), place])
    assert picture(widget.inner_html()) != picture(before)
    page.keyboard.press(back)
    page.wait_for_function("([slider, old]) => slider.getAttribute('aria-valuetext') === old", arg=[slider.element_handle(), place])
    assert picture(widget.inner_html()) == picture(before)


def at_start(slider) -> bool:
    return float(slider.get_attribute("aria-valuenow")) <= float(slider.get_attribute("aria-valuemin"))


def picture(inside: str) -> str:
    """The part of a widget below its controls."""
    return inside[inside.find("mls-figure"):]


@pytest.mark.parametrize("name", ["index.html", *CHAPTERS])
def test_page_works_from_a_folder(browser, html, name):
    with visit(browser, f"file://{html}/", name) as page:
        assert page.errors == []


@pytest.mark.parametrize("where", ["server", "folder"])
def test_search_works_offline(browser, site, html, where):
    base = site if where == "server" else f"file://{html}/"
    with visit(browser, base, "search.html?q=rank") as page:
        page.page.wait_for_selector("#search-results li a", timeout=30_000)
        assert page.errors == []
