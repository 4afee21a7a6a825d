"""FedImpro: its diagram, drawn by code."""

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import FancyArrowPatch, FancyBboxPatch

from paperlib import plots
from paperlib.papers.gathering import Runs

REAL, DRAWN, MODEL = plots.COLOURS[0], plots.COLOURS[1], "0.92"


def training(runs: Runs, scale: str, seeds: int) -> tuple[Figure, pd.DataFrame]:
    """Figure 1: one client's local step and the exchange with the server."""
    with plots.style():
        figure, (ax,) = plots.panels(1, 1, (7, 3.7))
        ax.set_xlim(0, 14)
        ax.set_ylim(0, 7.4)
        ax.axis("off")
        for y, height, label in ((0.1, 4.5, "client m (each of those sampled)"), (5.5, 1.8, "server")):
            ax.add_patch(FancyBboxPatch((0.1, y), 13.8, height, boxstyle="round,pad=0.05", fc="none", ec="0.6"))
            ax.text(0.3, y + height - 0.1, label, fontsize=8.5, va="top", color="0.35")
        _box(ax, 0.9, 3.0, 1.6, "images\n$x_m$")
        _box(ax, 4.4, 3.0, 2.4, "low-level model\n$\\varphi$", MODEL)
        _box(ax, 8.9, 3.0, 2.4, "high-level model\n$g$", MODEL)
        _box(ax, 12.4, 3.0, 2.0, "loss: real\n+ $w$ · drawn")
        _box(ax, 4.4, 0.9, 3.2, "running mean and spread\nper class, + noise: $\\mathcal{H}_m$")
        _box(ax, 8.9, 0.9, 2.4, "$\\hat{h}$ drawn from $\\mathcal{H}^r$", edge=DRAWN)
        _box(ax, 4.4, 6.2, 3.4, "mean of the clients' statistics:\n$\\mathcal{H}^{r+1}$")
        _box(ax, 8.9, 6.2, 3.0, "average of the models:\n$\\theta^{r+1}$")
        for start, end, color, style in (
            ((1.7, 3.0), (3.2, 3.0), REAL, "-"), ((5.6, 3.0), (7.7, 3.0), REAL, "-"),
            ((10.1, 3.1), (11.4, 3.1), REAL, "-"), ((10.1, 2.9), (11.4, 2.9), DRAWN, "--"),
            ((8.9, 1.3), (8.9, 2.5), DRAWN, "--"), ((6.4, 3.0), (4.9, 1.45), REAL, "-"),
            ((2.8, 1.1), (2.7, 6.0), "0.3", "-"), ((6.1, 5.9), (7.8, 1.3), DRAWN, "--"),
            ((10.1, 3.4), (10.4, 5.7), "0.3", "-"), ((8.2, 5.7), (8.5, 3.5), "0.3", "-"),
        ):  # fmt: skip
            ax.add_patch(FancyArrowPatch(start, end, arrowstyle="-|>", mutation_scale=10, color=color, ls=style))
        for x, y, text in ((6.6, 3.2, "features $h_m$"), (2.5, 4.9, "sends"), (10.45, 4.9, "sends $\\theta_m$"),
                           (8.45, 4.9, "sends $\\theta^r$"), (6.2, 4.9, "sends $\\mathcal{H}^r$")):  # fmt: skip
            ax.text(x, y, text, fontsize=8, ha="center")
    return figure, pd.DataFrame()


def _box(ax: Axes, x: float, y: float, width: float, text: str, face: str = "white", edge: object = "0.3") -> None:
    """A box around its centre."""
    patch = FancyBboxPatch((x - width / 2, y - 0.4), width, 0.8, boxstyle="round,pad=0.06", fc=face, ec=edge)
    ax.add_patch(patch)
    ax.text(x, y, text, ha="center", va="center", fontsize=8)
