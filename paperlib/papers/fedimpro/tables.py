"""FedImpro: its tables, from printed rows to cells. Accuracy is the best over all rounds."""

from collections.abc import Callable
from typing import Any

from paperlib.experiment import Experiment
from paperlib.papers.cells import Cell, Reading
from paperlib.papers.fedimpro.setting import BASIC, METHODS, centralized, experiment
from paperlib.papers.rows import TITLES, Row, added, cell_of, cells_of, parse, printed_rows, runs_of
from paperlib.papers.specs import table_specs
from paperlib.runs.store import Run

BEST = {"test_accuracy": "best_accuracy"}


def rows(name: str, *metrics: str, where: Callable[[Row], bool] | None = None) -> list[dict[str, Any]]:
    """The printed numbers of a table; targets are assigned to FedAvg, as they are its best accuracy."""
    printed = printed_rows("fedimpro", name, metrics, (*METHODS, ""), where)
    return [row | {"method": row["method"] or "FedAvg"} for row in printed]


def place(row: Row) -> str:
    part = f"{row['sampled']:.0f}/{row['clients']:.0f}"
    return f"{TITLES[row['dataset']]} a={row['alpha']:g} E={row['local_epochs']:.0f} {part}"


def table(name: str, column: Callable[[Row], str] = place, *metrics: str) -> Callable[[int], list[Cell]]:
    """The cells of a printed table; if no target is printed, it is FedAvg's level; see `goal`."""
    chosen_metrics = metrics or ("test_accuracy",)

    def printed() -> list[dict[str, Any]]:
        return rows(name, *chosen_metrics, where=lambda r: r["scenario"] != "average")

    baseline = "FedAvg" if "rounds_to_target" in chosen_metrics else None
    return cells_of(printed, experiment, column, read=BEST, baseline=baseline)


def accuracies(seeds: int) -> list[Cell]:
    """Table 1: centralized accuracy, the four settings and their average, by data set."""
    single, cells = table("T1")(seeds), []
    for dataset in dict.fromkeys(str(row["dataset"]) for row in rows("T1", "test_accuracy")):
        own = [cell for cell in single if cell.experiments[0].dataset == dataset]
        for r in printed_rows("fedimpro", "T1", ("centralized_accuracy",), ("Centralized",)):
            if r["dataset"] == dataset:
                runs = tuple(centralized(dataset, seed) for seed in range(seeds))
                cells.append(cell_of(r, "Centralized", f"{TITLES[dataset]} centralized", runs, "best_accuracy"))
        cells += own
        for r in rows("T1", "test_accuracy", where=lambda r: r["scenario"] == "average"):
            if r["dataset"] == dataset:
                runs = tuple(e for cell in own if cell.key["row"] == r["method"] for e in cell.experiments)
                cells.append(cell_of(r, r["method"], f"{TITLES[dataset]} average", runs, "best_accuracy"))
    return cells


def target(row: Row, title: str) -> str:
    """Column name by metric: target, rounds to it, or accuracy."""
    return {"target_accuracy": f"{title} target (%)", "rounds_to_target": f"{title} rounds"}.get(
        row["metric"], f"{title} (%)"
    )


def cut(row: Row) -> str:
    return f"after convolution {parse(row['setting'])['split_layer']}"


# Our addition: networks without BatchNorm need a learning rate below Table 5's and a constant w.
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
    rows: list[Row] = [{"alpha": alpha, "method": method} for alpha in (0.1, 0.05) for method in BY_CUT]
    return [added(r["method"], f"CIFAR-10 a={r['alpha']:g}", "best_accuracy", runs_of(by_cut, r, seeds)) for r in rows]


# Our addition: in the authors' code w is the number of local epochs over 500, so it ends at 2 to 4.
BY_WEIGHT: dict[str, tuple[str, dict[str, Any]]] = {
    "FedAvg": ("FedAvg", {}),
    "FedImpro": ("FedImpro", {}),
    "FedImpro, w at most 1": ("FedImpro", {"schedule": "ramp_clipped"}),
}


def weights(seeds: int) -> list[Cell]:
    """FedImpro's first setting of Table 1, as the authors run it and with the weight w clipped."""
    cells = []
    for name, (method, options) in BY_WEIGHT.items():
        runs = runs_of(experiment, {**BASIC, "method": method}, seeds)
        runs = [e.replace(method_options={**e.method_options, **options}) for e in runs]
        cells.append(added(name, place(BASIC), "best_accuracy", runs))
    return cells


# -- Table 10: numbers of other papers beside FedImpro's


COPIED = ("FedSpeed", "CCVR", "FedDF", "SphereFed")


def settled(row: Row) -> dict[str, Any]:
    """The row with the values of the basic settings that Table 10 does not print."""
    return {**row, "sampled": 5 if row["clients"] == 10 else 10, "local_epochs": 1}


