"""GC-Fed (Seo et al. 2025): the settings of its tables and figures.

Common to all: the hyperparameters of ``data/paper/hyperparameters.csv``, and the capped Dirichlet partition. A run's
seed is also the seed of its partition, as in the authors' code.
"""

from collections.abc import Mapping
from typing import Any

from paperlib.experiment import Experiment
from paperlib.papers.grid import parse
from paperlib.papers.settings import methods, setting

METHODS = methods("gc_fed")
OWN = ("FedAvg", "LocalGC", "GlobalGC", "GC-Fed")

DATASETS = {"emnist": "emnist_byclass"}
MODELS = {"resnet18": "resnet18_gn"}
# Rounds where the paper does not state them: inferred from Table 7 and Figure 6.
ROUNDS = {"cifar10": 800, "cifar100": 800, "tinyimagenet": 1000}
# The smallest client: one sample, but for EMNIST as many as classes (a default of the authors' partition library).
MIN_SAMPLES = {"emnist": 62}


# Methods that Table 7 wraps around others: in its setting -> in the paper.
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
    rounds = row["rounds"] or ROUNDS[row["dataset"]]
    return Experiment(
        dataset=DATASETS.get(row["dataset"], row["dataset"]),
        model=MODELS.get(row["model"], row["model"]),
        partition="dirichlet_capped",
        alpha=float(row["alpha"]),
        clients=int(row["clients"]),
        sampled=int(row["sampled"]),
        rounds=int(rounds),
        min_samples=MIN_SAMPLES.get(row["dataset"], 1),
        method=method,
        method_options=options,
        seed=seed,
        partition_seed=seed,
        **chosen.training,
    )
