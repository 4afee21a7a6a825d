"""Helpers of the theory's figures: lines over a range, and shading where a statement fails."""

from collections.abc import Mapping

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from numpy.typing import ArrayLike

from paperlib.display.plots import COLOURS, LINES


def over_range(panel: str, x: ArrayLike, lines: Mapping[str, ArrayLike]) -> pd.DataFrame:
    """Values [n] of each line at x [n] (or one value for all), a row per point; columns: panel, x, line, value."""
    x = np.asarray(x, dtype=np.float64)
    parts = [
        pd.DataFrame({"panel": panel, "x": x, "line": name, "value": np.broadcast_to(value, x.shape)})
        for name, value in lines.items()
    ]
    return pd.concat(parts, ignore_index=True)


def draw(ax: Axes, data: pd.DataFrame, xlabel: str, ylabel: str) -> None:
    """The lines of one panel in order, with different colors and dashes; the first, the exact value, is black."""
    for number, (name, part) in enumerate(data.groupby("line", sort=False)):
        color = ("0.1", *COLOURS)[number]
        ax.plot(part.x, part.value, LINES[number % 4], color=color, label=str(name), linewidth=1.6)
    ax.set_title(data.panel.iloc[0])
    ax.set_xlabel(xlabel)
    ax.set_ylabel(ylabel)


def shade(ax: Axes, x: ArrayLike, where: ArrayLike, label: str) -> None:
    """Gray from bottom to top at the x for which ``where`` is true."""
    ax.fill_between(
        x, 0, 1, where=where, transform=ax.get_xaxis_transform(), color="0.6", alpha=0.25, linewidth=0, label=label
    )  # fmt: skip
