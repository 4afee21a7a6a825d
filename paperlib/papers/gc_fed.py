"""GC-Fed (Seo et al. 2025): the settings of its tables and figures.

Common to all: SGD with lr 0.01, momentum 0.9, weight decay 1e-5, batches of 50 that are always full, crop and flip,
capped Dirichlet partition, uniform averaging. A run's seed is also the seed of its partition, as in the authors' code.
"""

from collections.abc import Mapping
from typing import Any

from paperlib.experiment import Experiment
from paperlib.methods import REGISTRY
from paperlib.papers.grid import parse

COMMON: dict[str, Any] = {
    "partition": "dirichlet_capped", "batch_size": 50, "last_batch": "pad", "augment": True, "lr": 0.01,
    "momentum": 0.9, "weight_decay": 1e-5, "weighting": "uniform", "local_epochs": 5,
}  # fmt: skip

# Name in the paper -> method and its options there (section 3 of the specification: defaults of the authors' code).
METHODS: dict[str, tuple[str, dict[str, Any]]] = {
    "FedAvg": ("fedavg", {}),
    "FedProx": ("fedprox", {"mu": 0.1}),
    "SCAFFOLD": ("scaffold", {}),
    "FedDyn": ("feddyn", {"alpha": 0.1, "clip": 10.0, "h_scale": "1/S^2"}),
    "FedNTD": ("fedntd", {"beta": 1.0, "tau": 1.0}),
    "FedVARP": ("fedvarp", {}),
    "FedLC": ("fedlc", {"tau": 0.1}),
    "FedDecorr": ("feddecorr", {"beta": 0.001, "features": {"cnn": "fc1"}}),
    "FedSOL": ("fedsol", {"rho": 1.0, "tau": 3.0}),
    "FedACG": ("fedacg", {"variant": "2025-03", "lambda_": 0.85, "beta": 0.002}),
    "LocalGC": ("local_gc", {}),
    "GlobalGC": ("global_gc", {}),
    "GC-Fed": ("gc_fed", {}),
}
OWN = ("FedAvg", "LocalGC", "GlobalGC", "GC-Fed")

DATASETS = {"emnist": "emnist_byclass"}
MODELS = {"resnet18": "resnet18_gn"}
# Rounds where the paper does not state them: inferred from Table 7 and Figure 6.
ROUNDS = {"cifar10": 800, "cifar100": 800, "tinyimagenet": 1000}
# The smallest client: one sample, but for EMNIST as many as classes (a default of the authors' partition library).
MIN_SAMPLES = {"emnist": 62}


def experiment(row: Mapping[str, Any], seed: int) -> Experiment | None:
    """The run behind a printed number, at the paper's scale; None if its method is not implemented.

    row: dataset, model, alpha, clients, sampled, rounds (None: not stated), method, and ``setting`` as in the CSV.
    """
    method, options = METHODS[row["method"]]
    options = dict(options)
    setting = parse(row.get("setting", ""))
    if setting.get("mu", "none") != "none":
        options["mean"] = setting["mu"]
    integrate = setting.get("integrate", "none")
    if method not in REGISTRY:
        return None
    if integrate != "none":
        if method != "fedavg":
            options["base"] = method
        method = integrate
    rounds = row["rounds"] or ROUNDS[row["dataset"]]
    return Experiment(
        dataset=DATASETS.get(row["dataset"], row["dataset"]),
        model=MODELS.get(row["model"], row["model"]),
        alpha=float(row["alpha"]),
        clients=int(row["clients"]),
        sampled=int(row["sampled"]),
        rounds=int(rounds),
        min_samples=MIN_SAMPLES.get(row["dataset"], 1),
        method=method,
        method_options=options,
        seed=seed,
        partition_seed=seed,
        **COMMON,
    )
