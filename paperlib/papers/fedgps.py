"""FedGPS: the settings of its tables, and how they are read.

Common to all: the hyperparameters of ``data/paper/hyperparameters.csv``, and the capped Dirichlet partition with at
least ten samples per client. A scenario is a partition: scenario s has partition seed s - 1 (the authors' seeds are not
published), and a run's seed is everything else. Accuracy is the best over all rounds; the target of a scenario is
FedAvg's best, rounded down.
"""

from collections.abc import Callable
from typing import Any

from paperlib.experiment import Experiment
from paperlib.papers.cells import Cell
from paperlib.papers.fedgps_descriptions import communication_costs, hyperparameters
from paperlib.papers.gathering import Runs, there
from paperlib.papers.grid import TITLES, Row, cell, cells, federation, rows, runs_of
from paperlib.papers.report import DescriptionSpec, TableSpec
from paperlib.papers.settings import methods, setting
from paperlib.store import Run

Cells = Callable[[int], list[Cell]]
# 500 clients: no draw gives every one ten samples.
MIN_SAMPLES = {500: 1}
# Table 19 does not state them. FedDisco has no number there, nor in any other table with 100 clients.
CLASSES_PER_CLIENT = {"clients": 100, "sampled": 10, "local_epochs": 1, "rounds": 500, "scenario": 1}
PARTITIONS = {"dirichlet": "dirichlet_capped", "classes_per_client": "classes_per_client"}
METHODS = methods("fedgps")


def experiment(row: Row, seed: int) -> Experiment:
    """The run behind a printed number, at the paper's scale."""
    if row["partition"] == "classes_per_client":
        row = {**row, **CLASSES_PER_CLIENT}
    chosen = setting("fedgps", row["method"], row["dataset"])
    return Experiment(
        dataset=row["dataset"],
        model=row["model"],
        partition=PARTITIONS[row["partition"]],
        min_samples=MIN_SAMPLES.get(int(row["clients"]), 10),
        method=chosen.method,
        method_options=chosen.options,
        seed=seed,
        partition_seed=int(row["scenario"]) - 1,
        **(federation(row) | chosen.training),
    )


def centralized(row: Row, seed: int) -> Experiment:
    """FedAvg with one client that has everything, for as many epochs as a federated client that is always sampled."""
    alone = {**row, "method": "FedAvg", "clients": 1, "sampled": 1, "scenario": 1}
    return experiment(alone, seed).replace(partition="iid", alpha=None)


def printed(name: str, metric: str, named: bool = True) -> list[dict[str, Any]]:
    """The rows of a metric in a table, of methods or of none; the note is "failed" where that is what it says."""
    found = rows("fedgps", name, (metric,), METHODS if named else ("",))
    return [{**r, "note": "failed"} if r["note"].startswith("failed") else r for r in found]


def found(runs: Runs, wanted: list[Experiment], scale: str) -> list[Run]:
    """Those of the runs that are there and have not failed."""
    return [run for run in there(runs, wanted, scale) if not run.summary["failed"]]


# -- tables by scenario

NAMES = {"test_accuracy": "accuracy", "rounds_to_target": "rounds", "speedup": "speed-up"}
READ = {"test_accuracy": "best_accuracy"}


def scenario(row: Row) -> str:
    return f"scenario {row['scenario']} {NAMES[row['metric']]}"


def by_scenario(name: str) -> Cells:
    """Accuracy, rounds to the target and speed-up per scenario, their mean and spread, the targets, centralized."""

    def wanted() -> list[dict[str, Any]]:
        return sorted((r for metric in NAMES for r in printed(name, metric)), key=lambda r: r["line"])

    single = cells(wanted, experiment, scenario, read=READ, baseline="FedAvg")

    def by_seeds(seeds: int) -> list[Cell]:
        made = single(seeds)
        for r in printed(name, "mean_accuracy"):
            same = [c for c in made if c.key["row"] == r["method"] and c.metric == "best_accuracy"]
            runs = tuple(e for cell in same for e in cell.experiments)
            made.append(cell(r, r["method"], "mean accuracy", runs, "best_accuracy"))
        return made + targets(name, seeds, "scenario {} accuracy") + centralized_cells(name, seeds)

    return by_seeds


def targets(name: str, seeds: int, column: str) -> list[Cell]:
    """FedAvg's best accuracy, rounded down, per scenario."""
    found = []
    for r in printed(name, "target_accuracy", named=False):
        runs = tuple(runs_of(experiment, {**r, "method": "FedAvg"}, seeds))
        found.append(cell(r, "target", column.format(r["scenario"]), runs))
    return found


def centralized_cells(name: str, seeds: int) -> list[Cell]:
    """The best accuracy of one client that has everything; its column is its own, so that it is no rival of methods."""
    return [
        cell(
            r, "centralized", "centralized", runs_of(centralized, r, seeds),
            read=lambda run, _: run.summary["best_accuracy"],
        )
        for r in printed(name, "centralized_accuracy", named=False)
    ]  # fmt: skip


# -- Tables 20 and 21: the paper's own three seeds


