// What the pages do in the browser beyond the theme: widgets and wide content that work by keyboard and screen reader.
"use strict";

// The widget manager typesets labels through MathJax 2's queue; the book has MathJax 3.
function answerMathJax2() {
  if (window.MathJax && window.MathJax.typesetPromise) {
    window.MathJax.Hub = { Queue: ([, , element]) => window.MathJax.typesetPromise([element]) };
  }
}

// Pages opened from a folder cannot be fetched, so a search there lists titles without extracts.
function searchFromFolder() {
  if (location.protocol === "file:" && typeof DOCUMENTATION_OPTIONS !== "undefined") {
    DOCUMENTATION_OPTIONS.SHOW_SEARCH_SUMMARY = false;
  }
}

// A slider says its label and, in words, where it stands.
function nameSlider(widget) {
  const handle = widget.querySelector(".noUi-handle");
  const label = widget.querySelector(".widget-label");
  const readout = widget.querySelector(".widget-readout");
  if (!handle || !label) return;
  setAttribute(handle, "aria-label", label.textContent);
  if (readout) setAttribute(handle, "aria-valuetext", readout.textContent);
}

function setAttribute(element, name, value) {
  if (element.getAttribute(name) !== value) element.setAttribute(name, value);
}

// Whatever is wider than the page scrolls by itself, and can be reached by the Tab key while it does.
const WIDE = ".mls-figure, .highlight pre, .output pre, .pst-scrollable-table-container, .table-wide, mjx-container[display=true]";

function reachWide(element) {
  const wide = element.scrollWidth > element.clientWidth;
  if (wide && !element.hasAttribute("tabindex")) {
    element.tabIndex = 0;
    element.setAttribute("role", "group");
    element.setAttribute("aria-label", "scrolls sideways");
    element.dataset.scrolls = "";
  } else if (!wide && "scrolls" in element.dataset) {
    for (const name of ["tabindex", "role", "aria-label", "data-scrolls"]) element.removeAttribute(name);
  }
}

function tidy() {
  document.querySelectorAll(".widget-slider").forEach(nameSlider);
  document.querySelectorAll(WIDE).forEach(reachWide);
}

// Changes come in bursts (a slider moves, a frame is swapped), so look once a frame.
let waiting = false;
function tidySoon() {
  if (waiting) return;
  waiting = true;
  requestAnimationFrame(() => {
    waiting = false;
    tidy();
  });
}

searchFromFolder();
document.addEventListener("DOMContentLoaded", () => {
  answerMathJax2();
  document.querySelectorAll(".sidebar-primary-items__start").forEach((items) => {
    items.setAttribute("role", "region"); // the logo and the search button stand outside the theme's landmarks
    items.setAttribute("aria-label", "Book");
  });
  new MutationObserver(tidySoon).observe(document.body, { childList: true, subtree: true, characterData: true });
  addEventListener("resize", tidySoon);
  document.fonts.addEventListener("loadingdone", tidySoon); // a font that comes late makes text wider
  tidySoon();
});
