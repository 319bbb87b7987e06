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


@pytest.mark.parametrize("name", pages())
def test_page_fits_a_phone_in_the_dark(browser, site, name):
    with visit(browser, site, name, width=390, height=844, scheme="dark") as page:
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
def test_arrow_keys_move_widgets(browser, site, html, name):
    with visit(browser, site, name) as page:
        widgets = page.page.locator(WIDGET).all()
        for widget in widgets:
            for slider in widget.locator(".noUi-handle:visible").all():
                check_slider(page.page, widget, slider)
        assert len(widgets) == (html / name).read_text().count('type="application/vnd.jupyter.widget-view+json"')
        assert page.errors == []


#: A whole widget, not one inside another.
WIDGET = ".jupyter-widgets.widget-vbox:not(.jupyter-widgets .jupyter-widgets)"


def check_slider(page, widget, slider):
    """One arrow key shows something else, the other the same again."""
    slider.focus()
    before, place = picture(widget), slider.get_attribute("aria-valuetext")
    forth, back = ("ArrowRight", "ArrowLeft") if at_start(slider) else ("ArrowLeft", "ArrowRight")
    page.keyboard.press(forth)
    wait_until(page, slider, "!==", place)
    assert picture(widget) != before
    page.keyboard.press(back)
    wait_until(page, slider, "===", place)
    assert picture(widget) == before


def wait_until(page, slider, sign: str, place: str):
    """Wait until what the slider says is, or isn't, `place`."""
    page.wait_for_function(f"([slider, place]) => slider.getAttribute('aria-valuetext') {sign} place",
                           arg=[slider.element_handle(), place])


def at_start(slider) -> bool:
    return float(slider.get_attribute("aria-valuenow")) <= float(slider.get_attribute("aria-valuemin"))


def picture(widget) -> str:
    """What a widget shows below its controls."""
    return "".join(figure.inner_html() for figure in widget.locator(".widget-html-content").all())


@pytest.mark.parametrize("name", CHAPTERS)
def test_page_works_from_a_folder(browser, html, name):
    with visit(browser, f"file://{html}/", name) as page:
        assert page.errors == []


def test_the_index_leads_to_the_first_page(browser, html):
    page = browser.new_page()
    page.goto(f"file://{html}/index.html", wait_until="commit")
    page.wait_for_url(f"**/{CHAPTERS[0]}", wait_until="commit")
    page.close()


@pytest.mark.parametrize("where", ["server", "folder"])
def test_search_works_offline(browser, site, html, where):
    base = site if where == "server" else f"file://{html}/"
    with visit(browser, base, "search.html?q=rank") as page:
        page.page.wait_for_selector("#search-results li a", timeout=30_000)
        assert page.errors == []
