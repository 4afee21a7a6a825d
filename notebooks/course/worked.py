"""What worked examples are shown with: matrices with their numbers, and a picture that a slider moves."""

import base64
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import ipywidgets as widgets
import numpy as np
from matplotlib.figure import Figure
from torch import Tensor

from paperlib.display import plots
from paperlib.display.markup import Markup
from paperlib.teaching.widgets.explorer import Explorer, View

# One page may have several of these, so each looks for its own pictures only.
TURN = (
    "const box = this.closest('.moving');"
    "box.querySelectorAll('figure').forEach((f, i) => f.style.display = i == this.value ? '' : 'none')"
)


CELL, GAP, TITLE = (0.6, 0.36), 0.4, 0.35  # inches: of a number, between tensors, above them


def numbers(tensors: Mapping[str, Tensor], digits: int = 2) -> Figure:
    """Tensors side by side with all their numbers, violet above zero and orange below: title -> [n] or [n, m]."""
    tables = {title: np.atleast_2d(tensor.detach().numpy()) for title, tensor in tensors.items()}
    largest = 1.6 * max(np.abs(table).max() for table in tables.values())
    width = sum(CELL[0] * table.shape[1] + GAP for table in tables.values())
    height = CELL[1] * max(len(table) for table in tables.values()) + TITLE
    with plots.style():
        figure, left = plots.Drawing(figsize=(width, height)), GAP / 2
        for title, table in tables.items():
            rows, columns = table.shape
            size = CELL[0] * columns, CELL[1] * rows
            ax = figure.add_axes((left / width, (height - TITLE - size[1]) / height, size[0] / width, size[1] / height))
            ax.imshow(table, cmap="PuOr", vmin=-largest, vmax=largest, aspect="auto")
            for (i, j), value in np.ndenumerate(table):
                ax.text(j, i, f"{value:.{digits}f}", ha="center", va="center")
            ax.set(title=title, xticks=[], yticks=[])
            ax.grid(False)
            ax.spines[:].set_visible(False)
            left += size[0] + GAP
    return figure


class Moving(Explorer):
    """A picture that one slider moves. Where there is no kernel the slider turns over the pictures of all its values.

    draw: a value -> the picture, and words that say what it shows. start: the place of the first value shown.
    """

    def __init__(
        self,
        name: str,
        values: Sequence[Any],
        draw: Callable[[Any], tuple[Figure, str]],
        start: int = 0,
    ):
        self.name, self.values, self.picture, self.start = name, list(values), draw, start
        style = {"description_width": "initial"}
        slider = widgets.SelectionSlider(options=self.values, value=self.values[start], description=name, style=style)
        super().__init__([[slider]], lambda: self._view(slider.value))

    def _view(self, value: Any) -> View:
        figure, words = self.picture(value)
        return View(f"{self.name} = {value}: {words}", figure)

    def _repr_mimebundle_(self, **options: Any) -> dict[str, Any]:
        return super()._repr_mimebundle_(**options) | {"text/html": str(self._pages())}

    def _pages(self) -> Markup:
        """The same slider above the pictures of all values, of which one is seen."""
        pages = []
        for i, value in enumerate(self.values):
            view = self._view(value)
            assert isinstance(view.figure, plots.Drawing)
            image = base64.b64encode(view.figure._repr_png_()).decode()
            hidden = "" if i == self.start else "display:none"
            pages.append(
                Markup(
                    '<figure style="margin:0;{}"><p>{}</p><img style="max-width:100%" alt="{}" '
                    'src="data:image/png;base64,{}"></figure>'
                ).format(hidden, view.words, view.words, image)
            )
        slider = Markup('<label>{} <input type="range" min="0" max="{}" value="{}" oninput="{}"></label>').format(
            self.name, len(pages) - 1, self.start, TURN
        )
        return Markup('<div class="moving">{}{}</div>').format(slider, Markup("").join(pages))
