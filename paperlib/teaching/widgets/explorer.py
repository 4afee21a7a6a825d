"""The frame of all explorers: controls, and below them words and a picture that follow every move."""

import asyncio
import base64
import io
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anywidget
import ipywidgets as widgets
from matplotlib.figure import Figure
from traitlets import Int, Unicode

from paperlib.display.markup import Markup, data_uri, escape

PAUSE = 0.02  # seconds in which moves are gathered, so that a slider that is dragged does not leave a queue behind


@dataclass(frozen=True)
class View:
    """The content of an explorer: words that say what is seen, and a picture of it.

    code: a line of code, which a button copies. more: HTML below, such as a table. unfinished: there is more to show
    soon, and the explorer draws again as soon as it has served what came meanwhile.
    """

    words: str
    figure: Figure | None = None
    code: str = ""
    more: Markup = Markup()
    unfinished: bool = False


class Screen(anywidget.AnyWidget):
    """A view in the page. Its parts are sent together, and shown when ``number`` counts up.

    picture: a data URI, or nothing. error: a sentence that stands above the last view.
    """

    _esm = Path(__file__).with_suffix(".js")
    _css = Path(__file__).with_suffix(".css")
    number = Int().tag(sync=True)
    error = Unicode().tag(sync=True)
    words = Unicode().tag(sync=True)
    picture = Unicode().tag(sync=True)
    code = Unicode().tag(sync=True)
    more = Unicode().tag(sync=True)

    def show(self, view: View) -> None:
        """Replace what is shown."""
        picture = "" if view.figure is None else data_uri(png(view.figure))
        with self.hold_sync():
            self.error, self.words, self.picture, self.code = "", view.words, picture, view.code
            self.more = str(escape(view.more))
            self.number += 1

    def refuse(self, error: str) -> None:
        """Say why there is no new view."""
        with self.hold_sync():
            self.error = error
            self.number += 1


class Explorer(widgets.VBox):
    """Controls above a view that is drawn anew when one of them changes.

    controls: in rows. draw: makes the view of the controls' present values; its ValueError is shown as a sentence, and
    the last view stays. Without a front end (papermill, a page made of the notebook) the first view is the output.

    JupyterLab hands in the moves of controls in several threads (subshells). All is drawn in one, that of the cell.
    """

    def __init__(self, controls: Sequence[Sequence[widgets.Widget]], draw: Callable[[], View]):
        self.draw = draw
        self.screen = Screen()
        self._drawing = 0  # the thread that does
        self._waiting: asyncio.TimerHandle | None = None
        try:
            self.loop: asyncio.AbstractEventLoop | None = asyncio.get_running_loop()
        except RuntimeError:  # no kernel
            self.loop = None
        for row in controls:
            self.watch(*row)
        rows = [widgets.HBox(list(row), layout={"flex_flow": "row wrap"}) for row in controls]
        super().__init__([*rows, self.screen])
        self.add_class("explorer")
        self._draw()

    def watch(self, *controls: widgets.Widget) -> None:
        """Follow the controls among these; for those that come later than the explorer, such as a method's options."""
        for control in controls:
            if isinstance(control, widgets.ValueWidget):
                control.observe(self._changed, "value")

    def call(self, function: Callable[[], object]) -> None:
        """Call a function in the thread of the cell, as soon as that is free; without a kernel now."""
        if self.loop is None:
            function()
        else:
            self.loop.call_soon_threadsafe(function)

    def refresh(self) -> None:
        """Draw the view of the present values; only in the thread of the cell."""
        self._waiting = None
        try:
            self._draw()
        except ValueError as error:
            self.screen.refuse(str(error))
        else:
            if self.view.unfinished:
                self._changed(None)

    def _draw(self) -> None:
        self._drawing = threading.get_ident()
        try:
            self.view = self.draw()
        finally:
            self._drawing = 0
        self.screen.show(self.view)

    def _changed(self, _: object) -> None:
        if self._drawing != threading.get_ident():  # what sets a control while it draws has drawn what it set
            self.call(self._refresh_soon)

    def _refresh_soon(self) -> None:
        if self.loop is None:
            self.refresh()
        elif self._waiting is None:
            self._waiting = self.loop.call_later(PAUSE, self.refresh)

    def _repr_mimebundle_(self, **options: Any) -> dict[str, Any]:
        """The widget; and for whoever has no front end, the words and the picture."""
        bundle = super()._repr_mimebundle_(**options) | {"text/plain": self.view.words}
        if self.view.figure is not None:
            bundle["image/png"] = base64.b64encode(png(self.view.figure)).decode()
        return bundle


def control(kind: Any, name: str, value: Any, width: str = "", label: str = "initial", **more: Any) -> Any:
    """Return a control of a kind with its name beside it. label: the width of the name, which is part of ``width``."""
    layout = {"width": width} if width else {}
    return kind(value=value, description=name, layout=layout, style={"description_width": label}, **more)


def png(figure: Figure) -> bytes:
    """A figure as PNG, as large as it is shown on a screen."""
    stream = io.BytesIO()
    figure.savefig(stream, format="png", dpi=100, pil_kwargs={"compress_level": 1})  # soon ready, if not small
    return stream.getvalue()
