"""FedGPS: its tables, from printed rows to cells."""

from collections.abc import Callable
from typing import Any

from paperlib.experiment import Experiment
from paperlib.papers.cells import Cell
from paperlib.papers.fedgps.setting import METHODS, centralized, experiment
from paperlib.papers.rows import TITLES, Row, added, cell_of, cells_of, printed_rows, runs_of
from paperlib.papers.specs import table_specs

Cells = Callable[[int], list[Cell]]


def printed(name: str, metric: str, named: bool = True) -> list[dict[str, Any]]:
    """The rows of a metric in a table; named: rows of methods, else rows without. Failure notes become "failed"."""
    rows = printed_rows("fedgps", name, (metric,), METHODS if named else ("",))
    return [{**r, "note": "failed"} if r["note"].startswith("failed") else r for r in rows]


# -- tables by scenario

NAMES = {"test_accuracy": "accuracy", "rounds_to_target": "rounds", "speedup": "speed-up"}
READ = {"test_accuracy": "best_accuracy"}


def scenario(row: Row) -> str:
    return f"scenario {row['scenario']} {NAMES[row['metric']]}"


def by_scenario(name: str) -> Cells:
    """Accuracy, rounds to the target and speed-up per scenario, their mean and spread, the targets, centralized."""

    def printed_by_scenario() -> list[dict[str, Any]]:
        return sorted((r for metric in NAMES for r in printed(name, metric)), key=lambda r: r["line"])

    single = cells_of(printed_by_scenario, experiment, scenario, read=READ, baseline="FedAvg")

    def by_seeds(seeds: int) -> list[Cell]:
        cells = single(seeds)
        for r in printed(name, "mean_accuracy"):
            same = [c for c in cells if c.key["row"] == r["method"] and c.metric == "best_accuracy"]
            runs = tuple(e for cell in same for e in cell.experiments)
            cells.append(cell_of(r, r["method"], "mean accuracy", runs, "best_accuracy"))
        return cells + targets(name, seeds, "scenario {} accuracy") + centralized_cells(name, seeds)

    return by_seeds


def targets(name: str, seeds: int, column: str) -> list[Cell]:
    """The accuracy to be reached, per scenario; see `paperlib.papers.cells.goal`."""
    return [
        cell_of(r, "target", column.format(r["scenario"]), runs_of(experiment, {**r, "method": "FedAvg"}, seeds))
        for r in printed(name, "target_accuracy", named=False)
    ]


def centralized_cells(name: str, seeds: int) -> list[Cell]:
    """The best accuracy of one client with all data; in its own column, so it is not ranked with the methods."""
    return [
        cell_of(
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
        cells = []
        single = printed(name, "test_accuracy")
        for r in single:
            column = f"scenario {r['scenario']} seed {r['seed']}"
            cells.append(cell_of(r, r["method"], column, [experiment(r, int(r["seed"]))], "best_accuracy"))
        for metric in ("mean_accuracy", "total_mean_accuracy"):
            for r in printed(name, metric):
                same = [s for s in single if s["method"] == r["method"] and r["scenario"] in ("mean", s["scenario"])]
                column = "mean" if r["scenario"] == "mean" else f"scenario {r['scenario']} mean"
                runs = tuple(experiment(s, int(s["seed"])) for s in same)
                cells.append(cell_of(r, r["method"], column, runs, "best_accuracy"))
        return sorted(cells, key=lambda c: c.line or 0) + targets(name, 1, "scenario {} seed 0")

    return by_seeds


# -- tables of single settings


def best(name: str, column: Callable[[Row], str]) -> Cells:
    """Best accuracy by method and what ``column`` says."""
    return cells_of(lambda: printed(name, "test_accuracy"), experiment, column, read=READ)


# -- ablation of FedGPS: Figure 4 and our addition


CROSS_SILO: Row = {
    "dataset": "cifar10", "model": "resnet18", "partition": "dirichlet", "alpha": 0.1, "clients": 10,
    "sampled": 5, "rounds": 500, "local_epochs": 1, "scenario": 1,
}  # fmt: skip
# Name -> method, changed options, changed fields of the experiment.
VARIANTS: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "FedAvg": ("FedAvg", {}, {}),
    "FedAvg, clip 10": ("FedAvg", {}, {"clip": 10.0}),
    "path only": ("FedGPS", {"surrogate": "none", "lambda_1": 0, "lambda_2": 0}, {}),
    "surrogate cross-entropy only": ("FedGPS", {"lambda_1": 0, "lambda_2": 0, "lambda_g": 0}, {}),
    "goal only": ("FedGPS", {"lambda_g": 0}, {}),
    "FedGPS": ("FedGPS", {}, {}),
    "FedGPS, preset paper": ("FedGPS", {"preset": "paper"}, {}),
}
PARTS = tuple(name for name in VARIANTS if name != "FedGPS, preset paper")
SHIFTED = ("path only", "FedGPS")


def variant(row: Row, seed: int) -> Experiment:
    method, options, fields = VARIANTS[row["method"]]
    base = experiment({**row, "method": method}, seed)
    return base.replace(method_options={**base.method_options, **options}, **fields)


def parts(seeds: int) -> list[Cell]:
    """Best accuracy with either part of FedGPS, in scenario 1 of Table 1, and the final length of the shift."""
    columns = (("scenario 1 accuracy", "best_accuracy", PARTS), ("‖e‖ / ‖v‖", "shift_ratio", SHIFTED))
    return [
        added(name, column, metric, runs_of(variant, {**CROSS_SILO, "method": name}, seeds))
        for column, metric, names in columns
        for name in names
    ]


def place(row: Row) -> str:
    return f"{TITLES[row['dataset']]} K={row['clients']:.0f} E={row['local_epochs']:.0f}"


SCENARIO_TABLES = ("T1", "T2", "T3", "T4", "T8", "T9", "T13", "T14", "T15", "T16", "T17")
TABLES = table_specs("fedgps", {
    **{name: by_scenario(name) for name in SCENARIO_TABLES},
    **{name: best(name, place) for name in ("T6", "T10", "T11", "T12")},
    **{name: by_training_seed(name) for name in ("T20", "T21")},
    "T18": best("T18", lambda row: f"{row['sampled'] / row['clients']:.0%}"),
    "T19": best("T19", lambda row: f"C={row['alpha']:.0f}"),
    "E1": parts,
})  # fmt: skip
