"""FedImpro: its diagram, drawn by code."""

from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import FancyArrowPatch, FancyBboxPatch

from paperlib.display import plots
from paperlib.papers.results import Results

REAL, DRAWN, SENT = plots.COLOURS[0], plots.COLOURS[1], "0.3"


def training(results: Results) -> tuple[Figure, pd.DataFrame]:
    """Figure 1: one client's local step and its exchange with the server."""
    figure, (ax,) = plots.panels(1, 1, (7, 3.7))
    ax.set_xlim(0, 14)
    ax.set_ylim(0, 7.4)
    ax.axis("off")
    for y, height, label in ((0.1, 4.5, "client m"), (5.5, 1.8, "server")):
        ax.add_patch(FancyBboxPatch((0.1, y), 13.8, height, boxstyle="round,pad=0.05", fc="none", ec="0.6"))
        ax.text(13.8, y + height - 0.1, label, fontsize=9, va="top", ha="right", color="0.35")
    _box(ax, 1.2, 3.0, 1.5, "images\n$x$")
    _box(ax, 4.2, 3.0, 2.4, "low-level model\n$\\varphi$", face="0.92")
    _box(ax, 9.2, 3.0, 2.4, "high-level model\n$g$", face="0.92")
    _box(ax, 12.5, 3.0, 2.2, "loss: of $h$\n+ $w$ · of $\\hat{h}$")
    _box(ax, 5.6, 0.95, 2.9, "mean, spread per class\n+ noise: $\\mathcal{H}_m$")
    _box(ax, 9.2, 0.95, 2.4, "draws $\\hat{h}\\sim\\mathcal{H}^r$", edge=DRAWN)
    _box(ax, 3.2, 6.3, 3.5, "mean of the clients'\nstatistics: $\\mathcal{H}^{r+1}$")
    _box(ax, 9.5, 6.3, 2.9, "average of the\nmodels: $\\theta^{r+1}$")
    _arrow(ax, [(2.05, 3), (2.95, 3)], REAL)
    _arrow(ax, [(5.45, 3), (7.95, 3)], REAL)
    _arrow(ax, [(6.1, 3), (6.1, 1.45)], REAL)
    _arrow(ax, [(10.45, 3.12), (11.35, 3.12)], REAL)
    _arrow(ax, [(10.45, 2.88), (11.35, 2.88)], DRAWN, "--")
    _arrow(ax, [(9.2, 1.4), (9.2, 2.55)], DRAWN, "--")
    _arrow(ax, [(4.1, 0.95), (2.5, 0.95), (2.5, 5.85)], SENT)
    _arrow(ax, [(5.0, 6.3), (7.5, 6.3), (7.5, 0.95), (7.95, 0.95)], DRAWN, "--")
    _arrow(ax, [(8.7, 5.85), (8.7, 3.45)], SENT)
    _arrow(ax, [(9.9, 3.45), (9.9, 5.85)], SENT)
    for x, y, text in ((5.6, 3.15, "features $h$"), (2.6, 4.85, "sends $\\mathcal{H}_m$"),
                       (7.6, 4.85, "$\\mathcal{H}^r$"), (8.8, 4.85, "$\\theta^r$"),
                       (10.0, 4.85, "sends $\\theta_m$")):  # fmt: skip
        ax.text(x, y, text, fontsize=8)
    return figure, pd.DataFrame()


def _box(ax: Axes, x: float, y: float, width: float, text: str, face: Any = "white", edge: Any = SENT) -> None:
    """A box around its centre."""
    shape = "round,pad=0.05"
    ax.add_patch(FancyBboxPatch((x - width / 2, y - 0.4), width, 0.8, boxstyle=shape, fc=face, ec=edge, zorder=3))
    ax.text(x, y, text, ha="center", va="center", fontsize=8, zorder=4)


def _arrow(ax: Axes, points: list[tuple[float, float]], color: Any, style: str = "-") -> None:
    """Straight pieces from point to point, the last one with a head."""
    ax.plot(*zip(*points[:-1], strict=True), color=color, linestyle=style, linewidth=1)
    ax.add_patch(
        FancyArrowPatch(
            *points[-2:], arrowstyle="-|>", mutation_scale=10, color=color, linestyle=style, shrinkA=0, shrinkB=0
        )
    )
