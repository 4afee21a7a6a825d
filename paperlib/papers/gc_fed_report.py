"""GC-Fed: its tables and figures, from printed rows to cells and drawings."""

from collections.abc import Callable, Iterable
from typing import Any

import pandas as pd
import torch
from matplotlib.figure import Figure

from paperlib import plots
from paperlib.data.datasets import DATASETS
from paperlib.data.partitions import partition
from paperlib.experiment import Experiment
from paperlib.metrics.curves import last_mean, rounds_to_target, smooth
from paperlib.papers import grid
from paperlib.papers.cells import Cell, failed
from paperlib.papers.gathering import Runs
from paperlib.papers.gc_fed import METHODS, OWN, experiment
from paperlib.papers.grid import TITLES, Row, parse
from paperlib.papers.report import FigureSpec, TableSpec
from paperlib.papers.scales import at_scale


def cells(
    name: str, column: Callable[[Row], str], row: Callable[[Row], str] | None = None, *metrics: str
) -> Callable[[int], list[Cell]]:
    """The cells of a printed table, by number of seeds."""
    return grid.cells(
        lambda: grid.rows("gc_fed", name, metrics or ("test_accuracy",), METHODS), experiment, column, row
    )


def setting(row: Row) -> str:
    """Column label: data set, network, participation, concentration."""
    model = {"vgg11": " VGG11", "resnet18": " ResNet18"}.get(row["model"], "")
    return f"{TITLES[row['dataset']]}{model} {row['sampled']:.0f}/{row['clients']:.0f} α={row['alpha']:g}"


def integration(row: Row) -> str:
    label = {"none": "alone", "global_gc": "+ Global GC", "gc_fed": "+ GC-Fed"}[parse(row["setting"])["integrate"]]
    return f"{row['method']} {label}"


def mnist(seeds: int) -> list[Cell]:
    """Table 5 continued on MNIST, which the paper does not use: a set that every machine can have."""
    made = []
    for method in OWN:
        for alpha in (0.05, 0.1):
            row = {"dataset": "mnist", "model": "cnn", "alpha": alpha, "clients": 100, "sampled": 5, "rounds": 200}
            key: dict[str, object] = {"row": method, "column": setting(row)}
            runs = tuple(_experiments([(row, method)], seeds))
            made.append(Cell(key, "test_accuracy", None, None, "", runs))
    return made


TABLES = {
    "T2": TableSpec(
        "Fluctuation of the accuracy: first-order differences between rounds, in points",
        "3.3", "proposed_method",
        cells("T2", lambda r: r["metric"].removeprefix("diff_"), None, "diff_mean", "diff_std", "diff_min"),
        lower_is_better=("std",),
    ),
    "T4": TableSpec(
        "Top-1 accuracy (%) under weak heterogeneity", "4.2.1", "baseline_validation", cells("T4", setting)
    ),
    "T5": TableSpec(
        "Top-1 accuracy (%) under strong label skew, small networks", "4.2.2", "small_scale", cells("T5", setting)
    ),
    "E1": TableSpec("Table 5 continued on MNIST (our addition; not in the paper)", "4.2.2", "small_scale", mnist),
    "T6": TableSpec(
        "Top-1 accuracy (%) under strong label skew, large networks", "4.2.3", "large_scale", cells("T6", setting)
    ),
    "T7": TableSpec(
        "Top-1 accuracy (%) of other methods with Global GC and GC-Fed wrapped around them",
        "4.2.5", "integration_test", cells("T7", setting, integration),
    ),
    "T8": TableSpec(
        "Top-1 accuracy (%) by the mean that is subtracted (LocalGC; none is FedAvg)",
        "4.3.1", "mean_vector", cells("T8", setting, lambda r: parse(r["setting"])["mu"]), rows="one mean per",
    ),
}  # fmt: skip


# -- figures