def by_training_seed(name: str) -> Cells:
    """Accuracy per scenario and seed, the means over the seeds, and over both; always the three seeds of the paper.

    The target belongs to seed 0, whose runs are those of the tables by scenario.
    """

    def by_seeds(seeds: int) -> list[Cell]:
        made = []
        single = printed(name, "test_accuracy")
        for r in single:
            column = f"scenario {r['scenario']} seed {r['seed']}"
            made.append(cell(r, r["method"], column, [experiment(r, int(r["seed"]))], "best_accuracy"))
        for metric in ("mean_accuracy", "total_mean_accuracy"):
            for r in printed(name, metric):
                same = [s for s in single if s["method"] == r["method"] and r["scenario"] in ("mean", s["scenario"])]
                column = "mean" if r["scenario"] == "mean" else f"scenario {r['scenario']} mean"
                runs = tuple(experiment(s, int(s["seed"])) for s in same)
                made.append(cell(r, r["method"], column, runs, "best_accuracy"))
        return sorted(made, key=lambda c: c.line or 0) + targets(name, 1, "scenario {} seed 0")

    return by_seeds


# -- tables of single settings


def best(name: str, column: Callable[[Row], str]) -> Cells:
    """Best accuracy by method and what ``column`` says."""
    return cells(lambda: printed(name, "test_accuracy"), experiment, column, read=READ)


def place(row: Row) -> str:
    return f"{TITLES[row['dataset']]} K={row['clients']:.0f} E={row['local_epochs']:.0f}"


def scenarios(setting: str, section: str, notebook: str, name: str) -> TableSpec:
    title = f"{setting}: best accuracy (%), rounds to FedAvg's best, speed-up"
    lower = tuple(f"scenario {s} rounds" for s in range(1, 6))
    return TableSpec(title, section, notebook, by_scenario(name), lower_is_better=lower)


SILO, DEVICE = "5 of 10 clients", "10 of 100 clients"
TABLES: dict[str, TableSpec | DescriptionSpec] = {
    "T1": scenarios(f"CIFAR-10, {SILO}, α = 0.1", "5.3", "comparison", "T1"),
    "T2": scenarios(f"SVHN, {SILO}, α = 0.1", "5.3", "comparison", "T2"),
    "T3": scenarios(f"CIFAR-100, {SILO}, α = 0.1", "5.3", "comparison", "T3"),
    "T4": scenarios(f"CIFAR-10, {DEVICE}, α = 0.1", "5.3", "comparison", "T4"),
    "T5": DescriptionSpec(
        "Numbers that a client receives and sends in a round", "B.1", "communication", communication_costs,
        "Counted from what the methods' hooks hand over, for ResNet-18 and ten classes, without BatchNorm's "
        "statistics. The formulas are the paper's, with M the parameters of the method's own network: FedGPS's has an "
        "output more per class.",
        printed=("T5",),
    ),
    "T6": TableSpec(
        "Best accuracy (%) without the model-sized download (FedGPS-CF)", "B.1", "communication", best("T6", place)
    ),
    "T7": DescriptionSpec(
        "Hyperparameters of all methods", "C.2", "hyperparameters", hyperparameters,
        "What the runs on CIFAR-10 are made with. The last column has what the paper leaves open.",
    ),
    "T8": scenarios(f"SVHN, {DEVICE}, α = 0.1", "D.2", "clients", "T8"),
    "T9": scenarios(f"CIFAR-100, {DEVICE}, α = 0.1", "D.2", "clients", "T9"),
    "T10": TableSpec("Best accuracy (%) of further methods, scenario 1", "D.1", "more_baselines", best("T10", place)),
    "T11": TableSpec(
        "CIFAR-10, 50 of 500 clients, scenario 1: best accuracy (%)", "D.2", "clients", best("T11", place)
    ),
    "T12": TableSpec(
        f"CIFAR-10, vision transformer, {DEVICE}, scenario 1: best accuracy (%)", "D.2", "clients", best("T12", place)
    ),
    "T13": scenarios(f"CIFAR-10, {SILO}, 5 local epochs, α = 0.1", "D.3", "local_epochs", "T13"),
    "T14": scenarios(f"SVHN, {SILO}, 5 local epochs, α = 0.1", "D.3", "local_epochs", "T14"),
    "T15": scenarios(f"CIFAR-100, {SILO}, 5 local epochs, α = 0.1", "D.3", "local_epochs", "T15"),
    "T16": scenarios(f"CIFAR-10, {SILO}, α = 0.05", "D.5", "heterogeneity", "T16"),
    "T17": scenarios(f"CIFAR-10, {DEVICE}, α = 0.05", "D.5", "heterogeneity", "T17"),
    "T18": TableSpec(
        "CIFAR-10, 100 clients, by share sampled per round, scenario 1: best accuracy (%)", "D.4", "sampling_rate",
        best("T18", lambda row: f"{row['sampled'] / row['clients']:.0%}"),
    ),
    "T19": TableSpec(
        f"CIFAR-10, C classes per client, {DEVICE}: best accuracy (%)", "D.6", "heterogeneity",
        best("T19", lambda row: f"C={row['alpha']:.0f}"),
    ),
    "T20": TableSpec(
        f"CIFAR-10, {SILO}, three seeds: best accuracy (%)", "D.8", "seeds", by_training_seed("T20")
    ),
    "T21": TableSpec(
        f"CIFAR-10, {SILO}, 5 local epochs, three seeds: best accuracy (%)", "D.8", "seeds", by_training_seed("T21")
    ),
}  # fmt: skip
