"""FedHydra's figures, drawn from the runs of its tables if possible."""

from collections.abc import Sequence

import pandas as pd
import torch
from matplotlib.figure import Figure
from torch import Tensor

from paperlib.data.datasets import DATASETS
from paperlib.display import plots
from paperlib.display.words import many
from paperlib.papers.cells import server_accuracy
from paperlib.papers.diagrams import diagram
from paperlib.papers.fedhydra import numbers
from paperlib.papers.fedhydra.curves import (
    ALPHAS,
    all_of,
    by_epoch,
    curves,
    finished,
    name_of,
)
from paperlib.papers.fedhydra.diagrams import heterogeneity
from paperlib.papers.fedhydra.setting import AVERAGED, METHODS, MODELS, longer, place
from paperlib.papers.fedhydra.tables import AT_ONCE
from paperlib.papers.results import Results
from paperlib.papers.rows import TITLES, stacked
from paperlib.papers.specs import figure_specs
from paperlib.runs.prepare import dataset_of

# -- partitions and weights: Figures 5 and 9


def stratification(results: Results) -> tuple[Figure, pd.DataFrame]:
    """Figure 5: samples per client and class, and U_r, whose rows, one per class, sum to one."""
    runs = finished(results, STRATIFIED, 1)
    data = pd.DataFrame(columns=["client", "class", "samples", "weight"])
    figure, axes = plots.panels(2, 2, (3.6, 3.0))
    if not runs:
        for ax in axes:
            plots.not_run(ax)
        return figure, data
    counts, weights = (torch.tensor(runs[0].summary[name]) for name in ("counts", "weights"))
    plots.partition(counts, "bubbles", axes[0])
    plots.matrix(axes[1], pd.DataFrame(weights.numpy()), "weight in U_r")
    axes[1].set_xlabel("client")
    axes[1].set_ylabel("class")
    axes[1].invert_yaxis()
    pairs = [(k, j) for k in range(len(counts)) for j in range(len(weights))]
    rows = [(k, j, int(counts[k, j]), float(weights[j, k])) for k, j in pairs]
    return figure, pd.DataFrame(rows, columns=data.columns)


STRATIFIED = place("mnist", None, "FedHydra")


def partitions(results: Results) -> tuple[Figure, pd.DataFrame]:
    """Figure 9: samples per client and class, of the first seed."""
    parts = []
    figure, axes = plots.panels(len(ALPHAS), 4, (2.2, 2.6))
    for ax, alpha in zip(axes, ALPHAS, strict=True):
        ax.set_title(f"α={alpha:g}")
        runs = finished(results, place("mnist", alpha, "FedHydra"), 1)
        if not runs:
            plots.not_run(ax)
            continue
        counts = torch.tensor(runs[0].summary["counts"])
        plots.partition(counts, "bubbles", ax)
        table = pd.DataFrame(counts.numpy()).rename_axis("client").reset_index()
        parts.append(table.melt("client", var_name="class", value_name="samples").assign(alpha=alpha))
    return figure, stacked(parts, ["alpha", "client", "class", "samples"])


# -- averaging and stratified ensembles: Figure 7

ENSEMBLES = {
    "ensemble_accuracy": "AE",
    "stratified_accuracy": "SA, no labels",
    "stratified_accuracy_using_labels": "SA told the true labels (uses test labels)",
}
TEACHERS: dict[str, dict[str, str]] = {"AE": AVERAGED, "SA": {}}  # of the students
DATA = (*ALPHAS, None)


def ensembles(results: Results) -> tuple[Figure, pd.DataFrame]:
    """Figure 7: the students of either ensemble in the upper row, the ensembles in the lower.

    Stratified aggregation needs the requested label of an image, which a test image does not have. So the ensemble
    tries every class in turn, or is given the true label, which is no fair test.
    """
    rows: list[tuple[object, ...]] = []
    for dataset in MODELS:
        for alpha in DATA:
            where = (TITLES[dataset], name_of(alpha))
            for teacher, other in TEACHERS.items():
                for run in finished(results, place(dataset, alpha, "FedHydra", **other)):
                    seed, last = run.experiment.seed, run.history.iloc[-1]
                    rows.append((*where, "student", teacher, seed, server_accuracy(run, 1)))
                    if teacher == "SA":
                        rows += [(*where, "ensemble", what, seed, last.get(name)) for name, what in ENSEMBLES.items()]
    data = pd.DataFrame(rows, columns=["dataset", "data", "kind", "ensemble", "seed", "accuracy"])
    figure, axes = plots.panels(2 * len(MODELS), len(MODELS), (3.6, 2.2))
    panels = [(kind, dataset) for kind in ("student", "ensemble") for dataset in MODELS]
    for ax, (kind, dataset) in zip(axes, panels, strict=True):
        ax.set_title(f"{TITLES[dataset]}: {kind}")
        panel = data[(data.kind == kind) & (data.dataset == TITLES[dataset])]
        if kind == "student" and 0 < panel.ensemble.nunique() < len(TEACHERS):
            plots.not_run(ax, "no student of AE is run at this scale, so SA's are left out")
        else:
            plots.bars(ax, panel, "data", "accuracy", "ensemble", "accuracy (%)", "α, or 2c/c")
    half = len(MODELS)
    for part in (axes[:half], axes[half:]):
        plots.legend(part, 7)
    return figure, data


# -- local epochs: Figure 8

EPOCHS = tuple(range(40, 401, 40))
AT_200 = ", E = 200"


