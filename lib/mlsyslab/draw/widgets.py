"""Widgets that need no kernel: every state is computed beforehand, and a slider or a menu chooses which one is seen.

A frame is a `Picture` or a string of HTML. In a notebook and in the built book the same ipywidgets run: their link lives
in the browser (`jslink`), so nothing is computed when a reader moves a slider.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
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


Values = Sequence[Any] | Mapping[str, Any]


def explore(frame: Callable[..., Frame], menus: Collection[str] = (), above: Callable[..., Frame] | None = None,
            start: Mapping[str, Any] | None = None, beside: str | None = None,
            **axes: Values | Callable[..., Values]) -> VBox:
    """Show `frame(**values)` for the values that readers choose, by a slider for each axis.

    axes: by name, the values of each axis: a list, or a dict from the name that a reader sees to the value. Or a function
    that returns these, given the values of the axes before it by name: the steps of a run, whose number depends on p.
    menus: axes that are chosen by name from a menu, not by a slider.
    above: what does not depend on the last axis; it is given the values of the others, and shown above the frame.
    start: the values that are shown at first, where they are among those of their axis; else the first one of each.
    beside: the name of a second choice on the last axis, of a frame to be shown below the first, or of none.
    Every combination is computed now, so keep an eye on their number; put the axis with most values last.
    """
    if unknown := set(menus) - set(axes):
        raise ValueError(f"explore got menus for {', '.join(sorted(unknown))}; its axes are {', '.join(axes)}")
    make = _Maker()

    def control(axis: str, values: Values) -> tuple[SelectionSlider | Dropdown, list[Any]]:
        named = _named(values)
        if not named:
            raise ValueError(f"explore got no values for {axis!r}: give each axis at least one")
        chosen = list(named.values())
        first = chosen.index(start[axis]) if start and start.get(axis) in chosen else 0
        return (make.menu if axis in menus else make.slider)(axis, list(named), first), chosen

    shared = {axis: control(axis, values) for axis, values in axes.items() if not callable(values)}
    second = None
    if beside:
        if callable(last := axes[list(axes)[-1]]):
            raise ValueError(f"beside={beside!r}: the values of the last axis must be given, not depend on the others")
        names, values = ["nothing", *_named(last)], [None, *_named(last).values()]
        second = make.menu(beside, names, values.index(start[beside]) if start and start.get(beside) in values else 0)

    def nest(chosen: dict[str, Any], rest: Sequence[str]) -> Widget:
        """What is seen once the axes before `rest` have the values `chosen`."""
        if not rest:
            return make.frame(frame(**chosen))
        axis = rest[0]
        chooser, values = shared[axis] if axis in shared else control(axis, axes[axis](**chosen))
        frames = [nest({**chosen, axis: value}, rest[1:]) for value in values]
        shown = [make.stack(chooser, frames)]
        if second and len(rest) == 1:
            shown.append(make.stack(second, [make.frame(""), *frames]))
        if above and len(rest) == 1:
            shown.insert(0, make.frame(above(**chosen)))
        if axis not in shared:
            shown.insert(0, chooser)
        return make.box(shown) if len(shown) > 1 else shown[0]

    inside = nest({}, list(axes))
    return make.box([make.sheet(), *(chooser for chooser, _ in shared.values()), *([second] if second else []), inside])


def _named(values: Values) -> dict[str, Any]:
    """The values of an axis, by the name that a reader sees."""
    return dict(values) if isinstance(values, Mapping) else {str(value): value for value in values}


def choose(options: Mapping[str, Widget], label: str) -> VBox:
    """Show one of several widgets at a time, chosen by name from a menu."""
    if not options:
        raise ValueError("choose got no options: give it at least one widget by name")
    make = _Maker()
    menu = make.menu(label, list(options))
    return make.box([menu, make.stack(menu, list(options.values()))])


class _Maker:
    """Makes the parts of one widget. They share layouts and styles, and equal frames are one part: pages stay light."""

    def __init__(self):
        self.layout, self.broad, self.hidden = Layout(), Layout(width="100%", max_width="34rem"), Layout(display="none")
        self.html, self.described = HTML(layout=self.hidden).style, {}
        self.sheets = {STYLE: None}  # the style sheets of all kinds of picture, in the order of their first use
        self.made: dict[str, HTML] = {}

    def frame(self, frame: Frame) -> HTML:
        """A frame, as a part that can be shown."""
        text = f'<div class="mls-figure">{frame.svg(style=False)}</div>' if isinstance(frame, Picture) else frame
        if isinstance(frame, Picture):
            self.sheets.setdefault(frame.css)
        if text not in self.made:
            self.made[text] = HTML(text, layout=self.layout, style=self.html)
        return self.made[text]

    def sheet(self) -> HTML:
        """The style sheets of all frames made so far."""
        return HTML(f"<style>{''.join(self.sheets)}</style>", layout=self.hidden, style=self.html)

    def menu(self, axis: str, names: list[str], first: int = 0) -> Dropdown:
        """A choice by name."""
        return self._described(Dropdown, axis, names, first, self.layout)

    def slider(self, axis: str, names: list[str], first: int = 0) -> SelectionSlider:
        """A choice by place."""
        return self._described(SelectionSlider, axis, names, first, self.broad)

    def _described(self, kind: type[Widget], axis: str, names: list[str], first: int, layout: Layout) -> Widget:
        style = self.described.get(kind, {"description_width": "initial"})
        made = kind(options=names, value=names[first], description=axis, layout=layout, style=style)
        self.described[kind] = made.style
        return made

    def stack(self, control: SelectionSlider | Dropdown, children: Sequence[Widget]) -> Stack:
        """A stack of which the browser shows the child that `control` points at."""
        stack = Stack(children, selected_index=control.index, layout=self.layout)
        jslink((control, "index"), (stack, "selected_index"))
        return stack

    def box(self, children: Sequence[Widget]) -> VBox:
        """Parts below one another."""
        return VBox(children, layout=self.layout)
