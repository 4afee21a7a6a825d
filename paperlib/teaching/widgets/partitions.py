"""The partition explorer: the samples that each client of a partition holds."""

import math
from typing import Any

import ipywidgets as widgets
import numpy as np
import pandas as pd
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor

from paperlib.checks import one_of
from paperlib.data.datasets import DATASETS, available, training_labels
from paperlib.data.partitions import MAX_DRAWS, PARTITIONS, NoDrawError, Partition, partition
from paperlib.display import plots
from paperlib.display.markup import Markup, folded, listed
from paperlib.display.words import many
from paperlib.experiment import DEFAULTS
from paperlib.teaching.widgets.explorer import Explorer, View, control

DRAWS = 500  # of a Dirichlet partition that leaves a client empty: the 20,000 of a run take seconds
COLUMNS = {"heatmap": 200, "bubbles": 100}  # that can be told from each other on a screen; more clients share them


def partition_explorer(
    dataset: str | None = None,
    partition: str = "dirichlet",
    *,
    alpha: float = 0.1,
    classes_per_client: int = 2,
    clients: int = 100,
    seed: int = 0,
) -> Explorer:
    """Show what every client holds, for a data set at hand and any partition, and the line of code that makes the same.

    dataset: None is MNIST where it is at hand, else the digits of scikit-learn. partition: one of
    `paperlib.data.partitions.PARTITIONS`; alpha: Dirichlet concentration. These are the values at the start; each has
    a control. Only labels are read, no images.

        from paperlib.teaching import widgets
        widgets.partition_explorer("digits", "dirichlet", alpha=0.5, clients=20)

    Raises ValueError for a set that is not at hand, and for what `paperlib.data.partition` refuses at the start.
    """
    at_hand = [name for name in DATASETS if available(name)]
    dataset = dataset or ("mnist" if "mnist" in at_hand else "digits")
    if not available(dataset):
        raise ValueError(f"data set {dataset!r} is not at hand; choose one of {', '.join(at_hand)}")
    one_of("partition", partition, PARTITIONS)
    ways = ways_to_get([name for name in DATASETS if name not in at_hand])
    classes = int(training_labels(dataset)[0].max()) + 1
    named = list(dict.fromkeys([*at_hand, dataset]))  # which may be a set of the user's own
    data = control(widgets.Dropdown, "data set", dataset, options=named)
    kind = control(widgets.Dropdown, "partition", partition, options=list(PARTITIONS))
    concentration = control(
        widgets.FloatLogSlider, "alpha", alpha, min=min(-2, math.log10(alpha)), max=max(2, math.log10(alpha)), step=0.1,
        readout_format=".3g",
    )  # fmt: skip
    holding = control(
        widgets.IntSlider, "classes per client", classes_per_client, min=1, max=max(10, classes_per_client)
    )
    number = control(widgets.IntSlider, "clients", clients, min=1, max=max(1000, clients, classes))
    draw_seed = control(widgets.BoundedIntText, "seed", seed, "10em", min=0, max=10**9)
    look = control(widgets.ToggleButtons, "samples as", "heatmap", "max-content", options=["heatmap", "bubbles"])
    look.style.button_width = "7em"  # beside their name

    def fit(_: object = None) -> None:
        """Show what the partition asks for."""
        by_classes = kind.value == "classes_per_client"
        holding.layout.display = "" if by_classes else "none"
        concentration.layout.display = "" if PARTITIONS[kind.value].needs_alpha and not by_classes else "none"
        holding.max = max(holding.value, int(training_labels(data.value)[0].max()) + 1)

    def alpha_of_partition() -> float | None:
        """alpha as the partition takes it, in as many digits as the slider shows."""
        if not PARTITIONS[kind.value].needs_alpha:
            return None
        return holding.value if kind.value == "classes_per_client" else float(f"{concentration.value:.3g}")

    def draw() -> View:
        labels, writers = training_labels(data.value)
        settings: dict[str, Any] = {"clients": number.value, "alpha": alpha_of_partition(), "seed": draw_seed.value}
        table, counts = contents(draw_partition(labels, writers, kind.value, **settings))
        with plots.style():
            figure = picture(table, counts, look.value)
        code = experiment_line(data.value, kind.value, **settings)
        return View(words(table, counts.shape[1]), figure, code, ways)

    for menu in (data, kind):
        menu.observe(fit, "value")
    fit()
    return Explorer([[data, kind, concentration, holding], [number, draw_seed, look]], draw)


def ways_to_get(names: list[str]) -> Markup:
    """Return HTML that says how to get these data sets; nothing for none."""
    if not names:
        return Markup()
    ways = listed([Markup("<code>{}</code>: {}").format(name, DATASETS[name].obtain) for name in names])
    where = Markup("<p>Each becomes one file in the folder that PAPERLIB_DATA names, without it in data/sets:</p>")
    return folded(f"{many(len(names), 'data set')} not at hand", where + ways)


def draw_partition(labels: Tensor, writers: Tensor | None, name: str, **settings: Any) -> Partition:
    """`paperlib.data.partition`, which gives up earlier than for a run where a client stays empty."""
    try:
        return partition(labels, name, writers=writers, draws=DRAWS, **settings)
    except NoDrawError as error:
        raise ValueError(f"{error} (for a run it is drawn up to {MAX_DRAWS:,} times)") from error


