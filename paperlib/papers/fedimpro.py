"""FedImpro: the settings of its tables and figures, and how they are read.

Common to all: the hyperparameters of ``data/paper/hyperparameters.csv`` with the learning rates of Table 5, and the
capped Dirichlet partition whose smallest client has as many samples as there are classes. A run's seed is also the seed
of its partition. Accuracy is the best over all rounds. SVHN and Fashion-MNIST are normalised here, which the authors'
code does not do.
"""

from collections.abc import Iterable
from functools import cache
from typing import Any

import pandas as pd
from matplotlib.figure import Figure

from paperlib import plots
from paperlib.experiment import Experiment
from paperlib.papers.cells import Cell
from paperlib.papers.gathering import Runs
from paperlib.papers.grid import TITLES, Make, Row, cells, federation, parse, rows, runs_of, stacked
from paperlib.papers.report import FigureSpec, TableSpec
from paperlib.papers.scales import at_scale
from paperlib.papers.settings import methods, setting
from paperlib.papers.values import printed_table

CLASSES = {"cifar100": 100}
IMAGE_SIZE = {"fmnist": 32}

METHODS = methods("fedimpro")
# ResNet-18: convolution after which the network is cut -> first stage above.
CUTS = {"5": 2, "9": 3, "13": 4, "17": 5}


def experiment(row: Row, seed: int) -> Experiment:
    """The run behind a printed number, at the paper's scale."""
    printed = {"lr": lr} if (lr := learning_rates().get(_place(row))) else {}
    chosen, varied = setting("fedimpro", row["method"], row["dataset"], **printed), parse(row["setting"])
    options = chosen.options
    if "split_layer" in varied:
        options["cut"] = CUTS[varied["split_layer"]]
    if varied.get("noise", "0.0") != "0.0":
        options["noise"] = float(varied["noise"])
    return Experiment(
        dataset=row["dataset"],
        model=row["model"],
        partition="dirichlet_capped",
        min_samples=CLASSES.get(row["dataset"], 10),
        image_size=IMAGE_SIZE.get(row["dataset"]),
        method=chosen.method,
        method_options=options,
        seed=seed,
        partition_seed=seed,
        measure=("weight_divergence",),
        **(federation(row) | chosen.training),
    )


@cache
def learning_rates() -> dict[tuple[Any, ...], float]:
    """Table 5: (data set, alpha, local epochs, clients, method) -> learning rate."""
    printed = printed_table("fedimpro", "T5")
    return {_place(dict(row)): float(row["value"]) for _, row in printed.iterrows()}


def _place(row: Row) -> tuple[Any, ...]:
    return (row["dataset"], float(row["alpha"]), int(row["local_epochs"]), int(row["clients"]), row["method"])


def place(row: Row) -> str:
    part = f"{row['sampled']:.0f}/{row['clients']:.0f}"
    return f"{TITLES[row['dataset']]} a={row['alpha']:g} E={row['local_epochs']:.0f} {part}"


def table(name: str, column: Any = place) -> Any:

    def printed() -> list[dict[str, Any]]:
        return rows("fedimpro", name, ("test_accuracy",), METHODS, lambda r: r["scenario"] != "average")

    return cells(printed, experiment, column, read={"test_accuracy": "best_accuracy"})


def rounds_table() -> Any:
    return cells(lambda: rows("fedimpro", "T2", ("rounds_to_target",), METHODS), experiment, place, baseline="FedAvg")


def cut(row: Row) -> str:
    return f"after convolution {parse(row['setting'])['split_layer']}"


# Our addition: networks without BatchNorm learn at a learning rate below Table 5's, and with constant w.
BY_CUT: dict[str, tuple[str, dict[str, Any]]] = {
    "FedAvg": ("FedAvg", {}),
    "FedImpro, cut after convolution 1": ("FedImpro", {"cut": 1, "schedule": "constant"}),
    "FedImpro, cut after convolution 2": ("FedImpro", {"cut": 2, "schedule": "constant"}),
    "FedImpro, cut before the classifier": ("FedImpro", {"cut": 3, "schedule": "constant"}),
}


def by_cut(row: Row, seed: int) -> Experiment:
    method, options = BY_CUT[row["method"]]
    base = experiment({**BASIC, **row, "method": method}, seed)
    return base.replace(model="cnn", rounds=500, lr=0.03, method_options={**base.method_options, **options})


def cuts_of_the_cnn(seeds: int) -> list[Cell]:
    made = []
    for alpha in (0.1, 0.05):
        for method in BY_CUT:
            row = {"alpha": alpha, "method": method}
            key: dict[str, object] = {"row": method, "column": f"CIFAR-10 a={alpha:g}"}
            made.append(Cell(key, "best_accuracy", None, None, "", tuple(runs_of(by_cut, row, seeds))))
    return made


# -- weight divergence

BASIC: Row = {
    "dataset": "cifar10", "model": "resnet18", "alpha": 0.1, "clients": 10, "sampled": 5, "rounds": 1000,
    "local_epochs": 1, "setting": "",
}  # fmt: skip
COMPARED = ("FedAvg", "FedProx", "SCAFFOLD", "FedNova", "FedImpro")
WINDOW = 10  # rounds of the moving average in the divergence figures


def divergence_experiments(seeds: int) -> list[Experiment]:
    return [e for method in COMPARED for e in runs_of(experiment, {**BASIC, "method": method}, seeds)]


