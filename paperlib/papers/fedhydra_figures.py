"""FedHydra's figures, drawn from the runs of its tables wherever these hold what is shown."""

from collections.abc import Callable, Sequence

import pandas as pd
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor

from paperlib import plots
from paperlib.data.datasets import DATASETS
from paperlib.experiment import Experiment
from paperlib.federated.simulator import dataset_of
from paperlib.papers.fedhydra import METHODS, MODELS, experiment, place
from paperlib.papers.gathering import Runs
from paperlib.papers.grid import TITLES, Row, runs_of, stacked
from paperlib.papers.report import FigureSpec
from paperlib.papers.scales import at_scale
from paperlib.store import Run

Draw = Callable[[Runs, str, int], tuple[Figure, pd.DataFrame]]
ALPHAS = (0.5, 0.3, 0.1, 0.01)
AT_ONCE = ("FedAvg", "OT")  # methods without epochs on the server


def found(runs: Runs, row: Row, scale: str, seeds: int) -> list[Run]:
    """The runs there are of a row, at most one per seed."""
    return [runs[e] for e in (at_scale(e, scale) for e in runs_of(experiment, row, seeds)) if e in runs]


def all_of(rows: Sequence[Row]) -> Callable[[int], list[Experiment]]:
    return lambda seeds: [e for row in rows for e in runs_of(experiment, row, seeds)]


def name_of(alpha: float | None) -> str:
    return "2c/c" if alpha is None else f"{alpha:g}"


# -- accuracy by epoch on the server: Figures 3, 4, 6, 10, 11

COLUMNS = ["panel", "method", "seed", "epoch", "test_accuracy"]


def by_epoch(panels: dict[str, tuple[str, float | None]]) -> tuple[Callable[[int], list[Experiment]], Draw]:
    """Experiments and drawing of curves; panels: title -> data set and alpha. FedAvg and OT are level lines."""

    def draw(runs: Runs, scale: str, seeds: int) -> tuple[Figure, pd.DataFrame]:
        parts = []
        for title, (dataset, alpha) in panels.items():
            for method in METHODS:
                for run in found(runs, place(dataset, alpha, method), scale, seeds):
                    parts.append(_curve(run).assign(panel=title, method=method, seed=run.experiment.seed))
        data = stacked(parts, COLUMNS)
        level = data[data.epoch.isna()]
        data = data.dropna()
        epochs = (data.epoch.min(), data.epoch.max()) if len(data) else (1, 2)
        data = pd.concat([*(level.assign(epoch=end) for end in epochs), data], ignore_index=True)
        with plots.style():
            figure, axes = plots.panels(len(panels), 4, (2.6, 2.4))
            for ax, title in zip(axes, panels, strict=True):
                ax.set_title(title)
                _accuracy(ax, data[data.panel == title], "epoch", "test_accuracy", "method", "epoch on the server")
            _legend(axes)
        return figure, data

    return all_of([place(*at, method) for at in panels.values() for method in METHODS]), draw


def _accuracy(ax: Axes, data: pd.DataFrame, x: str, y: str, series: str, label: str) -> None:
    """Curves of accuracy over x, one per series; or a word that there is no run."""
    if not len(data):
        plots.not_run(ax)
        return
    plots.lines(ax, data, x, y, series)
    ax.set_xlabel(label)
    ax.set_ylabel("test accuracy (%)")


def _curve(run: Run) -> pd.DataFrame:
    """Accuracy by epoch; without an epoch for a method that has none."""
    history = run.history
    if len(history) > 1:
        return pd.DataFrame({"epoch": history["epoch"].astype(float), "test_accuracy": history.test_accuracy})
    return pd.DataFrame({"epoch": [float("nan")], "test_accuracy": history.test_accuracy})


def _legend(axes: Sequence[Axes], size: float = 8) -> None:
    """One legend, beside the last panel that has something to name."""
    for ax in reversed(axes):
        if ax.get_legend_handles_labels()[1]:
            axes[-1].legend(*ax.get_legend_handles_labels(), loc="upper left", bbox_to_anchor=(1, 1), fontsize=size)
            return


