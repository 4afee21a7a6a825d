"""Drawings that explain and need no runs: boxes, arrows and words at fixed places, from ``data/paper/diagrams``."""

import json
from collections.abc import Callable
from typing import Any

import pandas as pd
from matplotlib.figure import Figure

from paperlib.display import plots
from paperlib.papers.results import Results
from paperlib.paths import PAPER_VALUES


def diagram(name: str) -> Callable[[Results], tuple[Figure, pd.DataFrame]]:
    """Return the function that draws ``<name>.json``.

    The file has the size in inches, the rows of the figure's data, and the parts in order, each as [kind, arguments,
    options]: "box" and "arrow" as in `plots`, the others as matplotlib's axes draw them.
    """

    def draw(results: Results) -> tuple[Figure, pd.DataFrame]:
        drawing = json.loads((PAPER_VALUES / "diagrams" / f"{name}.json").read_text(encoding="utf-8"))
        figure, ax = plots.canvas(*drawing["size"])
        kinds: dict[str, Callable[..., Any]] = {
            "box": lambda *at, **look: plots.box(ax, *at, **look),
            "arrow": lambda *at, **look: plots.arrow(ax, *at, **look),
            "text": ax.text, "plot": ax.plot, "imshow": ax.imshow,
        }  # fmt: skip
        for kind, arguments, options in drawing["parts"]:
            kinds[kind](*arguments, **options)
        return figure, pd.DataFrame(drawing["rows"], columns=drawing["columns"])

    return draw