def histories(runs: Runs, scale: str, seeds: int, methods: Iterable[str], make: Make = experiment) -> pd.DataFrame:
    """Histories of all runs there are in the basic setting, below one another, with columns method and seed."""
    data = []
    for method in methods:
        for e in runs_of(make, {**BASIC, "method": method}, seeds):
            run = runs.get(at_scale(e, scale))
            if run is not None:
                data.append(run.history.assign(method=method, seed=e.seed))
    return pd.concat(data, ignore_index=True) if data else pd.DataFrame(columns=["round", "method", "seed"])


def divergence(runs: Runs, scale: str, seeds: int) -> tuple[Figure, pd.DataFrame]:
    """Figure 2b: mean distance of the clients' models from their average; moving average over the rounds."""
    table = histories(runs, scale, seeds, COMPARED)
    with plots.style():
        figure, (ax,) = plots.panels(1, 1, (4.6, 2.8))
        if len(table):
            table = table[["round", "method", "seed", "weight_divergence"]]
            plots.lines(ax, table, "round", "weight_divergence", "method", window=WINDOW)
            ax.set_xlabel("round")
            ax.set_ylabel("weight divergence")
            ax.legend(loc="upper left", bbox_to_anchor=(1, 1))
        else:
            plots.not_run(ax)
    return figure, table


def cut_experiments(seeds: int) -> list[Experiment]:
    return [e for cell in cuts_of_the_cnn(seeds) for e in cell.experiments if e.alpha == BASIC["alpha"]]


def cut_divergence(runs: Runs, scale: str, seeds: int) -> tuple[Figure, pd.DataFrame]:
    """Weight divergence and smoothed accuracy of the CNN by the cut."""
    table = histories(runs, scale, seeds, BY_CUT, by_cut)
    table = table.reindex(columns=["round", "test_accuracy", "weight_divergence", "method", "seed"])
    with plots.style():
        figure, axes = plots.panels(2, 2, (3.4, 2.6))
        for ax, column in zip(axes, ("test_accuracy", "weight_divergence"), strict=True):
            if not len(table):
                plots.not_run(ax)
                continue
            plots.lines(ax, table, "round", column, "method", window=WINDOW)
            ax.set_xlabel("round")
            ax.set_ylabel({"test_accuracy": "test accuracy (%)"}.get(column, "weight divergence"))
        if len(table):
            axes[1].legend(loc="upper left", bbox_to_anchor=(1, 1), fontsize=7)
    return figure, table


def layer_divergence(runs: Runs, scale: str, seeds: int) -> tuple[Figure, pd.DataFrame]:
    """Figure 3: FedAvg's divergence per layer and per stage, each divided by its own maximum over the rounds."""
    table = histories(runs, scale, seeds, ("FedAvg",))
    parts = []
    for name in [c for c in table.columns if c.startswith("weight_divergence/")]:
        part = table[["round", "seed"]].assign(part=name.partition("/")[2], divergence=table[name])
        part["kind"] = "layer" if name.endswith(".weight") else "stage"
        part["divergence"] /= part.groupby("seed").divergence.transform("max")
        parts.append(part)
    columns = ["round", "seed", "kind", "part", "divergence"]
    data = stacked(parts, columns)
    with plots.style():
        figure, axes = plots.panels(2, 2, (3.4, 2.6))
        for ax, kind in zip(axes, ("layer", "stage"), strict=True):
            ax.set_title(f"per {kind}")
            if len(data):
                plots.lines(ax, data[data.kind == kind], "round", "divergence", "part", window=WINDOW)
                ax.set_xlabel("round")
                ax.set_ylabel("divergence / maximum")
                ax.legend(fontsize=6)
            else:
                plots.not_run(ax)
    return figure, data


TABLES = {
    "T1": TableSpec("Best test accuracy (%)", "5.2", "comparison", table("T1")),
    "T2": TableSpec(
        "Rounds to a target accuracy (below scale paper: FedAvg's best, rounded down)", "5.2", "comparison",
        rounds_table(), lower_is_better=True,
    ),
    "T3": TableSpec("Best test accuracy (%) by the cut", "5.4", "comparison", table("T3", cut)),
    "E1": TableSpec(
        "Best test accuracy (%) of a CNN by the cut: lr 0.03, w = 1 throughout (our addition)", "5.4", "cut",
        cuts_of_the_cnn,
    ),
    "T7": TableSpec(
        "Best test accuracy (%) with noise on the shared statistics", "5.4", "noise",
        table("T7", lambda r: f"σ={parse(r['setting'])['noise']}"),
    ),
}  # fmt: skip
FIGURES = {
    "E2": FigureSpec(
        "Accuracy and weight divergence of a CNN by the cut, a = 0.1 (our addition)", "5.4", "cut",
        cut_experiments, cut_divergence,
    ),
    "F2b": FigureSpec("Weight divergence, CIFAR-10, 5 of 10 clients, a = 0.1", "5.3", "divergence",
                      divergence_experiments, divergence),
    "F3": FigureSpec(
        "FedAvg's weight divergence by layer and stage", "5.3", "divergence",
        lambda seeds: runs_of(experiment, {**BASIC, "method": "FedAvg"}, seeds), layer_divergence,
    ),
}  # fmt: skip
