"""GC-Fed: partial participation, the framework, the projection and the means as drawings (Figures 1a, 2, 3, 8)."""

import numpy as np
import pandas as pd
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from paperlib.display import plots
from paperlib.methods.gc import MEANS
from paperlib.papers.gc_fed.theory import project
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


STAGES = (
    ("client", "feature layers", "Local GC: every gradient loses its mean per output channel, P g, before the step"),
    ("client", "classifier", "plain gradients"),
    ("server", "all layers", "averages the updates of the sampled clients"),
    ("server", "classifier", "Global GC: P on the averaged update; in the feature layers it changes next to nothing"),
)


def overview(results: Results) -> tuple[Figure, pd.DataFrame]:
    """Figure 2: the layers of two clients and of the server, coloured by where P is applied."""
    layers, width, cut = ("conv 1", "conv 2", "fc 1", "classifier"), 0.78, 3
    figure, ax = plots.canvas(6.8, 2.75)
    for client, y in (("client $A$", 0.35), ("client $B$", 1.25)):
        ax.text(0.1, y + 0.22, client, va="center", fontsize=9, weight="bold")
        for number, name in enumerate(layers):
            text = f"{name}\n$P\\nabla\\ell$" if number < cut else f"{name}\n$\\nabla\\ell$"
            plots.box(ax, 0.85 + number * (width + 0.06), y, width, 0.5, text, 2 if number < cut else 7)
        plots.arrow(ax, (4.25, y + 0.25), (4.95, 1.1), f"$\\Delta_{client[-2]}$", (0, 0.07 if y < 1 else 0.12))
    border = 0.85 + cut * (width + 0.06) - 0.03
    ax.plot([border, border], [0.2, 2.05], "--", color="0.3", linewidth=1)
    ax.text(border, 2.1, r"border $\lambda$", ha="center", va="bottom", fontsize=8)
    ax.text((0.85 + border) / 2, 2.45, "Local GC, in every local step", ha="center", fontsize=8,
            color=plots.COLOURS[2])  # fmt: skip
    ax.text(5.8, 2.45, "server", ha="center", fontsize=9, weight="bold")
    plots.box(ax, 5.0, 1.35, 1.65, 0.85, "feature layers\nmean of the $\\Delta_k$", 2)
    plots.box(ax, 5.0, 0.35, 1.65, 0.85, "classifier: Global GC\n$P$ (mean of the $\\Delta_k$)", 0)
    ax.text(5.8, 0.12, r"$w^{t+1}=w^t+P\Delta$", ha="center", fontsize=9)
    return figure, pd.DataFrame(STAGES, columns=["where", "layers", "what"])


# Two clients' gradients of a column of three weights.
GRADIENTS = {"A": (0.6, 2.5, 0.3), "B": (2.3, -0.5, 0.3)}


