"""FedACD: the settings of its tables, and how they are read.

Common to all: the hyperparameters of ``data/paper/hyperparameters.csv``, and the capped Dirichlet partition with at
least ten samples per client. The paper leaves schedule, clipping, augmentation and partition details open; they are
those of FedNH's public code, which has the same protocol. A run's seed is also the seed of its partition.
"""

from typing import Any

import pandas as pd
from matplotlib.figure import Figure

from paperlib import plots
from paperlib.experiment import Experiment
from paperlib.papers.cells import Cell
from paperlib.papers.fedacd_diagrams import workflow
from paperlib.papers.gathering import Runs, there
from paperlib.papers.grid import TITLES, Row, cells, federation, parse, rows, runs_of, stacked
from paperlib.papers.report import FigureSpec, TableSpec
from paperlib.papers.settings import methods, setting

MODELS = {"cnn": "fedacd_cnn", "resnet18": "fedacd_resnet18"}
METHODS = methods("fedacd")


def experiment(row: Row, seed: int) -> Experiment:
    """The run behind a printed number, at the paper's scale."""
    chosen, varied = setting("fedacd", row["method"], row["dataset"]), parse(row["setting"])
    method, options = chosen.method, chosen.options
    # What holds in the main tables is left out, so that rows of Tables 5 and 7 which repeat it are the same runs:
    # lambda is 1, and FedACD mixes where the others do not.
    if float(varied.get("lambda", 1)) != 1:
        options["lambda_"] = float(varied["lambda"])
    if method == "fedacd" and varied.get("mixup") == "0":
        options["mixup"] = 0.0
    elif method != "fedacd" and varied.get("mixup") == "1":
        options, method = (options | {"base": method} if method != "fedavg" else options), "mixup"
    return Experiment(
        dataset=row["dataset"],
        model=MODELS[row["model"]],
        partition="dirichlet_capped",
        min_samples=10,
        method=method,
        method_options=options,
        seed=seed,
        partition_seed=seed,
        measure=("adaptability",),
        **(federation(row) | chosen.training),
    )


def column(row: Row) -> str:
    return f"{TITLES[row['dataset']]} β={row['alpha']:g}"


def mixed(row: Row) -> str:
    return f"{row['method']} {'w/' if parse(row['setting'])['mixup'] == '1' else 'w/o'} mixup"


def table(name: str, read: str, metric: str = "test_accuracy", **place: Any) -> Any:
    return cells(
        lambda: rows("fedacd", name, (metric,), METHODS),
        experiment,
        **({"column": column} | place),
        read={metric: read},
    )


# The methods of the multi-round papers in one protocol that none of them prints: 5 of 10 clients, one local epoch.
TOGETHER = ("FedAvg", "GC-Fed", "FedImpro", "FedGPS", "FedGPS, λ1 = 0.1, λg = 0.05", "FedACD")
PROTOCOL: Row = {
    "dataset": "cifar10", "model": "cnn", "clients": 10, "sampled": 5, "rounds": 400, "local_epochs": 1, "setting": "",
}  # fmt: skip


def in_protocol(row: Row, seed: int) -> Experiment:
    return experiment(row, seed).replace(model="cnn", measure=("adaptability", "weight_divergence"))


def together(read: str) -> Any:
    """Cells of the comparison in one protocol, by number of seeds."""

    def by_seeds(seeds: int) -> list[Cell]:
        made = []
        for alpha in (0.1, 0.05):
            for method in TOGETHER:
                row = {**PROTOCOL, "alpha": alpha, "method": method}
                key: dict[str, object] = {"row": method, "column": column(row)}
                made.append(Cell(key, read, None, None, "", tuple(runs_of(in_protocol, row, seeds))))
        return made

    return by_seeds


def together_experiments(seeds: int) -> list[Experiment]:
    return [e for cell in together("last10_accuracy")(seeds) for e in cell.experiments]


