"""FedHydra: the settings of its tables and figures.

Common to all: the hyperparameters of ``data/paper/hyperparameters.csv``; the capped Dirichlet partition with at least
ten samples per client, as in DENSE, or for "2c/c" two disjoint classes per client; pixels in [0, 1], as generators make
them. A run's seed is also the seed of its partition. The paper does not say whether it reports the best or the last
epoch on the server. Its code prints the best on the test data, which data-free training does not have: we report the
last one, and the best in E1, E2 and E5. Runs at chance level are not failures: the paper prints such numbers.
"""

from typing import Any

from paperlib.experiment import Experiment
from paperlib.oneshot import REGISTRY
from paperlib.papers.rows import Row, parse
from paperlib.papers.settings import methods, setting

METHODS = methods("fedhydra")
# M1 to M5 of the heterogeneous federation; the server has ResNet-18.
CLIENT_MODELS = ("googlenet", "resnet18", "cnn3_narrow", "cnn3_plain", "lenet")
LOCAL = tuple(f"M{k + 1}" for k in range(len(CLIENT_MODELS)))
MODELS = {"mnist": "cnn2", "fmnist": "cnn2", "svhn": "cnn3", "cifar10": "cnn3"}
PARTITIONS = {"dirichlet": "dirichlet_capped", "classes_per_client": "two_classes"}


def experiment(row: Row, seed: int) -> Experiment:
    """The run behind a printed number, at the paper's scale; for a single client FedHydra's run, which evaluates it."""
    local = row["method"] in LOCAL
    chosen, varied = setting("fedhydra", "FedHydra" if local else row["method"], row["dataset"]), parse(row["setting"])
    options, partition = chosen.options, PARTITIONS[row["partition"]]
    for symbol, name in (("lambda1", "lambda_1"), ("lambda2", "lambda_2"), ("teacher", "teacher")):
        if symbol in varied:
            options[name] = varied[symbol] if symbol == "teacher" else float(varied[symbol])
            if options[name] == getattr(REGISTRY[chosen.method], name):  # then it is the run of Table 1
                del options[name]
    heterogeneous = row["model"] == "heterogeneous"
    fields: dict[str, Any] = {"model": "resnet18", "client_models": CLIENT_MODELS} if heterogeneous else {}
    if partition == "two_classes":
        fields["alpha"] = None
    return chosen.experiment(row, seed, partition=partition, min_samples=10, pixels="unit", **fields)


def place(dataset: str, alpha: float | None, method: str, **other: Any) -> Row:
    """The row of a run in the setting of Table 1; alpha None: 2c/c."""
    partition = {"partition": "classes_per_client", "alpha": 2.0} if alpha is None else {"alpha": alpha}
    return {
        "dataset": dataset, "model": MODELS[dataset], "partition": "dirichlet", "clients": 5, "sampled": 5, "rounds": 1,
        "local_epochs": 200, "setting": "", "method": method,
    } | partition | other  # fmt: skip


AVERAGED = {"setting": "teacher=ae"}  # FedHydra's student of the averaging ensemble


def longer(method: str, epochs: int = 200) -> Row:
    """The row of a run in the setting of Figure 8."""
    return place("cifar10", 0.1, method, local_epochs=epochs)
