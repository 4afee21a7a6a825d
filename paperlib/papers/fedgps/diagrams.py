"""Figure 3 of FedGPS, redrawn: the goal of a client, and the point of its gradient."""

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from paperlib.display import plots
from paperlib.papers.results import Results

# mean, colour, label
FEATURES = (
    (0.0, 0, "$P_k$: features of\nclient k's images"),
    (3.1, 2, "$P_k^s$: surrogate features,\nclient k's extractor"),
    (6.2, 4, "$P^s$: surrogate prototypes,\nmean over the clients"),
)
ALIGNMENTS = ("1. at the client\n$\\lambda_1\\,d(P_k,P_k^s)$", "2. with the others\n$\\lambda_2\\,d(P^s,P_k^s)$")
# Of client k: where its loss is least, its curvature, the others' mean update, and the length of the shift.
OPTIMUM, CURVATURE = np.array([2.6, 0.5]), np.diag([0.35, 1.0])
OTHERS, LAMBDA_G, RATE = np.array([0.5, 1.0]), 0.8, 1.0


def goal_and_path(results: Results) -> tuple[Figure, pd.DataFrame]:
    """Figure 3: (a) the two alignments of Eq. 6, (b) the gradient of Eq. 7 for a quadratic loss."""
    figure, axes = plots.panels(2, 2, (4.2, 3.0))
    goal(axes[0])
    data = path(axes[1])
    return figure, data


def goal(ax: Axes) -> None:
    """Three distributions of features; each alignment draws two neighbours together."""
    x = np.linspace(-1.5, 7.7, 300)
    for mean, colour, label in FEATURES:
        ax.fill_between(x, np.exp(-((x - mean) ** 2) / 0.5), color=plots.COLOURS[colour], alpha=0.35, linewidth=0)
        ax.text(mean, -0.12, label, ha="center", va="top", fontsize=7.5)
    for (left, _, _), (right, _, _), text in zip(FEATURES[:2], FEATURES[1:], ALIGNMENTS, strict=True):
        ax.annotate("", (right - 0.15, 1.1), (left + 0.15, 1.1), arrowprops={"arrowstyle": "<->", "color": "0.25"})
        ax.text((left + right) / 2, 1.17, text, ha="center", va="bottom", fontsize=8)
    ax.text(3.1, -0.75, "together they bound $W_1$ between all features and $P^s$", ha="center", va="top", fontsize=8)
    ax.set(xlim=(-1.6, 7.8), ylim=(-1.0, 1.85), title="(a) static: the goal")
    ax.axis("off")


def path(ax: Axes) -> pd.DataFrame:
    """Contours of client k's loss; its gradient where it is, and at the shifted weights, both applied where it is."""
    shift = LAMBDA_G * OTHERS / np.linalg.norm(OTHERS)
    x, y = np.meshgrid(np.linspace(-0.8, 3.3, 120), np.linspace(-1.2, 1.7, 120))
    loss = sum(CURVATURE[i, i] * (z - OPTIMUM[i]) ** 2 for i, z in enumerate((x, y)))
    ax.contour(x, y, loss, levels=8, colors="0.8", linewidths=0.7)
    steps = {
        "own gradient": (np.zeros(2), "0.45"),
        "at $\\theta_k-e_k$ (Definition 4.5)": (-shift, plots.COLOURS[2]),
        "at $\\theta_k+e_k$ (authors' code)": (shift, plots.COLOURS[3]),
    }
    rows = []
    for label, (moved, colour) in steps.items():
        step = -RATE * CURVATURE @ (moved - OPTIMUM)
        ax.annotate("", tuple(step), (0, 0), arrowprops={"arrowstyle": "-|>", "color": colour, "linewidth": 1.8})
        ax.plot([], [], color=colour, label=label, linewidth=1.8)
        if moved.any():
            ax.plot(*moved, "o", color=colour, markersize=4)
        rows.append((label, *moved, *step))
    ax.annotate(
        "", tuple(OTHERS), (0, 0), arrowprops={"arrowstyle": "-|>", "color": plots.COLOURS[0], "linestyle": "--"}
    )
    ax.plot([], [], "--", color=plots.COLOURS[0], label="mean update of the others")
    ax.plot(0, 0, "o", color="0", markersize=5)
    ax.text(-0.1, 0, "$\\theta_k$", ha="right", va="center")
    ax.plot(*OPTIMUM, "+", color="0")
    ax.text(OPTIMUM[0], OPTIMUM[1] + 0.1, "least loss\nof client k", ha="center", va="bottom", fontsize=7.5)
    ax.set(aspect="equal", title="(b) dynamic: the path")
    ax.axis("off")
    title = "a step from $\\theta_k$ with the gradient taken there, or at a dot"
    ax.legend(title=title, title_fontsize=7.5, loc="upper center", bbox_to_anchor=(0.5, 0), ncols=2, fontsize=7.5)
    return pd.DataFrame(rows, columns=["gradient", "at_x", "at_y", "step_x", "step_y"])