def more_baselines(seeds: int) -> list[Cell]:
    """The authors copied the competitors' numbers from their papers, so only FedImpro's own can be run."""
    cells = []
    for row in printed_rows("fedimpro", "T10", ("test_accuracy",), (*METHODS, *COPIED)):
        label = row["method"] + (" (no extra data)" if "extra_data" in row["setting"] else "")
        column = f"{TITLES[row['dataset']]} a={row['alpha']:g} M={row['clients']:.0f}, {row['rounds']:.0f} rounds"
        runs = runs_of(experiment, settled(row), seeds) if row["method"] == "FedImpro" else []
        cells.append(cell_of(row, label, column, runs, "best_accuracy"))
    return cells


# -- numbers in the text: section 5.2 and appendix B


def megabytes(run: Run) -> float:
    """Megabytes that one client receives per round."""
    return float(run.history.bytes_down.iloc[0]) / run.experiment.sampled / 1e6


def statistics(run: Run, fedavg: Run | None) -> float:
    """Additional traffic of FedImpro, in kB."""
    assert fedavg is not None
    return 1e3 * (megabytes(run) - megabytes(fedavg))


def transfer(bandwidth: float, times: float, unit: float) -> Callable[[Run, Run | None], float]:
    """The time to send the model to ten clients, one after the other, so many times; bandwidth in MB/s, unit in s."""
    return lambda run, _: times * (10 * megabytes(run) / bandwidth) / unit


# metric -> description, unit, method, reading of its run (with FedAvg's as baseline); None: a given number
STATED: dict[str, tuple[str, str, str, Reading | None]] = {
    "model_size_megabytes": ("size of {model}", "MB", "FedAvg", lambda run, _: megabytes(run)),
    "estimator_size_kilobytes": ("size of the statistics", "kB", "FedImpro", statistics),
    "bandwidth_low_megabytes_per_second": ("bandwidth of the internet, from", "MB/s", "", None),
    "bandwidth_high_megabytes_per_second": ("bandwidth of the internet, to", "MB/s", "", None),
    "cluster_bandwidth_low_gigabytes_per_second": ("bandwidth of a cluster, from", "GB/s", "", None),
    "cluster_bandwidth_high_gigabytes_per_second": ("bandwidth of a cluster, to", "GB/s", "", None),
    **{
        f"{what}_{end}": (f"{rounds}, 10 clients, {speed} MB/s", unit, "FedAvg", transfer(speed, times, seconds))
        for what, rounds, unit, times, seconds in (
            ("seconds_per_round", "one round", "seconds", 1, 1), ("hours_1000_rounds", "1000 rounds", "hours", 1, 3.6),
            ("seconds_1000_rounds", "1000 rounds", "seconds", 1000, 1),
        )
        for end, speed in (("low", 10), ("high", 1))
    },
}  # fmt: skip


def gain(run: Run, other: Run | None) -> float:
    assert other is not None
    return float(run.summary["best_accuracy"] - other.summary["best_accuracy"])


def numbers_of_the_text(seeds: int) -> list[Cell]:
    """Gains in accuracy (5.2); computing time, sizes, transfer times (B). There is no ResNet-20 here."""
    cells = []
    for r in rows("S5.2", "accuracy_gain"):
        other = parse(r["setting"])["minus"]
        label = f"{r['method']} above {other}, {place(r)}"
        runs, beside = runs_of(experiment, r, seeds), runs_of(experiment, {**r, "method": other}, seeds)
        cells.append(cell_of(r, label, "points", runs, "accuracy_gain", beside, read=gain))
    for r in rows("B", "seconds"):
        label = f"computing time of {r['method']}, {place(r)}"
        runs = runs_of(experiment, {**r, "rounds": r["rounds"] or 400}, seeds)
        cells.append(cell_of(r, label, "seconds", runs, read=lambda run, _: float(run.summary["seconds"])))
    for r in rows("B", *STATED):
        label, unit, by, read = STATED[r["metric"]]
        network = {"resnet18": "ResNet-18", "resnet20": "ResNet-20"}.get(r["model"], "")
        known = read is not None and (r["metric"], r["model"]) != ("model_size_megabytes", "resnet20")
        runs = runs_of(experiment, {**BASIC, "method": by}, seeds) if known else []
        beside = runs_of(experiment, {**BASIC, "method": "FedAvg"}, seeds) if by == "FedImpro" else []
        cells.append(cell_of(r, label.format(model=network), unit, runs, baseline=beside, read=read))
    return cells


def selected(row: Row) -> str:
    return f"a={row['alpha']:g} E={row['local_epochs']:.0f} M={row['clients']:.0f}, {row['sampled']:.0f} per round"


TABLES = table_specs("fedimpro", {
    "T1": accuracies,
    "T2": table("T2", lambda r: f"{place(r)} target" if r["metric"] == "target_accuracy" else place(r),
                "target_accuracy", "rounds_to_target"),
    "T3": table("T3", cut),
    "E1": cuts_of_the_cnn,
    "E3": weights,
    "T6": table("T6"),
    "T7": table("T7", lambda r: f"σ={parse(r['setting'])['noise']}"),
    "T8": table("T8", lambda r: target(r, "FEMNIST"), "test_accuracy", "rounds_to_target"),
    "T9": table("T9", lambda r: target(r, "CIFAR-10"), "test_accuracy", "target_accuracy", "rounds_to_target"),
    "T10": more_baselines,
    "T11": table("T11", selected),
    "text": numbers_of_the_text,
})  # fmt: skip