def local_epochs(results: Results) -> tuple[Figure, pd.DataFrame]:
    """Figure 8: (a) FedAvg and the clients by local epochs, (b) the clients beside all methods at E = 200.

    With a constant learning rate a shorter training is the beginning of a longer one. The clients' accuracy comes from
    OT's runs, which share the clients and cost almost nothing on the server.
    """
    rows = []
    for epochs in EPOCHS:
        rows += [("FedAvg", run, server_accuracy(run, 1)) for run in finished(results, longer("FedAvg", epochs))]
        for run in finished(results, longer("OT", epochs)):
            rows += [(f"client {k}", run, run.history[f"client_{k}_accuracy"].iloc[-1]) for k in range(5)]
    rows += [(f"{m}{AT_200}", run, server_accuracy(run, 1)) for m in METHODS for run in finished(results, longer(m))]
    data = pd.DataFrame(
        [(name, run.experiment.local_epochs, run.experiment.seed, accuracy) for name, run, accuracy in rows],
        columns=["series", "local_epochs", "seed", "accuracy"],
    )
    level = data.series.str.endswith(AT_200)
    curves, levels = data[~level], data[level].assign(series=data.series.str.removesuffix(AT_200))
    ends = [levels.assign(local_epochs=end) for end in (curves.local_epochs.min(), curves.local_epochs.max())]
    figure, axes = plots.panels(2, 2, (3.4, 2.8))
    axes[1].set_title("methods at E = 200")
    for ax, part in zip(axes, (curves, pd.concat([curves[curves.series != "FedAvg"], *ends])), strict=True):
        plots.lines(ax, part, "local_epochs", "accuracy", "series", plots.ACCURACY, "local epochs")
    plots.legend(axes, 7)
    return figure, data


# -- synthetic images and time: Figures 12 and 13

SHOWN = [place(dataset, 0.5, "FedHydra") for dataset in ("fmnist", "cifar10")]


def synthetic(results: Results) -> tuple[Figure, pd.DataFrame]:
    """Figure 12: per class a training image and, below it, a synthetic image of the last epoch with that label."""
    runs = {run.experiment: run for row in SHOWN for run in finished(results, row, 1)}
    rows = []
    figure, axes = plots.panels(max(2 * len(runs), 1), 1, (6.0, 0.75))
    for number, (e, run) in enumerate(runs.items()):
        data, images, labels = dataset_of(e), run.kept["images"], run.kept["labels"]
        real_images = [data.train_images[data.train_labels == c][0] for c in range(data.num_classes)]
        synthetic_images = [images[labels == c][0] if (labels == c).any() else None for c in range(data.num_classes)]
        pictures_by_kind: dict[str, Sequence[Tensor | None]] = {"real": real_images, "synthetic": synthetic_images}
        for ax, (what, pictures) in zip(axes[2 * number :], pictures_by_kind.items(), strict=False):
            plots.images(ax, pictures)
            ax.set_ylabel(what, rotation=0, ha="right", va="center")
            for c, picture in enumerate(pictures):
                if picture is not None:
                    rows.append((DATASETS[e.dataset].title, what, c, float(picture.float().mean() / 255)))
        axes[2 * number].set_title(DATASETS[e.dataset].title)
    if not runs:
        plots.not_run(axes[0])
    return figure, pd.DataFrame(rows, columns=["dataset", "images", "class", "mean_pixel"])


TIMED = ("DENSE", "FedHydra")


def times(results: Results) -> tuple[Figure, pd.DataFrame]:
    """Figure 13: seconds on the server, without the clients' training; the repetitions are seeds."""
    rows = []
    for method in TIMED:
        for run in finished(results, place("cifar10", 0.5, method)):
            rows.append((run.experiment.seed + 1, method, run.summary["seconds"], run.summary["device"]))
    data = pd.DataFrame(rows, columns=["run", "method", "seconds", "device"])
    wide = data.pivot(index="run", columns="method", values="seconds").reindex(columns=list(TIMED))
    data["to_DENSE"] = data.seconds / data.run.map(wide["DENSE"])
    figure, axes = plots.panels(2, 2, (3.0, 2.4))
    for ax, column, label in zip(
        axes, ("seconds", "to_DENSE"), ("seconds on the server", "ratio to DENSE"), strict=True
    ):
        plots.bars(ax, data, "device", column, "method", label, f"device; {many(data.run.nunique(), 'run')}")
    plots.legend(axes)
    return figure, data


FIGURES = figure_specs("fedhydra", {
    "F1": heterogeneity,
    "F2": diagram("fedhydra_framework"),
    "F3": (*curves("fmnist"), numbers.overtakes("F3", "fmnist", (0.3, 0.1, 0.01))),
    "F4": (*curves("cifar10"), numbers.overtakes("F4", "cifar10", ALPHAS)),
    "F5": (lambda seeds: all_of([STRATIFIED])(1), stratification, numbers.weights),
    "F6": by_epoch({f"{TITLES[dataset]} 2c/c": (dataset, None) for dataset in MODELS}),
    "F7": (
        all_of([place(dataset, alpha, "FedHydra", **other)
                for dataset in MODELS for alpha in DATA for other in TEACHERS.values()]),
        ensembles, numbers.ensembles,
    ),
    "F8": (
        all_of([longer(method, epochs) for epochs in EPOCHS for method in AT_ONCE]
               + [longer(method) for method in METHODS if method not in AT_ONCE]),
        local_epochs, numbers.local_epochs,
    ),
    "F9": (lambda seeds: all_of([place("mnist", alpha, "FedHydra") for alpha in ALPHAS])(1), partitions),
    "F10": (*curves("mnist"), numbers.overtakes("F10", "mnist", ALPHAS)),
    "F11": (*curves("svhn"), numbers.overtakes("F11", "svhn", ALPHAS)),
    "F12": (lambda seeds: all_of(SHOWN)(1), synthetic),
    "F13": (all_of([place("cifar10", 0.5, method) for method in TIMED]), times, numbers.times),
})  # fmt: skip
