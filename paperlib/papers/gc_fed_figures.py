"""GC-Fed's figures, drawn from runs."""

from collections.abc import Iterable
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
from paperlib.papers.cells import failed
from paperlib.papers.gathering import Runs, there
from paperlib.papers.gc_fed import OWN, experiment
from paperlib.papers.gc_fed_diagrams import partial_update
from paperlib.papers.grid import TITLES, Row
from paperlib.papers.scales import at_scale
from paperlib.store import Run

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


def experiments_of(settings: Iterable[tuple[Row, str]], seeds: int) -> list[Experiment]:
    return [e for row, method in settings for e in grid.runs_of(experiment, {**row, "method": method}, seeds)]


def histories_of(runs: Runs, scale: str, row: Row, method: str, seeds: int, **changes: Any) -> list[pd.DataFrame]:
    """Histories of the seeds that have been run."""
    wanted = [e.replace(**changes) for e in experiments_of([(row, method)], seeds)]
    return [run.history for run in there(runs, wanted, scale)]


# The paper states no setting for this figure.
EVERYONE: Row = {**DYNAMICS, "alpha": 0.1, "clients": 100, "sampled": 100, "rounds": 20}


def participation_experiments(seeds: int) -> list[Experiment]:
    """All clients take part, so that the average of some of them can be held against that of all."""
    made = [e.replace(measure=("participation_gap",)) for e in experiments_of([(EVERYONE, "FedAvg")], seeds)]
    return made + [e.replace(partition="iid", alpha=None) for e in made]


def participation(runs: Runs, scale: str, seeds: int) -> tuple[Figure, pd.DataFrame]:
    """Figure 1: (a) a sketch, (b) distance of an update of K clients from that of all, mean over subsets and rounds."""
    data = []
    for run in there(runs, participation_experiments(seeds), scale):
        e = run.experiment
        gaps = [name for name in run.history.columns if name.startswith("participation_gap/")]
        long = run.history.melt("round", gaps, var_name="clients", value_name="gap")
        long["clients"] = long.clients.str.partition("/")[2].astype(int)
        data.append(long.assign(data="iid" if e.alpha is None else f"α = {e.alpha:g}", seed=e.seed))
    table = grid.stacked(data, ["round", "clients", "gap", "data", "seed"])
    with plots.style():
        figure, (left, right) = plots.panels(2, 2, (3.2, 2.6))
        partial_update(left)
        if len(table):
            plots.lines(right, table, "clients", "gap", "data")
            right.set_xscale("log")
            right.set_xlabel("clients in the partial update, K")
            right.set_ylabel("distance from the update of all")
            right.set_title("(b)")
            right.legend()
        else:
            plots.not_run(right)
    return figure, table


def dynamics_experiments(seeds: int) -> list[Experiment]:
    return experiments_of([(DYNAMICS, method) for method in OWN], 1)


def training_experiments(seeds: int) -> list[Experiment]:
    return experiments_of([(panel_row(*panel[:3]), method) for panel in PANELS for method in PLOTTED], seeds)


def dynamics(runs: Runs, scale: str, seeds: int) -> tuple[Figure, pd.DataFrame]:
    """Figure 4: one panel per method, first seed; the dotted line stands at a quarter of the rounds."""
    data = []
    with plots.style():
        figure, axes = plots.panels(4, 2)
        for ax, method in zip(axes, OWN, strict=True):
            ax.set_title(method)
            histories = histories_of(runs, scale, DYNAMICS, method, 1)
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
        histories = {m: histories_of(runs, scale, panel_row(*panel[:3]), m, seeds) for m in PLOTTED}
        if histories["FedAvg"]:
            found[panel] = {method: of for method, of in histories.items() if of}
        else:
            missing.append(panel_title(*panel[:3]))
    data = []
    with plots.style():
        figure, axes = plots.panels(max(len(found), 1), min(max(len(found), 1), 2), (4.6, 2.6))
        for ax, (panel, histories) in zip(axes, found.items(), strict=False):
            dataset, model, clients, target = panel
            means = {method: _mean_history(of) for method, of in histories.items()}
            goal = target if scale == "paper" else best_smoothed(means["FedAvg"])
            reached = {method: rounds_to_target(mean, goal) for method, mean in means.items()}
            labels = {m: f"{m} ({'never' if at is None else f'round {at}'})" for m, at in reached.items()}
            plots.curves(ax, histories, labels)
            ax.set_title(panel_title(dataset, model, clients))
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


def best_smoothed(history: pd.DataFrame) -> float:
    """Best accuracy in percent of the smoothed curve, over whole windows."""
    return float(smooth(history.test_accuracy.to_numpy())[9:].max())


def panel_row(dataset: str, model: str, clients: int) -> Row:
    return {"dataset": dataset, "model": model, "alpha": 0.1, "clients": clients, "sampled": 5, "rounds": None}


def panel_title(dataset: str, model: str, clients: int) -> str:
    return f"{TITLES[dataset]}, {model}, 5 of {clients}"


SIMILARITY = ("FedAvg, iid", "FedAvg", "LocalGC", "GC-Fed")


def similarity_experiments(seeds: int) -> list[Experiment]:
    """First seed only; the paper does not state alpha."""
    made = []
    for name in SIMILARITY:
        (e,) = experiments_of([(DYNAMICS, name.removesuffix(", iid"))], 1)
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
        with_border(e, share)
        for e in experiments_of([(BORDER, "GC-Fed"), (BORDER, "LocalGC")], seeds)
        for share in LAMBDAS
    ]


def with_border(e: Experiment, share: float) -> Experiment:
    return e.replace(method_options={**e.method_options, "border": share})


def border(runs: Runs, scale: str, seeds: int) -> tuple[Figure, pd.DataFrame]:
    """Figure 9: accuracy against lambda, with and without Global GC above the border; grey: the paper's best range."""
    data = []
    for method, label in (("GC-Fed", "Local GC below, Global GC above"), ("LocalGC", "Local GC below, nothing above")):
        for share in LAMBDAS:
            wanted = [with_border(e, share) for e in experiments_of([(BORDER, method)], seeds)]
            for run in there(runs, wanted, scale):
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
    bases = experiments_of([(IMPACT, method) for method in OWN], seeds)
    return [base.replace(**{factor: value}) for base in bases for factor, values in FACTORS.items() for value in values]


def accuracy_of(run: Run, scale: str) -> float:
    """Mean of the last ten rounds in percent; chance level for a run that failed."""
    return 100 / run.summary["classes"] if failed(run, scale) else run.summary["last10_accuracy"]


def impact(runs: Runs, scale: str, seeds: int) -> tuple[Figure, pd.DataFrame]:
    """Figure 10: accuracy when one hyperparameter is changed; a run that failed counts as chance level."""
    data = []
    for method in OWN:
        for base in experiments_of([(IMPACT, method)], seeds):
            for factor, values in FACTORS.items():
                for value in values:
                    run = runs.get(at_scale(base.replace(**{factor: value}), scale))
                    if run is None:
                        continue
                    data.append(
                        {"factor": factor, "value": value, "method": method, "seed": base.seed,
                         "accuracy": accuracy_of(run, scale), "failed": failed(run, scale)}
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
