"""GC-Fed: partial participation, the projection and the means as drawings (Figures 1a, 3, 8)."""

from itertools import product

import numpy as np
import pandas as pd
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from paperlib.display import plots
from paperlib.methods.gc import MEANS
from paperlib.papers.results import Results
from paperlib.random_streams import rng


def partial_update(ax: Axes) -> None:
    """Figure 1a: random updates of ten clients in the plane, the average of all and that of two."""
    updates = rng(1, "sketch").normal((1.6, 0.7), 1.0, (10, 2))
    chosen = np.argsort(updates[:, 1])[-2:]
    for number, update in enumerate(updates):
        colour = plots.COLOURS[1] if number in chosen else "0.75"
        ax.annotate("", update, (0, 0), arrowprops={"arrowstyle": "->", "color": colour, "linewidth": 1})
    for mean, colour, text in (
        (updates.mean(0), plots.COLOURS[0], "all: true update"),
        (updates[chosen].mean(0), plots.COLOURS[3], "two: partial update"),
    ):
        ax.annotate("", mean, (0, 0), arrowprops={"arrowstyle": "-|>", "color": colour, "linewidth": 2.2})
        ax.plot([], [], color=colour, linewidth=2.2, label=text)
    true, partial = updates.mean(0), updates[chosen].mean(0)
    ax.plot(*np.transpose([true, partial]), ":", color="0.2", label="gap")
    ax.plot(0, 0, "o", color="0.2", markersize=4)
    low, high = np.minimum(updates.min(0), 0), np.maximum(updates.max(0), 0)
    ax.set(xlim=(low[0] - 0.3, high[0] + 0.3), ylim=(low[1] - 0.2, high[1] + 1.5), xticks=[], yticks=[], title="(a)")
    ax.legend(loc="upper left", fontsize=7)


# Two clients' gradients of a column of three weights.
GRADIENTS = {"A": np.array([0.6, 2.5, 0.3]), "B": np.array([2.3, -0.5, 0.3])}


def projection(results: Results) -> tuple[Figure, pd.DataFrame]:
    """Figure 3: gradients in three dimensions, seen from the side of the plane orthogonal to (1, 1, 1).

    The two clients disagree along e, which the projection removes: the projected gradients lie in one plane.
    """
    plane = np.array([[1.0, -1.0, 0.0], [1.0, 1.0, -2.0]])

    def seen(point: np.ndarray) -> tuple[float, float]:
        """Return the place on the sheet: e upwards, and the plane as from a little above it."""
        depth = float(plane[1] @ point / 6**0.5)
        return float(plane[0] @ point / 2**0.5) + 0.45 * depth, float(point.sum() / 3**0.5) + 0.4 * depth

    rows = []
    figure, ax = plots.canvas(4.8, 2.9)
    ax.set(xlim=(-2.7, 3.3), ylim=(-1.05, 2.6))
    corners = [seen(a * plane[0] * 1.5 + b * plane[1] * 0.8) for a, b in ((-1, -1), (1, -1), (1, 1), (-1, 1))]
    ax.fill(*np.transpose(corners), color=plots.COLOURS[0], alpha=0.12, linewidth=0)
    ax.text(*corners[0], " all entries sum to 0", va="bottom", fontsize=8, color=plots.COLOURS[0])
    origin = (0.0, 0.0)
    plots.arrow(ax, origin, (0, 1.5), color="0.55")
    ax.text(-0.08, 1.5, r"$\mathbf{e}$", ha="right", va="center", color="0.4")
    kept = {name: g - g.mean() for name, g in GRADIENTS.items()}
    for colour, (name, g) in zip((plots.COLOURS[3], plots.COLOURS[1]), GRADIENTS.items(), strict=True):
        projected = kept[name]
        plots.arrow(ax, origin, seen(g), color=colour, linestyle="--")
        plots.arrow(ax, origin, seen(projected), color=colour, linewidth=1.8)
        ax.plot(*np.transpose([seen(g), seen(projected)]), ":", color="0.4", linewidth=1)
        side = "right" if seen(g)[0] < 0 else "left"
        ax.text(*seen(g), f" $-G_{name}$ ", ha=side, va="bottom", fontsize=9, color=colour)
        ax.text(*seen(projected), f" $-PG_{name}$ ", ha=side, va="top", fontsize=9, color=colour)
        rows += [(name, "G", *g.tolist()), (name, "PG", *projected.tolist())]
    mean = np.mean(list(kept.values()), 0)
    plots.arrow(ax, origin, seen(mean), color=plots.COLOURS[2], linewidth=2.4)
    ax.text(*seen(mean), "$w^{t+1}-w^t$", ha="center", va="bottom", fontsize=9, color=plots.COLOURS[2])
    ax.text(-0.08, -0.08, "$w^t$", ha="right", va="top", fontsize=9)
    rows.append(("mean", "PG", *mean.tolist()))
    return figure, pd.DataFrame(rows, columns=["client", "what", "1", "2", "3"]).round(4)


def means(results: Results) -> tuple[Figure, pd.DataFrame]:
    """Figure 8: a weight of 3 x 3 kernels of 3 x 3; dark: the entries that share the mean of the first one.

    The kernels of an output channel form a row. The entries are read from the methods' own table.
    """
    rows = []
    figure, axes = plots.panels(len(MEANS), len(MEANS), (1.55, 1.9))
    for ax, (name, over) in zip(axes, MEANS.items(), strict=True):
        first = tuple(slice(None) if dim in over else 0 for dim in range(4))
        share = torch.zeros(3, 3, 3, 3)
        share[first] = 1
        kernels = torch.full((11, 11), torch.nan)  # with a gap after each kernel
        for out, source in product(range(3), repeat=2):
            kernels[4 * out : 4 * out + 3, 4 * source : 4 * source + 3] = share[out, source]
        ax.pcolormesh(kernels.numpy(), cmap="Blues", vmin=-0.2, vmax=1.2, edgecolors="white", linewidth=0.6)
        ax.set(xlim=(-0.7, 11.7), xticks=[], yticks=[], aspect="equal")
        ax.invert_yaxis()
        ax.grid(False)
        ax.spines[:].set_visible(False)
        of_mean = int(share.sum())
        symbols = [f"{axis[0]}_{{{axis[1:]}}}" for axis in name.split("*")]
        ax.set_title(f"${' '.join(symbols)}$", fontsize=9)
        ax.set_xlabel(f"{81 // of_mean} means of {of_mean}", fontsize=8)
        rows.append((name, ", ".join(str(dim) for dim in over), 81 // of_mean, of_mean))
    axes[0].set_ylabel("output channels", fontsize=8)
    figure.supxlabel("across: input channels; in each square: a kernel", fontsize=8)
    return figure, pd.DataFrame(rows, columns=["one mean per", "over dimensions", "means", "entries of each"])
