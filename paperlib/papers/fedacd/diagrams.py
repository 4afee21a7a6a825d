"""FedACD: a round as a drawing (Figure 1)."""

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from torch import Tensor, eye, full

from paperlib.display import plots
from paperlib.papers.results import Results

STEPS = (
    ("server", "sends the global model w to the sampled clients; before the first round it draws it"),
    ("client m", "before every epoch: mean softmax output per true class, the rows of P"),
    ("client m", "minimizes L1 + λ L2 on mixed images: wrong classes alike, logits shifted by log(P_yi / P_iy)"),
    ("client m", "scores its model, V = sigmoid(1 / KL(P || Q)), Q the template with equal errors"),
    ("client m", "uploads its model w_m and the number V_m"),
    ("server", "averages: w = Σ V_m w_m / Σ V_m"),
)


def workflow(results: Results) -> tuple[Figure, pd.DataFrame]:
    """Figure 1: the steps of a round, with an uneven P and the template Q of four classes."""
    figure, ax = plots.canvas(6.6, 3.2)
    plots.box(ax, 0.1, 2.4, 6.4, 0.6, "", 0)
    ax.text(0.25, 2.7, "server", va="center", fontsize=9, weight="bold")
    ax.text(1.35, 2.7, "1  sends w", ha="center", va="center", fontsize=8)
    ax.text(5.15, 2.7, r"6  $w=\sum_m V_m w_m\,/\,\sum_m V_m$", ha="center", va="center", fontsize=9)
    plots.box(ax, 0.1, 0.1, 6.4, 1.55, "", 7)
    ax.text(0.25, 1.5, "sampled client $m$", va="center", fontsize=9, weight="bold")
    uneven = full((4, 4), 0.02) + eye(4) * 0.5
    uneven[:, 0], uneven[:, 1] = uneven[:, 0] + 0.3, uneven[:, 1] + 0.1
    _matrix(ax, 0.3, 0.62, uneven / uneven.sum(1, keepdim=True))
    ax.text(0.66, 0.36, "2  $P$, mean softmax\nby true class", ha="center", va="center", fontsize=7.5)
    plots.box(ax, 1.75, 0.62, 1.6, 0.72, "3  local epochs on\n$L_1+\\lambda L_2$, mixup", 2)
    _matrix(ax, 3.85, 0.62, full((4, 4), 0.05) + eye(4) * 0.8)
    ax.text(4.21, 0.36, "template $Q$:\nequal errors", ha="center", va="center", fontsize=7.5)
    plots.box(ax, 4.8, 0.62, 1.6, 0.72, "4  $V_m=$\nsigmoid$(1/\\mathrm{KL}(P\\|Q))$", 1)
    plots.arrow(ax, (1.35, 2.4), (1.35, 1.67))
    plots.arrow(ax, (1.07, 1.12), (1.73, 1.12))
    plots.arrow(ax, (1.73, 0.78), (1.07, 0.78))
    ax.text(1.4, 0.95, "every epoch", ha="center", va="center", fontsize=7)
    plots.arrow(ax, (3.37, 0.98), (3.82, 0.98), "$P$")
    plots.arrow(ax, (4.62, 0.98), (4.78, 0.98))
    plots.arrow(ax, (5.6, 1.67), (5.6, 2.4), "5  $w_m$, $V_m$", (-0.1, 0))
    return figure, pd.DataFrame(STEPS, columns=["where", "what"]).rename_axis("step").reset_index()


def _matrix(ax: Axes, x: float, y: float, values: Tensor, cell: float = 0.18) -> None:
    """Shares as dark as they are large, rows from above."""
    rows = len(values)
    ax.imshow(
        values.numpy(), extent=(x, x + rows * cell, y, y + rows * cell), cmap="Blues", vmin=0, vmax=1, aspect="auto"
    )
    ax.add_patch(Rectangle((x, y), rows * cell, rows * cell, fill=False, edgecolor="0.5", linewidth=0.6))