# -- partitions and weights: Figures 5 and 9


def stratification(runs: Runs, scale: str, seeds: int) -> tuple[Figure, pd.DataFrame]:
    """Figure 5: samples per client and class, and U_r, in each row of which a class's weights sum to one."""
    there = found(runs, STRATIFIED, scale, 1)
    data = pd.DataFrame(columns=["client", "class", "samples", "weight"])
    with plots.style():
        figure, axes = plots.panels(2, 2, (3.6, 3.0))
        if not there:
            for ax in axes:
                plots.not_run(ax)
            return figure, data
        counts, weights = (torch.tensor(there[0].summary[name]) for name in ("counts", "weights"))
        plots.partition(counts, "bubbles", axes[0])
        plots.matrix(axes[1], pd.DataFrame(weights.numpy()), "weight in U_r")
        axes[1].set_xlabel("client")
        axes[1].set_ylabel("class")
        axes[1].invert_yaxis()
    pairs = [(k, j) for k in range(len(counts)) for j in range(len(weights))]
    rows = [(k, j, int(counts[k, j]), float(weights[j, k])) for k, j in pairs]
    return figure, pd.DataFrame(rows, columns=data.columns)


STRATIFIED = place("mnist", None, "FedHydra")


def partitions(runs: Runs, scale: str, seeds: int) -> tuple[Figure, pd.DataFrame]:
    """Figure 9: samples per client and class, of the first seed."""
    parts = []
    with plots.style():
        figure, axes = plots.panels(len(ALPHAS), 4, (2.2, 2.6))
        for ax, alpha in zip(axes, ALPHAS, strict=True):
            ax.set_title(f"α={alpha:g}")
            there = found(runs, place("mnist", alpha, "FedHydra"), scale, 1)
            if not there:
                plots.not_run(ax)
                continue
            counts = torch.tensor(there[0].summary["counts"])
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
AVERAGED = {"setting": "teacher=ae"}
DATA = (*ALPHAS, None)


def ensembles(runs: Runs, scale: str, seeds: int) -> tuple[Figure, pd.DataFrame]:
    """Figure 7: above the students of either ensemble, below the ensembles themselves.

    Stratified aggregation needs the label that an image was asked to be of, which a test image does not have: the
    ensemble asks for every class in turn; or, which is no fair test, is told the label.
    """
    rows: list[tuple[object, ...]] = []
    for dataset in MODELS:
        for alpha in DATA:
            where = (TITLES[dataset], name_of(alpha))
            for teacher, other in (("AE", AVERAGED), ("SA", {})):
                for run in found(runs, place(dataset, alpha, "FedHydra", **other), scale, seeds):
                    seed, last = run.experiment.seed, run.history.iloc[-1]
                    rows.append((*where, "student", teacher, seed, run.summary["best_accuracy"]))
                    if teacher == "SA":
                        rows += [(*where, "ensemble", what, seed, last.get(name)) for name, what in ENSEMBLES.items()]
    data = pd.DataFrame(rows, columns=["dataset", "data", "kind", "ensemble", "seed", "accuracy"])
    order = [name_of(alpha) for alpha in DATA]
    with plots.style():
        figure, axes = plots.panels(2 * len(MODELS), len(MODELS), (2.8, 2.2))
        panels = [(kind, dataset) for kind in ("student", "ensemble") for dataset in MODELS]
        for ax, (kind, dataset) in zip(axes, panels, strict=True):
            ax.set_title(f"{TITLES[dataset]}: {kind}")
            shown = data[(data.kind == kind) & (data.dataset == TITLES[dataset])]
            if not len(shown):
                plots.not_run(ax)
                continue
            mean = shown.groupby(["data", "ensemble"], sort=False).accuracy.mean().reset_index()
            mean["data"] = pd.Categorical(mean["data"], order, ordered=True)
            plots.bars(ax, mean, "data", "accuracy", "ensemble")
            ax.tick_params(axis="x", labelsize=7)
            ax.set_xlabel("α, or 2c/c")
            ax.set_ylabel("accuracy (%)")
        half = len(MODELS)
        for part in (axes[:half], axes[half:]):
            _legend(part, 7)
    return figure, data


