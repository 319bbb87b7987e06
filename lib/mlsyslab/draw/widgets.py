"""Widgets that need no kernel: every state is computed beforehand, and a slider or a menu chooses which one is seen.

A frame is a `Picture` or a string of HTML. In a notebook and in the built book the same ipywidgets run: their link lives
in the browser (`jslink`), so nothing is computed when a reader moves a slider.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ipywidgets import HTML, Dropdown, Layout, SelectionSlider, Stack, VBox, Widget, jslink

from mlsyslab.draw.picture import STYLE, Picture

Frame = Picture | str


def stepper(frames: Sequence[Frame], label: str = "step", names: Sequence[str] | None = None) -> VBox:
    """Show one of `frames` at a time, chosen by a slider that arrow keys move too.

    label: what the slider counts.  names: what the slider shows beside it for each frame, by default "0 of 7", "1 of 7", …
    """
    if not frames:
        raise ValueError("stepper got no frames: give it at least one picture")
    names = [f"{i} of {len(frames) - 1}" for i in range(len(frames))] if names is None else list(names)
    if len(names) != len(frames):
        raise ValueError(f"stepper got {len(frames)} frames and {len(names)} names: give each frame one name")
    return explore(lambda **at: frames[at[label]], **{label: dict(zip(names, range(len(frames)), strict=True))})


def explore(frame: Callable[..., Frame], **axes: Sequence[Any] | Mapping[str, Any]) -> VBox:
    """Show `frame(**values)` for the values that sliders choose, one slider an axis.

    axes: by name, the values of each axis: a list, or a dict from the name that a reader sees to the value.
    Every combination is computed now, so keep an eye on their number; put the axis with most values last.
    """
    named = {axis: dict(values) if isinstance(values, Mapping) else {str(value): value for value in values}
             for axis, values in axes.items()}
    for axis, values in named.items():
        if not values:
            raise ValueError(f"explore got no values for {axis!r}: give each axis at least one")
    frames = _Frames()
    leaves = {at: frames.widget(frame(**{axis: named[axis][name] for axis, name in zip(named, at, strict=True)}))
              for at in itertools.product(*named.values())}
    sliders = [_slider(axis, list(values)) for axis, values in named.items()]

    def nest(at: tuple[str, ...]) -> Widget:
        """What is seen once the first axes stand at the names `at`."""
        if len(at) == len(sliders):
            return leaves[at]
        slider = sliders[len(at)]
        return _follow(slider, [nest((*at, name)) for name in slider.options])

    return VBox([frames.style, *sliders, nest(())])


def choose(options: Mapping[str, Widget], label: str) -> VBox:
    """Show one of several widgets at a time, chosen by name from a menu."""
    if not options:
        raise ValueError("choose got no options: give it at least one widget by name")
    menu = Dropdown(options=list(options), description=label, style={"description_width": "initial"})
    return VBox([menu, _follow(menu, list(options.values()))])


def _follow(control: SelectionSlider | Dropdown, children: Sequence[Widget]) -> Stack:
    """A stack of which the browser shows the child that `control` points at."""
    stack = Stack(children, selected_index=0)
    jslink((control, "index"), (stack, "selected_index"))
    return stack


def _slider(axis: str, names: list[str]) -> SelectionSlider:
    return SelectionSlider(options=names, value=names[0], description=axis, continuous_update=True,
                           layout=Layout(width="100%", max_width="34rem"), style={"description_width": "initial"})


class _Frames:
    """Makes the widget of each frame. All share one layout and one style, and equal frames are one widget: pages stay light."""

    def __init__(self):
        self.style = HTML(f"<style>{STYLE}</style>", layout=Layout(display="none"))
        self.shared = {"layout": Layout(), "style": self.style.style}
        self.made: dict[str, HTML] = {}

    def widget(self, frame: Frame) -> HTML:
        text = f'<div class="mls-figure">{frame.svg(style=False)}</div>' if isinstance(frame, Picture) else frame
        if text not in self.made:
            self.made[text] = HTML(text, **self.shared)
        return self.made[text]
