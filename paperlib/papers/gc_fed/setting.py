"""GC-Fed (Seo et al. 2025): the settings of its tables and figures.

Common to all: the hyperparameters of ``data/paper/hyperparameters.csv``, and the capped Dirichlet partition. A run's
seed is also the seed of its partition, as in the authors' code.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from paperlib.experiment import Experiment
from paperlib.papers.rows import TITLES, Row, parse, runs_of
from paperlib.papers.settings import methods, setting

METHODS = methods("gc_fed")
OWN = ("FedAvg", "LocalGC", "GlobalGC", "GC-Fed")

DATASETS = {"emnist": "emnist_byclass"}
MODELS = {"resnet18": "resnet18_gn"}
# Rounds that the paper does not state, inferred from Table 7 and Figure 6.
ROUNDS = {"cifar10": 800, "cifar100": 800, "tinyimagenet": 1000}
# Samples of the smallest client: 1, but for EMNIST the number of classes (a default of the authors' library).
MIN_SAMPLES = {"emnist": 62}


# Methods that Table 7 wraps around others: value in the CSV -> name in the paper.
WRAPPED = {"global_gc": "GlobalGC", "gc_fed": "GC-Fed"}


def experiment(row: Mapping[str, Any], seed: int) -> Experiment:
    """The run behind a printed number, at the paper's scale.

    row: dataset, model, alpha, clients, sampled, rounds (None: not stated), method, and ``setting`` as in the CSV.
    """
    chosen, varied = setting("gc_fed", row["method"], row["dataset"]), parse(row.get("setting", ""))
    method, options = chosen.method, chosen.options
    if varied.get("mu", "none") != "none":
        options["mean"] = varied["mu"]
    if varied.get("integrate", "none") != "none":
        outer = setting("gc_fed", WRAPPED[varied["integrate"]], row["dataset"])
        if method != "fedavg":
            options["base"] = method
        method, options = outer.method, outer.options | options
    name, model, rounds = row["dataset"], row["model"], row["rounds"] or ROUNDS[row["dataset"]]
    named = {"dataset": DATASETS.get(name, name), "model": MODELS.get(model, model), "rounds": rounds}
    least = MIN_SAMPLES.get(name, 1)
    return chosen.experiment(
        {**row, **named}, seed, method=method, method_options=options, partition="dirichlet_capped", min_samples=least
    )


def experiments_of(settings: Iterable[tuple[Row, str]], seeds: int) -> list[Experiment]:
    """The runs of settings, each a row and the name of a method."""
    return [e for row, method in settings for e in runs_of(experiment, {**row, "method": method}, seeds)]


# The settings of the figures.
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
# The paper states no setting for this figure.
EVERYONE: Row = {**DYNAMICS, "alpha": 0.1, "clients": 100, "sampled": 100, "rounds": 20}


def panel_row(dataset: str, model: str, clients: int) -> Row:
    return {"dataset": dataset, "model": model, "alpha": 0.1, "clients": clients, "sampled": 5, "rounds": None}


def panel_title(dataset: str, model: str, clients: int) -> str:
    return f"{TITLES[dataset]}, {model}, 5 of {clients}"


def with_border(e: Experiment, share: float) -> Experiment:
    return e.replace(method_options={**e.method_options, "border": share})