def together_curves(runs: Runs, scale: str, seeds: int) -> tuple[Figure, pd.DataFrame]:
    """Accuracy by round of the comparison in one protocol, smoothed over ten rounds."""
    data = []
    with plots.style():
        figure, axes = plots.panels(2, 2, (3.6, 2.8))
        for ax, alpha in zip(axes, (0.1, 0.05), strict=True):
            histories = {}
            for method in TOGETHER:
                row = {**PROTOCOL, "alpha": alpha, "method": method}
                done = there(runs, runs_of(in_protocol, row, seeds), scale)
                histories[method] = [run.history for run in done]
                for run in done:
                    curve = run.history[["round", "test_accuracy", "weight_divergence"]]
                    data.append(curve.assign(alpha=alpha, method=method, seed=run.experiment.seed))
            found = {method: of for method, of in histories.items() if of}
            ax.set_title(f"β = {alpha:g}")
            if found:
                plots.curves(ax, found, {method: method for method in found})
            else:
                plots.not_run(ax)
        if data:
            axes[1].legend(loc="upper left", bbox_to_anchor=(1, 1), fontsize=7)
    columns = ["round", "test_accuracy", "weight_divergence", "alpha", "method", "seed"]
    return figure, stacked(data, columns)


def by_lambda(row: Row) -> str:
    return f"λ={parse(row['setting'])['lambda']}"


def by_clients(row: Row) -> str:
    return f"K={row['clients']:g}, γ={parse(row['setting'])['participation']}"


def by_epochs(row: Row) -> str:
    return f"E={row['local_epochs']:g}"


TABLES = {
    "T1": TableSpec(
        "Test accuracy (%) of the global model on the balanced test set", "4.2", "comparison",
        table("T1", "final_accuracy"),
    ),
    "T2": TableSpec(
        "Test accuracy (%) of the global model on test sets with the clients' label shares", "4.2", "comparison",
        table("T2", "client_accuracy"),
    ),
    "T3": TableSpec(
        "Adaptability risk of the local models", "4.2", "comparison", table("T3", "adaptability_risk", "risk"),
        lower_is_better=True,
    ),
    "E1": TableSpec(
        "Accuracy (%, mean of the last ten rounds) in one protocol, 5 of 10 clients (our addition)",
        "4.2", "one_protocol", together("last10_accuracy"),
    ),
    "E2": TableSpec(
        "Adaptability risk of the local models of the last round in the same protocol (our addition)",
        "4.2", "one_protocol", together("adaptability_risk"), lower_is_better=True,
    ),
    "T4": TableSpec(
        "Test accuracy (%) by number of clients K and participation γ, CIFAR-100, β = 0.1", "4.3", "ablation",
        table("T4", "final_accuracy", column=by_clients),
    ),
    "T5": TableSpec(
        "Test accuracy (%) with and without input mixup", "4.3", "ablation",
        table("T5", "final_accuracy", row=mixed), rows="method",
    ),
    "T6": TableSpec(
        "Test accuracy (%) by local epochs E, CIFAR-100, β = 0.1", "4.3", "ablation",
        table("T6", "final_accuracy", column=by_epochs),
    ),
    "T7": TableSpec(
        "Test accuracy (%) by λ, the weight of L2", "4.3", "ablation", table("T7", "final_accuracy", column=by_lambda)
    ),
    "T8": TableSpec(
        "Test accuracy (%) with V and with uniform weights", "4.3", "ablation", table("T8", "final_accuracy")
    ),
    "T9": TableSpec(
        "KL of the local matrices P to the template Q (nats)", "4.3", "ablation",
        table("T9", "template_kl", "kl_to_template"), lower_is_better=True,
    ),
}  # fmt: skip
FIGURES = {
    "F1": FigureSpec("A round of FedACD", "A.1", "workflow", lambda seeds: [], workflow, kind="diagram"),
    "E3": FigureSpec(
        "Accuracy by round in one protocol, 5 of 10 clients (our addition)", "4.2", "one_protocol",
        together_experiments, together_curves,
    ),
}  # fmt: skip