def projection(results: Results) -> tuple[Figure, pd.DataFrame]:
    """Figure 3: gradients in three dimensions, seen from the side of the plane orthogonal to (1, 1, 1).

    The two clients disagree along e, which the projection removes: the projected gradients lie in one plane.
    """
    plane = torch.tensor([[1.0, -1.0, 0.0], [1.0, 1.0, -2.0]], dtype=torch.float64)
    view = torch.stack([plane[0] / 2**0.5, torch.ones(3, dtype=torch.float64) / 3**0.5])
    tilt = plane[1] / 6**0.5

    def seen(point: torch.Tensor) -> tuple[float, float]:
        """The direction along e upwards, and the plane as from a little above it."""
        x, y = (view @ point).tolist()
        depth = float(tilt @ point)
        return x + 0.45 * depth, y + 0.4 * depth

    rows = []
    figure, ax = plots.canvas(4.8, 2.9)
    ax.set(xlim=(-2.7, 3.3), ylim=(-1.05, 2.6))
    corners = [seen(a * plane[0] * 1.5 + b * plane[1] * 0.8) for a, b in ((-1, -1), (1, -1), (1, 1), (-1, 1))]
    ax.fill(*np.transpose(corners), color=plots.COLOURS[0], alpha=0.12, linewidth=0)
    ax.text(*corners[0], " all entries sum to 0", va="bottom", fontsize=8, color=plots.COLOURS[0])
    origin = (0.0, 0.0)
    plots.arrow(ax, origin, (0, 1.5), color="0.55")
    ax.text(-0.08, 1.5, r"$\mathbf{e}$", ha="right", va="center", color="0.4")
    steps = {name: torch.tensor(g, dtype=torch.float64) for name, g in GRADIENTS.items()}
    for number, (name, g) in enumerate(steps.items()):
        colour, projected = plots.COLOURS[(3, 1)[number]], project(g)
        plots.arrow(ax, origin, seen(g), color=colour, linestyle="--")
        plots.arrow(ax, origin, seen(projected), color=colour, linewidth=1.8)
        ax.plot(*np.transpose([seen(g), seen(projected)]), ":", color="0.4", linewidth=1)
        side = "right" if seen(g)[0] < 0 else "left"
        ax.text(*seen(g), f" $-G_{name}$ ", ha=side, va="bottom", fontsize=9, color=colour)
        ax.text(*seen(projected), f" $-PG_{name}$ ", ha=side, va="top", fontsize=9, color=colour)
        rows += [(name, "G", *g.tolist()), (name, "PG", *projected.tolist())]
    mean = torch.stack([project(g) for g in steps.values()]).mean(0)
    plots.arrow(ax, origin, seen(mean), color=plots.COLOURS[2], linewidth=2.4)
    ax.text(*seen(mean), "$w^{t+1}-w^t$", ha="center", va="bottom", fontsize=9, color=plots.COLOURS[2])
    ax.text(-0.08, -0.08, "$w^t$", ha="right", va="top", fontsize=9)
    rows.append(("mean", "PG", *mean.tolist()))
    return figure, pd.DataFrame(rows, columns=["client", "what", "1", "2", "3"]).round(4)


def means(results: Results) -> tuple[Figure, pd.DataFrame]:
    """Figure 8: a weight of 3 x 3 kernels of 3 x 3; dark: the entries that share the mean of the first one.

    The kernels of an output channel form a row. The entries are read from the methods' own table.
    """
    shape, rows = (3, 3, 3, 3), []
    figure, axes = plots.panels(len(MEANS), len(MEANS), (1.55, 1.9))
    for ax, (name, over) in zip(axes, MEANS.items(), strict=True):
        first = tuple(slice(None) if dim in over else 0 for dim in range(4))
        share = torch.zeros(shape)
        share[first] = 1
        for out in range(3):
            for source in range(3):
                x, y = 3.6 * source, -3.6 * out
                ax.imshow(
                    share[out, source].numpy(),
                    extent=(x, x + 3, y - 3, y),
                    cmap="Blues",
                    vmin=-0.2,
                    vmax=1.2,
                    zorder=1,
                )
                for line in range(4):
                    ax.plot([x, x + 3], [y - line] * 2, color="white", linewidth=0.6, zorder=2)
                    ax.plot([x + line] * 2, [y - 3, y], color="white", linewidth=0.6, zorder=2)
        ax.set(xlim=(-0.2, 10.4), ylim=(-10.4, 0.2), xticks=[], yticks=[])
        ax.grid(False)
        for side in ax.spines.values():
            side.set_visible(False)
        of_mean = int(share.sum())
        symbols = [f"{axis[0]}_{{{axis[1:]}}}" for axis in name.split("*")]
        ax.set_title(f"${' '.join(symbols)}$", fontsize=9)
        ax.set_xlabel(f"{81 // of_mean} means of {of_mean}", fontsize=8)
        rows.append((name, ", ".join(str(dim) for dim in over), 81 // of_mean, of_mean))
    axes[0].set_ylabel("output channels", fontsize=8)
    figure.supxlabel("across: input channels; in each square: a kernel", fontsize=8)
    return figure, pd.DataFrame(rows, columns=["one mean per", "over dimensions", "means", "entries of each"])
