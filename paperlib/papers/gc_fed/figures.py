"""GC-Fed: its figures, drawn from runs."""

from typing import Any

import pandas as pd
import torch
from matplotlib.figure import Figure

from paperlib.data.datasets import DATASETS
from paperlib.data.partitions import partition
from paperlib.display import plots
from paperlib.experiment import Experiment
from paperlib.papers.cells import failed
from paperlib.papers.diagrams import diagram
from paperlib.papers.gc_fed import diagrams, numbers
from paperlib.papers.gc_fed.numbers import accuracy_of
from paperlib.papers.gc_fed.setting import (
    BORDER,
    DYNAMICS,
    EVERYONE,
    FACTORS,
    IMPACT,
    LAMBDAS,
    OWN,
    PANELS,
    PLOTTED,
    experiments_of,
    panel_row,
    panel_title,
    with_border,
)
from paperlib.papers.results import Results
from paperlib.papers.rows import stacked
from paperlib.papers.specs import figure_specs
from paperlib.quantities.curves import last_mean, rounds_to_target, smooth

ALPHAS = (0.05, 0.1, 1, 1000)


def participation_experiments(seeds: int) -> list[Experiment]:
    """Runs with full participation, so that averages of some clients can be compared with that of all."""
    skewed = [e.replace(measure=("participation_gap",)) for e in experiments_of([(EVERYONE, "FedAvg")], seeds)]
    return skewed + [e.replace(partition="iid", alpha=None) for e in skewed]


def participation(results: Results) -> tuple[Figure, pd.DataFrame]:
    """Figure 1: (a) a sketch, (b) distance of an update of K clients from that of all, mean over subsets and rounds."""
    data = []
    for run in results.finished(participation_experiments(results.seeds)):
        e = run.experiment
        gaps = [name for name in run.history.columns if name.startswith("participation_gap/")]
        long = run.history.melt("round", gaps, var_name="clients", value_name="gap")
        long["clients"] = long.clients.str.partition("/")[2].astype(int)
        data.append(long.assign(data="iid" if e.alpha is None else f"α = {e.alpha:g}", seed=e.seed))
    table = stacked(data, ["round", "clients", "gap", "data", "seed"])
    figure, (left, right) = plots.panels(2, 2, (3.2, 2.6))
    diagrams.partial_update(left)
    labels = "distance from\nthe update of all", "clients in the partial update, K"
    plots.lines(right, table, "clients", "gap", "data", *labels)
    if len(table):
        right.set(xscale="log", title="(b)")
        plots.legend([right])
    return figure, table


def training_experiments(seeds: int) -> list[Experiment]:
    return experiments_of([(panel_row(*panel[:3]), method) for panel in PANELS for method in PLOTTED], seeds)


