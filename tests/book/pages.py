"""Which pages the book has, and what a browser meets on one of them."""

from __future__ import annotations

from contextlib import contextmanager
from pathlib import Path

import yaml
from axe_playwright_python.sync_playwright import Axe

ROOT = Path(__file__).resolve().parents[2]


def pages() -> list[str]:
    """The pages of `_toc.yml`, in order, and those that Sphinx adds."""
    toc = yaml.safe_load((ROOT / "_toc.yml").read_text())

    def files(entry: dict) -> list[str]:
        inner = [file for key in ("parts", "chapters", "sections") for child in entry.get(key, []) for file in files(child)]
        return ([entry["file"]] if "file" in entry else []) + inner

    return [f"{name}.html" for name in (toc["root"], *files(toc), "search", "genindex")]


class Visit:
    """One page in the browser, with everything that went wrong on it.

    errors: console errors, uncaught exceptions, failed or refused requests, and requests to other machines, in words.
    """

    def __init__(self, page, base: str):
        self.page, self.errors = page, []
        page.route("**/*", lambda route: self._answer(route, base))
        page.on("console", lambda message: message.type == "error" and self.errors.append(f"console: {message.text}"))
        page.on("pageerror", lambda error: self.errors.append(f"exception: {error}"))
        page.on("requestfailed", lambda request: self.errors.append(f"failed: {request.url}"))
        page.on("response", lambda answer: answer.status >= 400 and self.errors.append(f"{answer.status}: {answer.url}"))

    def _answer(self, route, base: str) -> None:
        if route.request.url.startswith((base, "data:", "blob:")):
            route.continue_()
        else:
            self.errors.append(f"leaves this machine: {route.request.url}")
            route.abort()

    def violations(self) -> list[str]:
        """What axe finds wrong with the page as it is now."""
        found = Axe().run(self.page).response["violations"]
        return [f"{rule['id']}: {rule['help']}: {node['target']}" for rule in found for node in rule["nodes"]]


@contextmanager
def visit(browser, base: str, name: str, width: int = 1280, height: int = 900, scheme: str = "light"):
    """A `Visit` of page `name` under `base`, once its mathematics and its widgets are there."""
    context = browser.new_context(viewport={"width": width, "height": height}, color_scheme=scheme, reduced_motion="reduce")
    try:
        visit = Visit(context.new_page(), base)
        visit.page.goto(base + name, wait_until="load")
        visit.page.wait_for_function(SETTLED, timeout=60_000)
        yield visit
    finally:
        context.close()


#: MathJax has typeset the page, and each widget of the page has been drawn and given its name.
SETTLED = """async () => {
  await window.MathJax?.startup?.promise;
  const places = document.querySelectorAll('script[type="application/vnd.jupyter.widget-view+json"]').length;
  const sliders = [...document.querySelectorAll('.noUi-handle')];
  return document.querySelectorAll('.cell_output .jupyter-widgets.widget-vbox').length >= places
    && sliders.every(slider => slider.hasAttribute('aria-label')) && document.fonts.status === 'loaded';
}"""
