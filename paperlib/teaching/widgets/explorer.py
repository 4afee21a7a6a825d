"""What all explorers are made of: controls, and beside them a picture and words that follow every move."""

import asyncio
import base64
import html
import io
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import ipywidgets as widgets
from matplotlib.figure import Figure

PAUSE = 0.02  # seconds in which moves are gathered, so that a slider that is dragged does not leave a queue behind
# Sentences that change are read out by a screen reader; a mistake at once.
STYLE = """<style>
.explorer .said { line-height: 1.4; margin: .3em 0; max-width: 70em } .explorer .mistake { color: #a00000 }
.explorer img { max-width: 100%; height: auto } .explorer table { font-size: 90%; border-collapse: collapse }
.explorer th, .explorer td { text-align: left; vertical-align: top; padding: 1px 12px 1px 0 }
.explorer th { border-bottom: 1px solid #888 } .explorer td, .explorer dd { line-height: 1.4 }
.explorer dl { display: grid; grid-template-columns: minmax(8em, max-content) 1fr; gap: .2em 1em; margin: .5em 0 }
.explorer dt, .explorer dd { float: none; clear: none; width: auto; min-width: 0; margin: 0 }
.explorer dd pre { margin: 0; white-space: pre-wrap }
.explorer.computing img { opacity: .4 } .explorer.computing .said::after { content: " computing ..."; color: #a00000 }
.explorer .jupyter-widgets-disconnected { display: none }
.explorer button.copy { font: inherit; padding: .2em .8em } .explorer code { white-space: pre-wrap }
</style>"""

# What a page must do for the keyboard and for screen readers: JupyterLab's own shortcuts (arrows choose a cell) do not
# apply to the controls of an explorer, and the handle of a slider is called what its label says. From the move of a
# control to the next view, which a busy kernel may let wait, the page says that the view is being computed.
BEHAVIOUR = """
const box = this.closest('.explorer');
const adapt = () => {
    for (const control of box.querySelectorAll('select, input, button, [role=slider]'))
        control.setAttribute('data-lm-suppress-shortcuts', '');
    for (const handle of box.querySelectorAll('[role=slider]')) {
        const label = handle.closest('.jupyter-widgets').querySelector('label');
        if (label) handle.setAttribute('aria-label', label.textContent);
    }
};
new MutationObserver(adapt).observe(box, {childList: true, subtree: true});
adapt();
const shown = () => box.querySelector('.said')?.dataset.view;
let last = shown();
const computing = () => box.classList.add('computing');
box.addEventListener('change', computing);
box.addEventListener('click', event => {
    if (event.target.closest('button:not(.copy):not(.mod-active):not(:disabled)')) computing();
}, true);
new MutationObserver(changes => {
    if (shown() !== last) {
        last = shown();
        box.classList.remove('computing');
    } else if (changes.some(change => change.attributeName === 'aria-valuenow')) computing();
}).observe(box, {childList: true, subtree: true, attributes: true, attributeFilter: ['aria-valuenow']});
"""
# Scripts in HTML that comes later do not run, but an image says when it is there.
HEAD = (
    f'{STYLE}<img alt="" hidden src="data:image/gif;base64,R0lGODlhAQABAAAAACH5BAEKAAEALAAAAAABAAEAAAICTAEAOw==" '
    f'onload="{html.escape(BEHAVIOUR, quote=True)}">'
)


@dataclass(frozen=True)
class View:
    """What an explorer shows: words that say what is seen, a picture of it, and more (HTML) below, such as a table.

    unfinished: there is more to show soon, and the explorer draws again as soon as it has served what came meanwhile.
    """

    words: str
    figure: Figure | None = None
    more: str = ""
    unfinished: bool = False


class Explorer(widgets.VBox):
    """Controls above a view that is drawn anew when one of them changes.

    controls: in rows. draw: makes the view of the controls' present values; its ValueError is shown as a sentence, and
    the last view stays. Without a front end (papermill, a page made of the notebook) the first view is the output.
    """

    def __init__(self, controls: Sequence[Sequence[widgets.Widget]], draw: Callable[[], View]):
        self.draw = draw
        self._said = widgets.HTML()
        self._picture = widgets.HTML()
        self._more = widgets.HTML()
        self._waiting: asyncio.TimerHandle | None = None
        self._views = 0  # so many were shown: the page sees that one is new, even if it is like the last
        for row in controls:
            self.watch(*row)
        rows = [widgets.HBox(list(row), layout={"flex_flow": "row wrap"}) for row in controls]
        super().__init__([widgets.HTML(HEAD), *rows, self._said, self._picture, self._more])
        self.add_class("explorer")
        self.view = draw()
        self._show()

    def watch(self, *controls: widgets.Widget) -> None:
        """Follow the controls among these; for those that come later than the explorer, such as a method's options."""
        for control in controls:
            if isinstance(control, widgets.ValueWidget):
                control.observe(self._changed, "value")

    def refresh(self) -> None:
        """Draw the view of the present values."""
        self._waiting = None
        try:
            self.view = self.draw()
        except ValueError as mistake:
            self._tell("mistake", "role=alert", str(mistake))
        else:
            self._show()
            if self.view.unfinished:
                self._changed(None)

    def _changed(self, _: object) -> None:
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:  # no kernel
            self.refresh()
        else:
            self._waiting = self._waiting or loop.call_later(PAUSE, self.refresh)

    def _show(self) -> None:
        view = self.view
        drawn = (
            "" if view.figure is None else picture(view.figure, view.words)
        )  # takes time: words and picture together
        self._tell("", "aria-live=polite", view.words)
        self._picture.value = drawn
        self._more.value = view.more

    def _tell(self, kind: str, live: str, words: str) -> None:
        self._views += 1
        self._said.value = f'<p class="said {kind}" data-view="{self._views}" {live}>{html.escape(words)}</p>'

    def _repr_mimebundle_(self, **options: Any) -> dict[str, Any]:
        """The widget; and for whoever has no front end, the words and the picture."""
        bundle = super()._repr_mimebundle_(**options) | {"text/plain": self.view.words}
        if self.view.figure is not None:
            bundle["image/png"] = base64.b64encode(png(self.view.figure)).decode()
        return bundle


def picture(figure: Figure, words: str) -> str:
    """A figure as HTML, with its description."""
    encoded = base64.b64encode(png(figure)).decode()
    return f'<img src="data:image/png;base64,{encoded}" alt="{html.escape(words, quote=True)}">'


def png(figure: Figure) -> bytes:
    """A figure as PNG, as large as it is shown on a screen."""
    stream = io.BytesIO()
    figure.savefig(stream, format="png", dpi=100, pil_kwargs={"compress_level": 1})  # soon ready, if not small
    return stream.getvalue()


def copyable(code: str) -> str:
    """A line of code as HTML, with a button that copies it."""
    copy = f"navigator.clipboard.writeText({json.dumps(code)}).then(() => this.textContent = 'Copied')"
    button = f'<button class="copy" type="button" onclick="{html.escape(copy, quote=True)}">Copy</button>'
    return f"<p>{button} <code>{html.escape(code)}</code></p>"