def dynamics(results: Results) -> tuple[Figure, pd.DataFrame]:
    """Figure 4: one panel per method, first seed; the dotted line marks a quarter of the rounds."""
    data = []
    figure, axes = plots.panels(4, 2)
    for ax, method in zip(axes, OWN, strict=True):
        ax.set_title(method)
        runs = results.finished(experiments_of([(DYNAMICS, method)], 1))
        if not runs:
            plots.not_run(ax)
            continue
        curve = runs[0].history[["round", "test_accuracy"]]
        plots.raw_and_smoothed(ax, curve, method, at=int(curve["round"].max()) // 4)
        data.append(curve.assign(method=method, smoothed=smooth(curve.test_accuracy.to_numpy())))
    return figure, stacked(data, ["round", "test_accuracy", "method", "smoothed"])


def training_dynamics(results: Results) -> tuple[Figure, pd.DataFrame]:
    """Figure 6: smoothed curves at alpha 0.1; the legend gives rounds to a target.

    At scale paper the target is the printed one, else the mean of FedAvg's last ten rounds (and of the seeds), so a
    panel needs FedAvg's run.
    """
    data = []
    figure, axes = plots.panels(len(PANELS), 2, (4.6, 2.6))
    for ax, (dataset, model, clients, target) in zip(axes, PANELS, strict=True):
        ax.set_title(panel_title(dataset, model, clients))
        row = panel_row(dataset, model, clients)
        curves = results.histories({m: experiments_of([(row, m)], results.seeds) for m in PLOTTED})
        curves = curves.assign(dataset=dataset, clients=clients)
        if "FedAvg" not in set(curves.get("method", ())):
            plots.not_run(ax)
            continue
        parts = curves.groupby("method", sort=False)
        means = {str(m): part.groupby("round", as_index=False)[["test_accuracy"]].mean() for m, part in parts}
        goal = target if results.scale == "paper" else last_mean(means["FedAvg"].test_accuracy.to_numpy())
        reached = {method: rounds_to_target(mean, goal) for method, mean in means.items()}
        when = {m: f"{m} ({'never' if at is None else f'round {at}'})" for m, at in reached.items()}
        plots.lines(ax, curves, "round", "test_accuracy", "method", plots.ACCURACY, "", 10, when, raw=False)
        ax.axhline(goal, color="0.4", linewidth=0.6, linestyle=":")
        ax.legend(title=f"reaches {goal:.1f} %", title_fontsize=8, loc="upper left", bbox_to_anchor=(1, 1))
        data.append(curves)
    return figure, stacked(data, ["round", "test_accuracy", "dataset", "clients", "method", "seed"])


SIMILARITY = ("FedAvg, iid", "FedAvg", "LocalGC", "GC-Fed")


def similarity_experiments(seeds: int) -> list[Experiment]:
    """First seed only; the paper does not state alpha."""
    experiments = []
    for name in SIMILARITY:
        (e,) = experiments_of([(DYNAMICS, name.removesuffix(", iid"))], 1)
        iid: dict[str, Any] = {"partition": "iid", "alpha": None} if name.endswith("iid") else {}
        experiments.append(e.replace(measure=("cka",), **iid))
    return experiments


def similarity(results: Results) -> tuple[Figure, pd.DataFrame]:
    """Figure 7: mean over the sampled clients, per layer; moving average over ten rounds."""
    experiments = zip(SIMILARITY, similarity_experiments(results.seeds), strict=True)
    curves = results.histories({name: [e] for name, e in experiments})
    measured = [name.removeprefix("cka/") for name in map(str, curves) if name.startswith("cka/")]
    layers = measured or ["conv1", "conv2", "fc1", "classifier"]
    parts = [curves.get(["round", "method"], curves).assign(layer=n, cka=curves.get(f"cka/{n}")) for n in layers]
    table = stacked(parts, ["round", "layer", "cka", "method"])
    figure, axes = plots.panels(len(layers), 2, (3.2, 2.2))
    for ax, layer in zip(axes, layers, strict=True):
        ax.set_title(layer)
        plots.lines(ax, table[table.layer == layer], "round", "cka", "method", "CKA", window=10)
    plots.legend(axes)
    return figure, table


def border_experiments(seeds: int) -> list[Experiment]:
    return [
        with_border(e, share)
        for e in experiments_of([(BORDER, "GC-Fed"), (BORDER, "LocalGC")], seeds)
        for share in LAMBDAS
    ]


def border(results: Results) -> tuple[Figure, pd.DataFrame]:
    """Figure 9: accuracy against lambda, with and without Global GC above the border; grey: the paper's best range."""
    data = [
        (share, label, run.experiment.seed, last_mean(run.history.test_accuracy.to_numpy()))
        for method, label in (
            ("GC-Fed", "Local GC below, Global GC above"),
            ("LocalGC", "Local GC below, nothing above"),
        )
        for share in LAMBDAS
        for run in results.finished([with_border(e, share) for e in experiments_of([(BORDER, method)], results.seeds)])
    ]
    table = pd.DataFrame(data, columns=["lambda", "variant", "seed", "accuracy"])
    figure, (ax,) = plots.panels(1, 1, (5, 3))
    plots.spread(ax, table, "lambda", "variant", "λ, share of the parameter tensors below the border")
    if len(table):
        ax.axvspan(LAMBDAS.index(0.85), LAMBDAS.index(0.95), color="0.9", linewidth=0)
        ax.legend(loc="lower left", bbox_to_anchor=(0, 1))
    return figure, table


def impact_experiments(seeds: int) -> list[Experiment]:
    bases = experiments_of([(IMPACT, method) for method in OWN], seeds)
    return [base.replace(**{factor: value}) for base in bases for factor, values in FACTORS.items() for value in values]


def impact(results: Results) -> tuple[Figure, pd.DataFrame]:
    """Figure 10: accuracy when one hyperparameter is changed; a failed run counts as chance level."""
    data = [
        (factor, value, method, base.seed, accuracy_of(run, results.scale), failed(run, results.scale))
        for method in OWN
        for base in experiments_of([(IMPACT, method)], results.seeds)
        for factor, values in FACTORS.items()
        for value in values
        for run in results.finished([base.replace(**{factor: value})])
    ]
    table = pd.DataFrame(data, columns=["factor", "value", "method", "seed", "accuracy", "failed"])
    figure, axes = plots.panels(5, 3)
    for ax, factor in zip(axes, FACTORS, strict=True):
        name = "learning rate" if factor == "lr" else factor.replace("_", " ")
        plots.spread(ax, table[table.factor == factor], "value", "method", name)
    plots.legend(axes)
    return figure, table


def partitions(results: Results) -> tuple[Figure, pd.DataFrame]:
    """Figure 5: ten classes of CIFAR-10's size on ten clients. Class sizes decide the counts, so no image is needed."""
    labels = torch.arange(10).repeat_interleave(DATASETS["cifar10"].train // 10)
    data = []
    figure, axes = plots.panels(4, 4, (2.4, 2.4))
    for ax, alpha in zip(axes, ALPHAS, strict=True):
        counts = partition(labels, "dirichlet_capped", clients=10, alpha=alpha, seed=0).counts()
        plots.partition(counts, "bubbles", ax)
        ax.set_title(f"α = {alpha:g}")
        table = pd.DataFrame(counts.numpy()).rename_axis("client").reset_index()
        data.append(table.melt("client", var_name="class", value_name="samples").assign(alpha=alpha))
    return figure, stacked(data, ["client", "class", "samples", "alpha"])


FIGURES = figure_specs("gc_fed", {
    "F1": (participation_experiments, participation),
    "F2": diagram("gc_fed_overview"),
    "F3": diagrams.projection,
    "F4": (lambda _: experiments_of([(DYNAMICS, method) for method in OWN], 1), dynamics, numbers.fluctuation),
    "F5": partitions,
    "F6": (training_experiments, training_dynamics, numbers.rounds),
    "F7": (similarity_experiments, similarity),
    "F8": diagrams.means,
    "F9": (border_experiments, border, numbers.best_border),
    "F10": (impact_experiments, impact, numbers.best_rate),
})  # fmt: skip
