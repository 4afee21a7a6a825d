"""FedHydra: the kinds of heterogeneity and the framework as drawings (Figures 1 and 2)."""

import numpy as np
import pandas as pd
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from paperlib.data.partitions import partition
from paperlib.display import plots
from paperlib.networks import build
from paperlib.papers.fedhydra.setting import CLIENT_MODELS, LOCAL
from paperlib.papers.results import Results


def heterogeneity(results: Results) -> tuple[Figure, pd.DataFrame]:
    """Figure 1: (a) classes of the clients of 2c/c, (b) clients of growing size, (c) sizes of the networks M1 to M5."""
    clients, classes = len(LOCAL), 10
    labels = torch.arange(classes).repeat_interleave(100)
    other_labels = partition(labels, "two_classes", clients=clients, seed=0).counts().numpy()
    other_sizes = np.repeat(np.arange(1, clients + 1)[:, None], classes, 1) * 10
    networks = [build(model, (3, 32, 32), classes).size for model in CLIENT_MODELS]
    figure, axes = plots.panels(3, 3, (2.3, 2.2))
    for ax, counts, title in (
        (axes[0], other_labels, "(a) labels"),
        (axes[1], other_sizes, "(b) sizes"),
    ):
        _stacked(ax, counts)
        ax.set_title(title)
        ax.set_ylabel("samples by class")
    axes[2].set_title("(c) models")
    axes[2].bar(LOCAL, np.array(networks) / 1e6, color="0.85")
    axes[2].set_yscale("log")
    axes[2].set_ylabel("million parameters")
    for number, model in enumerate(CLIENT_MODELS):
        axes[2].text(number, 0.036, model.replace("_", " "), rotation=90, ha="center", va="bottom", fontsize=7)
    axes[2].set_ylim(0.03, 30)
    rows = [
        (k, int(other_labels[k].astype(bool).sum()), int(other_sizes[k].sum()), CLIENT_MODELS[k], networks[k])
        for k in range(clients)
    ]
    return figure, pd.DataFrame(rows, columns=["client", "(a) classes", "(b) samples", "(c) network", "parameters"])


def _stacked(ax: Axes, counts: np.ndarray) -> None:
    """A stacked bar per client with its samples per class, [clients, C]."""
    below = np.zeros(len(counts))
    for label, samples in enumerate(counts.T):
        ax.bar(range(len(counts)), samples, bottom=below, color=plots.COLOURS[label], width=0.7)
        below += samples
    ax.set_xlabel("client")
    ax.set_yticks([])


STEPS = (
    ("clients", "train to convergence, and upload once"),
    ("stratification", "for every client k and class j: a new generator learns to please client k with class j"),
    (
        "stratification",
        "u_kj, how far its loss falls over its floor; U, normalized over clients (U_r) and classes (U_c)",
    ),
    (
        "aggregation",
        "the generator makes images of asked labels y; the clients' logits are weighted with U_r[y] and U_c",
    ),
    ("aggregation", "generator: CE(P, y), BatchNorm statistics, and disagreement of teacher and student"),
    ("aggregation", "global model: KL to the weighted logits P, and CE to their arg-max; the two take turns"),
)


def framework(results: Results) -> tuple[Figure, pd.DataFrame]:
    """Figure 2: what the server does with the uploaded models, in two stages."""
    figure, ax = plots.canvas(7.0, 3.5)
    for y, name in ((2.7, "$F_1$"), (2.2, "$F_2$"), (1.1, "$F_m$")):
        plots.box(ax, 0.1, y, 0.75, 0.38, name, 7)
    ax.text(0.47, 1.85, "...", ha="center", va="center")
    ax.text(0.47, 3.3, "clients'\nmodels, once", ha="center", va="center", fontsize=8)
    plots.box(ax, 1.35, 0.15, 1.75, 3.2, "", 0)
    ax.text(2.22, 3.18, "1  stratification", ha="center", va="center", fontsize=9, weight="bold")
    plots.box(ax, 1.5, 2.45, 1.45, 0.5, "new generator for\neach $k$ and class $j$", 0)
    plots.box(ax, 1.5, 1.5, 1.45, 0.55, "fall of its loss:\n$(\\max\\ell-\\min\\ell)/\\min\\ell$", 0)
    plots.arrow(ax, (2.22, 2.43), (2.22, 2.07), "$\\mathrm{CE}(F_k(G(z)),\\,j)$", (0.08, 0))
    _scores(ax, 1.75, 0.42)
    plots.arrow(ax, (2.22, 1.48), (2.22, 1.16))
    plots.arrow(ax, (0.9, 2.0), (1.32, 2.0))
    plots.box(ax, 3.55, 0.15, 3.35, 3.2, "", 2)
    ax.text(5.22, 3.18, "2  generation and distillation", ha="center", va="center", fontsize=9, weight="bold")
    plots.box(ax, 3.7, 2.3, 1.05, 0.5, "generator $G$", 2)
    plots.box(ax, 5.7, 2.3, 1.05, 0.5, "clients $F_k$", 7)
    plots.arrow(ax, (4.77, 2.55), (5.68, 2.55), r"images of $y$")
    plots.box(ax, 4.55, 1.2, 2.2, 0.5, "$P=\\sum_k U_r[y,k]\\,U_c[\\cdot,k]\\,P_k$", 1)
    plots.arrow(ax, (6.2, 2.28), (6.2, 1.72), "logits $P_k$", (-0.08, 0))
    plots.arrow(ax, (2.95, 0.85), (4.53, 1.35), color=plots.COLOURS[0])
    ax.text(3.95, 1.28, "$U_r,\\,U_c$", ha="center", va="bottom", fontsize=8, color=plots.COLOURS[0])
    plots.arrow(ax, (4.75, 1.72), (4.3, 2.28), r"$L_{Gen}$", (-0.12, -0.05))
    plots.box(ax, 5.0, 0.28, 1.75, 0.45, "global model $F_g$", 2)
    plots.arrow(ax, (5.87, 1.18), (5.87, 0.75), "KL and CE", (0.08, 0))
    return figure, pd.DataFrame(STEPS, columns=["stage", "what"]).rename_axis("step").reset_index()


def _scores(ax: Axes, x: float, y: float) -> None:
    """U of 2c/c with three clients: dark where a client knows the class."""
    values = np.kron(np.eye(3), np.ones((2, 1))) * 0.9 + 0.05
    ax.imshow(values, extent=(x, x + 0.54, y, y + 0.72), cmap="Blues", vmin=0, vmax=1, aspect="auto")
    ax.text(x + 0.6, y + 0.36, "$U$: classes\nby clients", ha="left", va="center", fontsize=7)
    ax.text(x + 0.27, y - 0.04, r"$\to U_r,\,U_c$", ha="center", va="top", fontsize=8)
