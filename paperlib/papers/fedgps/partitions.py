"""The partitions of FedGPS's scenarios. They depend only on the number of samples per class."""

from collections.abc import Callable

import pandas as pd
import torch
from matplotlib.figure import Figure
from torch import Tensor

from paperlib.data.partitions import partition
from paperlib.display import plots
from paperlib.papers.fedgps.setting import experiment
from paperlib.papers.results import Results
from paperlib.papers.rows import Row

SCENARIOS = (1, 2, 3, 4, 5)
# Training images per class.
SIZES = {
    "cifar10": (5000,) * 10,
    "svhn": (4948, 13861, 10585, 8497, 7458, 6882, 5727, 5595, 5045, 4659),
    "cifar100": (500,) * 100,
}
COLUMNS = ["scenario", "client", "class", "samples"]


def setting(dataset: str, clients: int) -> Row:
    """The setting of FedAvg's runs, without the scenario."""
    return {
        "dataset": dataset, "model": "resnet18", "partition": "dirichlet", "alpha": 0.1, "clients": clients,
        "sampled": 1, "rounds": 1, "local_epochs": 1, "method": "FedAvg",
    }  # fmt: skip


def counts(dataset: str, clients: int, scenario: int) -> Tensor:
    """Samples per client and class in a scenario's runs, int64 [clients, C]."""
    e = experiment({**setting(dataset, clients), "scenario": scenario}, 0)
    labels = torch.arange(len(SIZES[dataset])).repeat_interleave(torch.tensor(SIZES[dataset]))
    return partition(
        labels, e.partition, clients=e.clients, alpha=e.alpha, seed=e.partition_seed, min_samples=e.min_samples
    ).counts()


def heatmaps(dataset: str, clients: int) -> Callable[[Results], tuple[Figure, pd.DataFrame]]:
    """Figures 5 to 10: a panel per scenario."""

    def draw(results: Results) -> tuple[Figure, pd.DataFrame]:
        figure, axes = plots.panels(len(SCENARIOS), *((3, (3.1, 2.5)) if clients == 10 else (2, (4.4, 2.7))))
        data = [heatmap(ax, dataset, clients, s) for ax, s in zip(axes, SCENARIOS, strict=True)]
        return figure, pd.concat(data, ignore_index=True)

    return draw


def heatmap(ax: plots.Axes, dataset: str, clients: int, scenario: int) -> pd.DataFrame:
    """Draw one scenario; returns its nonzero counts."""
    table = counts(dataset, clients, scenario)
    plots.partition(table, "heatmap", ax)
    ax.set_title(f"scenario {scenario}")
    ax.grid(False)
    for axis, last in ((ax.xaxis, clients), (ax.yaxis, table.shape[1])):
        at = range(0, last, 1 if last <= 10 else 20)
        axis.set_ticks(list(at), list(map(str, at)), rotation=0)  # upright, in the middle of their cells
    client, label = table.nonzero().T.numpy()
    samples = table[client, label].numpy()
    return pd.DataFrame({"scenario": scenario, "client": client, "class": label, "samples": samples})
