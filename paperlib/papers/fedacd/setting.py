"""FedACD: the settings of its tables and figures.

Common to all: the hyperparameters of ``data/paper/hyperparameters.csv``, and the capped Dirichlet partition with at
least ten samples and two classes per client. The paper leaves schedule, clipping, augmentation and partition details
open; they are those of FedNH's public code, which has the same protocol. A run's seed is also that of its partition.
"""

from paperlib.experiment import Experiment
from paperlib.papers.rows import Row, parse
from paperlib.papers.settings import methods, setting

MODELS = {"cnn": "fedacd_cnn", "resnet18": "fedacd_resnet18"}
METHODS = methods("fedacd")


def experiment(row: Row, seed: int) -> Experiment:
    """The run behind a printed number, at the paper's scale."""
    chosen, varied = setting("fedacd", row["method"], row["dataset"]), parse(row["setting"])
    method, options = chosen.method, chosen.options
    # Values of the main tables are left out, so that rows of Tables 5 and 7 which repeat them are the same runs:
    # lambda is 1, and only FedACD uses mixup.
    if float(varied.get("lambda", 1)) != 1:
        options["lambda_"] = float(varied["lambda"])
    if method == "fedacd" and varied.get("mixup") == "0":
        options["mixup"] = 0.0
    elif method != "fedacd" and varied.get("mixup") == "1":
        options, method = (options | {"base": method} if method != "fedavg" else options), "mixup"
    fields = {"model": MODELS[row["model"]], "partition": "dirichlet_two_classes", "measure": ("adaptability",)}
    return chosen.experiment(row, seed, method=method, method_options=options, min_samples=10, **fields)