def contents(parts: Partition) -> tuple[pd.DataFrame, Tensor]:
    """Samples, classes and label entropy (nats) per client; and samples per client and class, int64 [clients, C]."""
    return parts.describe()[["samples", "classes", "label_entropy"]], parts.counts()


def experiment_line(dataset: str, name: str, clients: int, alpha: float | None, seed: int) -> str:
    """Code of an experiment that has the partition."""
    fields: dict[str, Any] = {"dataset": dataset, "partition": name, "alpha": alpha, "clients": clients}
    if clients < DEFAULTS["sampled"]:
        fields["sampled"] = clients
    fields["partition_seed"] = seed
    return f"Experiment({', '.join(f'{field}={value!r}' for field, value in fields.items())})"


def words(table: pd.DataFrame, classes: int) -> str:
    """Say how many samples and how many kinds of labels the clients have."""
    sizes, skewed, most = table.samples, int((table.classes < 2).sum()), math.log(classes)
    return (
        f"{many(len(table), 'client')}, {sizes.min():,} to {sizes.max():,} samples (median {sizes.median():,.0f}); "
        f"label entropy {table.label_entropy.mean():.2f} nats on average, of at most ln {classes} = {most:.2f} for all "
        f"classes alike; {many(skewed, 'client')} {'holds' if skewed == 1 else 'hold'} fewer than two classes."
    )


def picture(table: pd.DataFrame, counts: Tensor, kind: str) -> Figure:
    """Samples per client and class as a "heatmap" or "bubbles", the clients' sizes, and their label entropies.

    Where clients are too many for a column each, like ones stand together: see `columns`.
    """
    figure = Figure(figsize=(11.6, 6.2))
    figure.subplots_adjust(left=0.06, right=0.99, bottom=0.075, top=0.955, hspace=0.32, wspace=0.12)
    axes = figure.subplot_mosaic([["samples", "samples"], ["sizes", "entropy"]])
    clients = len(counts)
    crowded = clients > COLUMNS[kind]
    plots.partition(columns(counts, COLUMNS[kind]) if crowded else counts, kind, axes["samples"])
    _sizes(axes["sizes"], table.samples.to_numpy())
    _entropies(axes["entropy"], table.label_entropy.to_numpy(), counts.shape[1])
    what = f"samples, means of {COLUMNS[kind]} groups of clients" if crowded else "samples"
    titles = (f"{what}{' (area)' * (kind == 'bubbles')}", "clients by size", "label entropy")
    for (name, ax), title in zip(axes.items(), titles, strict=True):
        plots.title(ax, title)
        for axis in (ax.xaxis, ax.yaxis):  # few: ticks are what a drawing spends most of its time on
            axis.set_major_locator(plots.MaxNLocator(5, integer=name != "entropy"))
        ax.set_axisbelow(True)
    axes["samples"].grid(kind == "bubbles")
    if crowded:
        axes["samples"].set_xlabel("clients, sorted by their most frequent class and its share")
        axes["samples"].xaxis.set_major_formatter(lambda column, _: f"{column * clients / COLUMNS[kind]:.0f}")
    return figure


def columns(counts: Tensor, number: int) -> Tensor:
    """Clients with the same most frequent class side by side, by its share; the means of so many groups, [number, C].

    In the clients' own order neighbours are unlike, and their means would hide how unlike.
    """
    most, frequent = counts.max(1)
    share = most / counts.sum(1)
    order = np.lexsort((-share.numpy(), frequent.numpy()))
    return torch.stack([group.double().mean(0) for group in counts[order].tensor_split(number)])


def _sizes(ax: Axes, samples: np.ndarray) -> None:
    ax.stairs(*np.histogram(samples, min(30, max(5, len(samples) // 3))), fill=True, color=plots.COLOURS[0])
    ax.axvline(float(np.median(samples)), color="0.2", linestyle="--", linewidth=1.2, label="median")
    ax.set(xlabel="samples of a client", ylabel="clients")
    ax.legend(loc="upper right")


def _entropies(ax: Axes, entropies: np.ndarray, classes: int) -> None:
    """A line per client; where these would run into each other, one outline of all, from the highest to the lowest."""
    clients = len(entropies)
    if clients > COLUMNS["heatmap"]:
        ax.stairs(np.sort(entropies)[::-1], np.arange(clients + 1) - 0.5, fill=True, color=plots.COLOURS[0])
    else:
        ax.vlines(range(clients), 0, entropies, color=plots.COLOURS[0], linewidth=max(1.2, 150 / clients))
    ax.axhline(math.log(classes), color="0.2", linestyle=":", linewidth=1.2, label=f"all classes alike, ln {classes}")
    ax.axhline(entropies.mean(), color=plots.COLOURS[1], linestyle="--", linewidth=1.5, label="mean of the clients")
    order = "clients, from the highest entropy to the lowest" if clients > COLUMNS["heatmap"] else "client"
    ax.set(xlim=(-0.7, clients - 0.3), ylim=(0, 1.3 * math.log(classes)), xlabel=order, ylabel="nats")
    ax.legend(loc="upper right", ncols=2)