# -- local epochs: Figure 8

EPOCHS = tuple(range(40, 401, 40))


def longer(method: str, epochs: int = 200) -> Row:
    return place("cifar10", 0.1, method, local_epochs=epochs)


def local_epochs(runs: Runs, scale: str, seeds: int) -> tuple[Figure, pd.DataFrame]:
    """Figure 8: (a) FedAvg and the clients by local epochs, (b) the clients beside all methods at E = 200.

    With a constant learning rate a shorter training is the beginning of a longer one. The clients are read off OT's
    runs, which have the same ones and cost next to nothing on the server.
    """
    rows = []
    for epochs in EPOCHS:
        for run in found(runs, longer("FedAvg", epochs), scale, seeds):
            rows.append(("FedAvg", run.experiment, run.summary["best_accuracy"]))
        for run in found(runs, longer("OT", epochs), scale, seeds):
            last = run.history.iloc[-1]
            rows += [(f"client {k}", run.experiment, last[f"client_{k}_accuracy"]) for k in range(5)]
    data = pd.DataFrame(
        [(name, e.local_epochs, e.seed, accuracy) for name, e, accuracy in rows],
        columns=["series", "local_epochs", "seed", "accuracy"],
    )
    levels = [
        (f"{method}, E = 200", run.experiment.local_epochs, run.experiment.seed, run.summary["best_accuracy"])
        for method in METHODS
        for run in found(runs, longer(method), scale, seeds)
    ]
    level = pd.DataFrame(levels, columns=data.columns)
    with plots.style():
        figure, axes = plots.panels(2, 2, (3.4, 2.8))
        for ax, own in zip(axes, (data, data[data.series != "FedAvg"]), strict=True):
            _accuracy(ax, own, "local_epochs", "accuracy", "series", "local epochs")
        for i, (name, part) in enumerate(level.groupby("series", sort=False)):
            axes[1].axhline(part.accuracy.mean(), linestyle=":", color=plots.COLOURS[9 - i], label=str(name))
        if len(data):
            axes[1].legend(loc="upper left", bbox_to_anchor=(1, 1), fontsize=7)
            axes[0].legend(fontsize=6)
    return figure, pd.concat([data, level], ignore_index=True) if len(level) else data


# -- synthetic images and time: Figures 12 and 13

SHOWN = [place(dataset, 0.5, "FedHydra") for dataset in ("fmnist", "cifar10")]


def synthetic(runs: Runs, scale: str, seeds: int) -> tuple[Figure, pd.DataFrame]:
    """Figure 12: per class a training image and, below it, an image of the last epoch that was asked to be of it."""
    there = {run.experiment: run for row in SHOWN for run in found(runs, row, scale, 1)}
    rows = []
    with plots.style():
        figure, axes = plots.panels(max(2 * len(there), 1), 1, (6.0, 0.75))
        for number, (e, run) in enumerate(there.items()):
            data, images, labels = dataset_of(e), run.kept["images"], run.kept["labels"]
            real = [data.train_images[data.train_labels == c][0] for c in range(data.num_classes)]
            made = [images[labels == c][0] if (labels == c).any() else None for c in range(data.num_classes)]
            shown: dict[str, Sequence[Tensor | None]] = {"real": real, "synthetic": made}
            for ax, (what, pictures) in zip(axes[2 * number :], shown.items(), strict=False):
                plots.images(ax, pictures)
                ax.set_ylabel(what, rotation=0, ha="right", va="center")
                for c, picture in enumerate(pictures):
                    if picture is not None:
                        rows.append((DATASETS[e.dataset].title, what, c, float(picture.float().mean() / 255)))
            axes[2 * number].set_title(DATASETS[e.dataset].title)
        if not there:
            plots.not_run(axes[0])
    return figure, pd.DataFrame(rows, columns=["dataset", "images", "class", "mean_pixel"])