DYNAMICS: Row = {"dataset": "cifar10", "model": "cnn", "alpha": 0.05, "clients": 200, "sampled": 5, "rounds": 800}
PANELS = (
    ("cifar10", "cnn", 100, 60), ("cifar100", "vgg11", 400, 30), ("tinyimagenet", "resnet18", 500, 20),
    ("cifar10", "cnn", 200, 55), ("cifar100", "vgg11", 800, 25), ("tinyimagenet", "resnet18", 1000, 15),
)  # fmt: skip
# The paper plots the methods that beat FedAvg.
PLOTTED = ("FedAvg", "FedProx", "FedNTD", "FedLC", "FedSOL", "LocalGC", "GlobalGC", "GC-Fed")
LAMBDAS = (0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.85, 0.9, 0.95, 1)
BORDER: Row = {"dataset": "cifar100", "model": "resnet18", "alpha": 0.1, "clients": 400, "sampled": 5, "rounds": 1000}
IMPACT: Row = {"dataset": "cifar100", "model": "resnet18", "alpha": 0.1, "clients": 200, "sampled": 5, "rounds": 400}
# The paper's grids are not in its text; these contain every value the text mentions.
FACTORS: dict[str, tuple[float, ...]] = {
    "lr": (0.001, 0.005, 0.01, 0.05, 0.1),
    "local_epochs": (1, 3, 5, 10),
    "batch_size": (10, 25, 50, 100),
    "weight_decay": (0, 1e-5, 1e-4, 1e-3, 1e-2),
    "momentum": (0, 0.5, 0.9),
}
ALPHAS = (0.05, 0.1, 1, 1000)


def _experiments(settings: Iterable[tuple[Row, str]], seeds: int) -> list[Experiment]:
    return [e for row, method in settings for e in grid.runs_of(experiment, {**row, "method": method}, seeds)]


def _runs(runs: Runs, scale: str, row: Row, method: str, seeds: int, **changes: Any) -> list[pd.DataFrame]:
    """Histories of the seeds that have been run."""
    wanted = [e.replace(**changes) for e in _experiments([(row, method)], seeds)]
    return [runs[e].history for e in (at_scale(e, scale) for e in wanted) if e in runs]


