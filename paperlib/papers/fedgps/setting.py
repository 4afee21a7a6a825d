"""FedGPS: the settings of its tables and figures.

Common to all: the hyperparameters of ``data/paper/hyperparameters.csv``, and the capped Dirichlet partition with at
least ten samples per client. A scenario is a partition: scenario s has partition seed s - 1 (the authors' seeds are not
published); the run's seed controls all other randomness. Accuracy is the best over all rounds; the target of a scenario
is FedAvg's best, rounded down, and below scale paper the mean of its last ten rounds over the seeds.
"""

from paperlib.experiment import Experiment
from paperlib.papers.rows import Row
from paperlib.papers.settings import methods, setting

# With 500 clients no draw gives each of them ten samples.
MIN_SAMPLES = {500: 1}
# Our values: Table 19 states none. FedDisco has no number there, nor in any other table with 100 clients.
CLASSES_PER_CLIENT = {"clients": 100, "sampled": 10, "local_epochs": 1, "rounds": 500, "scenario": 1}
PARTITIONS = {"dirichlet": "dirichlet_capped", "classes_per_client": "classes_per_client"}
METHODS = methods("fedgps")


def experiment(row: Row, seed: int) -> Experiment:
    """The run behind a printed number, at the paper's scale."""
    if row["partition"] == "classes_per_client":
        row = {**row, **CLASSES_PER_CLIENT}
    chosen = setting("fedgps", row["method"], row["dataset"])
    measure = ("shift",) if row["method"].startswith("FedGPS") else ()
    least, scenario = MIN_SAMPLES.get(int(row["clients"]), 10), int(row["scenario"]) - 1
    partition = PARTITIONS[row["partition"]]
    return chosen.experiment(
        row, seed, partition=partition, partition_seed=scenario, min_samples=least, measure=measure
    )


def centralized(row: Row, seed: int) -> Experiment:
    """FedAvg with one client that has all data, for as many epochs as a client that is sampled in every round."""
    alone = {**row, "method": "FedAvg", "clients": 1, "sampled": 1, "scenario": 1}
    return experiment(alone, seed).replace(partition="iid", alpha=None)