TIMED = ("DENSE", "FedHydra")


def times(runs: Runs, scale: str, seeds: int) -> tuple[Figure, pd.DataFrame]:
    """Figure 13: seconds on the server, without the clients' training; a repetition is a seed."""
    rows = []
    for method in TIMED:
        for run in found(runs, place("cifar10", 0.5, method), scale, seeds):
            rows.append((run.experiment.seed + 1, method, run.summary["seconds"], run.summary["device"]))
    data = pd.DataFrame(rows, columns=["run", "method", "seconds", "device"])
    wide = data.pivot(index="run", columns="method", values="seconds").reindex(columns=list(TIMED))
    data["to_DENSE"] = data.seconds / data.run.map(wide["DENSE"])
    with plots.style():
        figure, axes = plots.panels(2, 2, (3.0, 2.4))
        if not len(data):
            for ax in axes:
                plots.not_run(ax)
            return figure, data
        plots.bars(axes[0], data, "run", "seconds", "method")
        axes[0].set_ylabel("seconds on the server")
        axes[0].legend(fontsize=7)
        plots.bars(axes[1], data, "run", "to_DENSE", "method")
        axes[1].set_ylabel("ratio to DENSE")
    return figure, data


def curves(dataset: str) -> tuple[Callable[[int], list[Experiment]], Draw]:
    return by_epoch({f"{TITLES[dataset]} α={alpha:g}": (dataset, alpha) for alpha in ALPHAS})


FIGURES = {
    "F3": FigureSpec("Accuracy by epoch on the server, Fashion-MNIST", "4.2.1", "overview", *curves("fmnist")),
    "F4": FigureSpec("Accuracy by epoch on the server, CIFAR-10", "4.2.1", "overview", *curves("cifar10")),
    "F5": FigureSpec(
        "Samples per client and class, and the weights U_r, MNIST, 2c/c", "4.2.2", "stratified_aggregation",
        lambda seeds: all_of([STRATIFIED])(1), stratification,
    ),
    "F6": FigureSpec(
        "Accuracy by epoch on the server, 2c/c", "4.2.2", "stratified_aggregation",
        *by_epoch({f"{TITLES[dataset]} 2c/c": (dataset, None) for dataset in MODELS}),
    ),
    "F7": FigureSpec(
        "Averaging (AE) and stratified (SA) ensembles, and the students that learn from them", "4.2.2",
        "stratified_aggregation",
        all_of([place(dataset, alpha, "FedHydra", **other)
                for dataset in MODELS for alpha in DATA for other in (AVERAGED, {})]),
        ensembles,
    ),
    "F8": FigureSpec(
        "FedAvg and the clients by local epochs, beside all methods, CIFAR-10, α = 0.1", "4.2.3", "distillation",
        all_of([longer(method, epochs) for epochs in EPOCHS for method in AT_ONCE]
               + [longer(method) for method in METHODS if method not in AT_ONCE]),
        local_epochs,
    ),
    "F9": FigureSpec(
        "Samples per client and class, MNIST", "A", "partitions",
        lambda seeds: all_of([place("mnist", alpha, "FedHydra") for alpha in ALPHAS])(1), partitions,
    ),
    "F10": FigureSpec("Accuracy by epoch on the server, MNIST", "B", "more_overview", *curves("mnist")),
    "F11": FigureSpec("Accuracy by epoch on the server, SVHN", "B", "more_overview", *curves("svhn")),
    "F12": FigureSpec(
        "Real and synthetic images, Fashion-MNIST and CIFAR-10, α = 0.5", "C.3", "extended_analysis",
        lambda seeds: all_of(SHOWN)(1), synthetic, tensors=True,
    ),
    "F13": FigureSpec(
        "Time on the server, DENSE and FedHydra, CIFAR-10, α = 0.5", "F", "time",
        all_of([place("cifar10", 0.5, method) for method in TIMED]), times,
    ),
}  # fmt: skip
