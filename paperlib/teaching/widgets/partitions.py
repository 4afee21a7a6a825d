"""The partition explorer: what each client of a partition holds."""

import html
import math
from typing import Any

import ipywidgets as widgets
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor

from paperlib.data.datasets import DATASETS, available, training_labels
from paperlib.data.partitions import MAX_DRAWS, PARTITIONS, NoDrawError, Partition, partition
from paperlib.display import plots
from paperlib.experiment import DEFAULTS
from paperlib.teaching.widgets.explorer import Explorer, View, copyable

DRAWS = 500  # of a Dirichlet partition that leaves a client empty: the 20,000 of a run take seconds


def partition_explorer(
    dataset: str | None = None,
    partition: str = "dirichlet",
    *,
    alpha: float = 0.1,
    classes_per_client: int = 2,
    clients: int = 100,
    seed: int = 0,
) -> Explorer:
    """What every client holds, for a data set at hand and any partition; and the line of code that makes the same.

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
    if partition not in PARTITIONS:
        raise ValueError(f"unknown partition {partition!r}; choose one of {', '.join(PARTITIONS)}")
    if dataset not in at_hand:  # a set of the user's own
        at_hand.append(dataset)
    elsewhere = _listed([name for name in DATASETS if name not in at_hand])
    most = max(10, clients, int(training_labels(dataset)[0].max()) + 1)
    of_set = _control(widgets.Dropdown, "data set", dataset, options=at_hand)
    kind = _control(widgets.Dropdown, "partition", partition, options=list(PARTITIONS))
    concentration = _control(
        widgets.FloatLogSlider, "alpha", alpha, min=min(-2, math.log10(alpha)), max=max(2, math.log10(alpha)), step=0.1,
        readout_format=".3g",
    )  # fmt: skip
    each = _control(widgets.IntSlider, "classes per client", classes_per_client, min=1, max=max(10, classes_per_client))
    number = _control(widgets.IntSlider, "clients", clients, min=1, max=max(1000, most))
    stream = _control(widgets.BoundedIntText, "seed", seed, min=0, max=10**9)
    stream.layout.width = "10em"
    look = _control(widgets.ToggleButtons, "samples as", "heatmap", options=["heatmap", "bubbles"])
    look.layout.width, look.style.button_width = "max-content", "6em"  # beside their name

    def fit(_: object = None) -> None:
        """Show what the partition asks for."""
        counted = kind.value == "classes_per_client"
        each.layout.display = "" if counted else "none"
        concentration.layout.display = "" if PARTITIONS[kind.value].needs_alpha and not counted else "none"
        each.max = max(each.value, int(training_labels(of_set.value)[0].max()) + 1)

    def chosen() -> float | None:
        """alpha as the partition takes it, in as many digits as the slider shows."""
        if not PARTITIONS[kind.value].needs_alpha:
            return None
        return each.value if kind.value == "classes_per_client" else float(f"{concentration.value:.3g}")

    def draw() -> View:
        labels, writers = training_labels(of_set.value)
        wanted: dict[str, Any] = {"clients": number.value, "alpha": chosen(), "seed": stream.value}
        table, counts = held(parts(labels, writers, kind.value, **wanted))
        with plots.style():
            figure = picture(table, counts, look.value)
        line = experiment_line(of_set.value, kind.value, **wanted)
        return View(words(table, counts.shape[1]), figure, copyable(line) + elsewhere)

    for control in (of_set, kind):
        control.observe(fit, "value")
    fit()
    return Explorer([[of_set, kind, concentration, each], [number, stream, look]], draw)


def _listed(names: list[str]) -> str:
    """HTML that says how to get these data sets."""
    if not names:
        return ""
    ways = "".join(f"<li><code>{name}</code>: {html.escape(DATASETS[name].obtain)}</li>" for name in names)
    return (
        f"<details><summary>{_many(len(names), 'data set')} not at hand</summary>"
        f"<p>Each becomes one file in the folder that PAPERLIB_DATA names, without it in data/sets:</p>"
        f"<ul>{ways}</ul></details>"
    )


def _control(kind: Any, name: str, value: Any, **more: Any) -> Any:
    return kind(value=value, description=name, style={"description_width": "initial"}, **more)


def parts(labels: Tensor, writers: Tensor | None, name: str, **wanted: Any) -> Partition:
    """`paperlib.data.partition`, which gives up earlier than for a run where a client stays empty."""
    try:
        return partition(labels, name, writers=writers, draws=DRAWS, **wanted)
    except NoDrawError as mistake:
        raise ValueError(f"{mistake} (for a run it is drawn up to {MAX_DRAWS:,} times)") from mistake


def held(divided: Partition) -> tuple[pd.DataFrame, Tensor]:
    """Samples, classes and label entropy (nats) per client; and samples per client and class, int64 [clients, C]."""
    return divided.describe()[["samples", "classes", "label_entropy"]], divided.counts()


def experiment_line(dataset: str, name: str, clients: int, alpha: float | None, seed: int) -> str:
    """Code of an experiment that has the partition."""
    fields: dict[str, Any] = {"dataset": dataset, "partition": name, "alpha": alpha, "clients": clients}
    if clients < DEFAULTS["sampled"]:
        fields["sampled"] = clients
    fields["partition_seed"] = seed
    return f"Experiment({', '.join(f'{field}={value!r}' for field, value in fields.items())})"


def words(table: pd.DataFrame, classes: int) -> str:
    """How many samples and how many kinds of labels the clients have."""
    sizes, few, most = table.samples, int((table.classes < 2).sum()), math.log(classes)
    return (
        f"{_many(len(table), 'client')}, {sizes.min():,} to {sizes.max():,} samples (median {sizes.median():,.0f}); "
        f"label entropy {table.label_entropy.mean():.2f} nats on average, of at most ln {classes} = {most:.2f} for all "
        f"classes alike; {_many(few, 'client')} {'holds' if few == 1 else 'hold'} fewer than two classes."
    )


def _many(number: int, what: str) -> str:
    return f"{number} {what}{'s' * (number != 1)}"


def picture(table: pd.DataFrame, counts: Tensor, kind: str) -> Figure:
    """Samples per client and class as a "heatmap" or "bubbles", the clients' sizes, and their label entropies."""
    figure = Figure(figsize=(11.6, 6.2))
    figure.subplots_adjust(left=0.045, right=0.99, bottom=0.075, top=0.955, hspace=0.32, wspace=0.12)
    axes = figure.subplot_mosaic([["samples", "samples"], ["sizes", "entropy"]])
    plots.partition(counts, kind, axes["samples"])
    _sizes(axes["sizes"], table.samples.to_numpy())
    _entropy(axes["entropy"], table.label_entropy.to_numpy(), counts.shape[1])
    titles = (f"samples{' (area)' * (kind == 'bubbles')}", "clients by size", "label entropy")
    for (name, ax), title in zip(axes.items(), titles, strict=True):
        plots.title(ax, title)
        for axis in (ax.xaxis, ax.yaxis):  # few: ticks are what a drawing spends most of its time on
            axis.set_major_locator(plots.MaxNLocator(5, integer=name != "entropy"))
        ax.set_axisbelow(True)
    axes["samples"].grid(kind == "bubbles")
    return figure


def _sizes(ax: Axes, samples: np.ndarray) -> None:
    ax.stairs(*np.histogram(samples, min(30, max(5, len(samples) // 3))), fill=True, color=plots.COLOURS[0])
    ax.axvline(float(np.median(samples)), color="0.2", linestyle="--", linewidth=1.2, label="median")
    ax.set(xlabel="samples of a client", ylabel="clients")
    ax.legend(loc="upper right")


def _entropy(ax: Axes, entropy: np.ndarray, classes: int) -> None:
    ax.vlines(range(len(entropy)), 0, entropy, color=plots.COLOURS[0], linewidth=max(1.2, 150 / len(entropy)))
    ax.axhline(math.log(classes), color="0.2", linestyle=":", linewidth=1.2, label=f"all classes alike, ln {classes}")
    ax.axhline(entropy.mean(), color=plots.COLOURS[1], linestyle="--", linewidth=1.5, label="mean of the clients")
    ax.set(xlim=(-0.7, len(entropy) - 0.3), ylim=(0, 1.3 * math.log(classes)), xlabel="client", ylabel="nats")
    ax.legend(loc="upper right", ncols=2)
