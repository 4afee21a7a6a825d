"""FedHydra: the kinds of heterogeneity (Figure 1)."""

from typing import Any

import numpy as np
import pandas as pd
import torch
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
    for ax, counts, title in zip(axes, (other_labels, other_sizes), ("(a) labels", "(b) sizes"), strict=False):
        look: dict[str, Any] = {"color": plots.COLOURS, "width": 0.7, "rot": 0, "legend": False, "grid": False}
        pd.DataFrame(counts).plot.bar(stacked=True, ax=ax, title=title, **look)
        ax.set(xlabel="client", ylabel="samples by class", yticks=[])
    axes[2].set_title("(c) models")
    axes[2].bar(LOCAL, np.array(networks) / 1e6, color="0.85")
    axes[2].set(yscale="log", ylabel="million parameters", ylim=(0.03, 30))
    for number, model in enumerate(CLIENT_MODELS):
        axes[2].text(number, 0.036, model.replace("_", " "), rotation=90, ha="center", va="bottom", fontsize=7)
    rows = [
        (k, int(other_labels[k].astype(bool).sum()), int(other_sizes[k].sum()), CLIENT_MODELS[k], networks[k])
        for k in range(clients)
    ]
    return figure, pd.DataFrame(rows, columns=["client", "(a) classes", "(b) samples", "(c) network", "parameters"])