def dynamics(runs: Runs, scale: str, seeds: int) -> tuple[Figure, pd.DataFrame]:
    """Figure 4: one panel per method, first seed; the dotted line stands at a quarter of the rounds."""
    data = []
    with plots.style():
        figure, axes = plots.panels(4, 2)
        for ax, method in zip(axes, OWN, strict=True):
            ax.set_title(method)
            histories = _runs(runs, scale, DYNAMICS, method, 1)
            if not histories:
                plots.not_run(ax)
                continue
            curve = histories[0][["round", "test_accuracy"]]
            plots.raw_and_smoothed(ax, curve, method, at=int(curve["round"].max()) // 4)
            data.append(curve.assign(method=method, smoothed=smooth(curve.test_accuracy.to_numpy())))
        top = max(ax.get_ylim()[1] for ax in axes)
        for ax in axes:
            ax.set_ylim(0, top)
    return figure, grid.stacked(data, ["round", "test_accuracy", "method", "smoothed"])


def training_dynamics(runs: Runs, scale: str, seeds: int) -> tuple[Figure, pd.DataFrame]:
    """Figure 6: smoothed curves at alpha 0.1; the legend gives rounds to a target.

    The target is the paper's at scale paper, and the best smoothed accuracy of FedAvg (mean of the seeds) elsewhere.
    A panel appears when FedAvg has been run in it; those that are missing are named.
    """
    found, missing = {}, []
    for panel in PANELS:
        histories = {m: _runs(runs, scale, _panel(*panel[:3]), m, seeds) for m in PLOTTED}
        if histories["FedAvg"]:
            found[panel] = {method: of for method, of in histories.items() if of}
        else:
            missing.append(_panel_title(*panel[:3]))
    data = []
    with plots.style():
        figure, axes = plots.panels(max(len(found), 1), min(max(len(found), 1), 2), (4.6, 2.6))
        for ax, (panel, histories) in zip(axes, found.items(), strict=False):
            dataset, model, clients, target = panel
            means = {method: _mean_history(of) for method, of in histories.items()}
            goal = target if scale == "paper" else smooth(means["FedAvg"].test_accuracy.to_numpy())[9:].max()
            reached = {method: rounds_to_target(mean, goal) for method, mean in means.items()}
            labels = {m: f"{m} ({'never' if at is None else f'round {at}'})" for m, at in reached.items()}
            plots.curves(ax, histories, labels)
            ax.set_title(_panel_title(dataset, model, clients))
            ax.axhline(goal, color="0.4", linewidth=0.6, linestyle=":")
            ax.legend(title=f"reaches {goal:.1f} %", title_fontsize=8, loc="upper left", bbox_to_anchor=(1, 1))
            for method, of in histories.items():
                for seed, history in enumerate(of):
                    curve = history[["round", "test_accuracy"]]
                    data.append(curve.assign(dataset=dataset, clients=clients, method=method, seed=seed))
        if not found:
            plots.not_run(axes[0])
        elif missing:
            figure.supxlabel(f"not run at this scale yet: {'; '.join(missing)}", fontsize=7, color="0.5")
    return figure, grid.stacked(data, ["round", "test_accuracy", "dataset", "clients", "method", "seed"])


def _panel(dataset: str, model: str, clients: int) -> Row:
    return {"dataset": dataset, "model": model, "alpha": 0.1, "clients": clients, "sampled": 5, "rounds": None}


def _panel_title(dataset: str, model: str, clients: int) -> str:
    return f"{TITLES[dataset]}, {model}, 5 of {clients}"


SIMILARITY = ("FedAvg, iid", "FedAvg", "LocalGC", "GC-Fed")


def similarity_experiments(seeds: int) -> list[Experiment]:
    """First seed only; the paper does not state alpha."""
    made = []
    for name in SIMILARITY:
        (e,) = _experiments([(DYNAMICS, name.removesuffix(", iid"))], 1)
        iid: dict[str, Any] = {"partition": "iid", "alpha": None} if name.endswith("iid") else {}
        made.append(e.replace(measure=("cka",), **iid))
    return made


def similarity(runs: Runs, scale: str, seeds: int) -> tuple[Figure, pd.DataFrame]:
    """Figure 7: mean over the sampled clients, per layer; moving average over ten rounds."""
    data = []
    for name, e in zip(SIMILARITY, similarity_experiments(seeds), strict=True):
        run = runs.get(at_scale(e, scale))
        if run is not None:
            layers = [c for c in run.history.columns if c.startswith("cka/")]
            long = run.history.melt("round", layers, var_name="layer", value_name="cka")
            data.append(long.assign(method=name, layer=long.layer.str.removeprefix("cka/")))
    table = grid.stacked(data, ["round", "layer", "cka", "method"])
    layers = list(table.layer.unique()) or ["conv1", "conv2", "fc1", "classifier"]
    with plots.style():
        figure, axes = plots.panels(len(layers), 2, (3.2, 2.2))
        for ax, layer in zip(axes, layers, strict=True):
            ax.set_title(layer)
            if not len(table):
                plots.not_run(ax)
                continue
            plots.lines(ax, table[table.layer == layer], "round", "cka", "method", window=10)
            ax.set_xlabel("round")
        if len(table):
            axes[0].set_ylabel("CKA")
            axes[1].legend(loc="upper left", bbox_to_anchor=(1, 1))
    return figure, table


def border_experiments(seeds: int) -> list[Experiment]:
    return [
        _with_border(e, share)
        for e in _experiments([(BORDER, "GC-Fed"), (BORDER, "LocalGC")], seeds)
        for share in LAMBDAS
    ]


def _with_border(e: Experiment, share: float) -> Experiment:
    return e.replace(method_options={**e.method_options, "border": share})


def border(runs: Runs, scale: str, seeds: int) -> tuple[Figure, pd.DataFrame]:
    """Figure 9: accuracy against lambda, with and without Global GC above the border; grey: the paper's best range."""
    data = []
    for method, label in (("GC-Fed", "Local GC below, Global GC above"), ("LocalGC", "Local GC below, nothing above")):
        for share in LAMBDAS:
            wanted = [at_scale(_with_border(e, share), scale) for e in _experiments([(BORDER, method)], seeds)]
            for run in (runs[e] for e in wanted if e in runs):
                accuracy = last_mean(run.history.test_accuracy.to_numpy())
                data.append({"lambda": share, "variant": label, "accuracy": accuracy})
    table = pd.DataFrame(data, columns=["lambda", "variant", "accuracy"])
    with plots.style():
        figure, (ax,) = plots.panels(1, 1, (5, 3))
        if len(table):
            ax.axvspan(LAMBDAS.index(0.85), LAMBDAS.index(0.95), color="0.9", linewidth=0)
            plots.spread(ax, table, "lambda", "variant")
            ax.set_xlabel("λ, share of the parameter tensors below the border")
            ax.legend()
        else:
            plots.not_run(ax)
    return figure, table


def impact_experiments(seeds: int) -> list[Experiment]:
    bases = _experiments([(IMPACT, method) for method in OWN], seeds)
    return [base.replace(**{factor: value}) for base in bases for factor, values in FACTORS.items() for value in values]


def impact(runs: Runs, scale: str, seeds: int) -> tuple[Figure, pd.DataFrame]:
    """Figure 10: accuracy when one hyperparameter is changed; a run that failed counts as chance level."""
    data = []
    for method in OWN:
        for base in _experiments([(IMPACT, method)], seeds):
            for factor, values in FACTORS.items():
                for value in values:
                    run = runs.get(at_scale(base.replace(**{factor: value}), scale))
                    if run is None:
                        continue
                    lost = failed(run, scale)
                    accuracy = 100 / run.summary["classes"] if lost else run.summary["last10_accuracy"]
                    data.append(
                        {"factor": factor, "value": value, "method": method, "seed": base.seed, "accuracy": accuracy,
                         "failed": lost}
                    )  # fmt: skip
    table = pd.DataFrame(data, columns=["factor", "value", "method", "seed", "accuracy", "failed"])
    with plots.style():
        figure, axes = plots.panels(5, 3)
        for ax, factor in zip(axes, FACTORS, strict=True):
            ax.set_xlabel(factor.replace("_", " "))
            part = table[table.factor == factor]
            if len(part):
                plots.spread(ax, part, "value", "method")
            else:
                plots.not_run(ax)
        if len(table):
            axes[0].legend()
    return figure, table


def partitions(runs: Runs, scale: str, seeds: int) -> tuple[Figure, pd.DataFrame]:
    """Figure 5: ten classes of CIFAR-10's size on ten clients. Class sizes decide the counts, so no image is needed."""
    labels = torch.arange(10).repeat_interleave(DATASETS["cifar10"].train // 10)
    data = []
    with plots.style():
        figure, axes = plots.panels(4, 4, (2.4, 2.4))
        for ax, alpha in zip(axes, ALPHAS, strict=True):
            counts = partition(labels, "dirichlet_capped", clients=10, alpha=alpha, seed=0).counts()
            plots.partition(counts, "bubbles", ax)
            ax.set_title(f"α = {alpha:g}")
            table = pd.DataFrame(counts.numpy()).rename_axis("client").reset_index()
            data.append(table.melt("client", var_name="class", value_name="samples").assign(alpha=alpha))
    return figure, grid.stacked(data, ["client", "class", "samples", "alpha"])


def _mean_history(histories: list[pd.DataFrame]) -> pd.DataFrame:
    return pd.concat(histories).groupby("round", as_index=False)[["test_accuracy"]].mean()


FIGURES = {
    "F4": FigureSpec(
        "Training dynamics by method, CIFAR-10, 5 of 200 clients, α = 0.05", "3.3", "proposed_method",
        lambda seeds: _experiments([(DYNAMICS, method) for method in OWN], 1), dynamics,
    ),
    "F5": FigureSpec(
        "Partitions of 10 classes among 10 clients by Dirichlet concentration", "4.1", "experimental_setup",
        lambda seeds: [], partitions,
    ),
    "F6": FigureSpec(
        "Training dynamics at α = 0.1", "4.2.4", "training_dynamics",
        lambda seeds: _experiments(
            [(_panel(*panel[:3]), method) for panel in PANELS for method in PLOTTED],
            seeds,
        ),
        training_dynamics,
    ),
    "F7": FigureSpec(
        "Similarity (linear CKA) of local models and the global model by layer, CIFAR-10, 5 of 200 clients, α = 0.05",
        "4.2.6", "cka", similarity_experiments, similarity,
    ),
    "F9": FigureSpec("Accuracy by the border λ", "4.3.2", "layer_border", border_experiments, border),
    "F10": FigureSpec(
        "Impact of hyperparameters, one at a time", "4.3.3", "hyperparameters", impact_experiments, impact
    ),
}  # fmt: skip
