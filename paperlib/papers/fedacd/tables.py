"""FedACD: its tables, from printed rows to cells."""

from typing import Any

from paperlib.experiment import Experiment
from paperlib.papers.cells import Cell
from paperlib.papers.fedacd.setting import METHODS, experiment
from paperlib.papers.rows import TITLES, Row, added, cells_of, labelled, parse, printed_rows, runs_of
from paperlib.papers.specs import table_specs

by_beta, by_participants, by_epochs = labelled("β", "alpha"), labelled("K", "clients"), labelled("E", "local_epochs")


def column(row: Row) -> str:
    return f"{TITLES[row['dataset']]} {by_beta(row)}"


def mixed(row: Row) -> str:
    return f"{row['method']} {'w/' if parse(row['setting'])['mixup'] == '1' else 'w/o'} mixup"


def table(name: str, read: str, metric: str = "test_accuracy", **place: Any) -> Any:
    return cells_of(
        lambda: printed_rows("fedacd", name, (metric,), METHODS),
        experiment,
        **({"column": column} | place),
        read={metric: read},
    )


# The methods of the multi-round papers in one protocol, which no paper prints: 5 of 10 clients, one local epoch.
TOGETHER = ("FedAvg", "GC-Fed", "FedImpro", "FedGPS", "FedGPS, λ1 = 0.1, λg = 0.05", "FedACD")
PROTOCOL: Row = {
    "dataset": "cifar10", "model": "cnn", "clients": 10, "sampled": 5, "rounds": 400, "local_epochs": 1, "setting": "",
}  # fmt: skip


def in_protocol(row: Row, seed: int) -> Experiment:
    return experiment(row, seed).replace(model="cnn", measure=("adaptability", "weight_divergence"))


def together(read: str) -> Any:
    """Cells of the comparison in one protocol, by number of seeds."""

    def by_seeds(seeds: int) -> list[Cell]:
        rows = [{**PROTOCOL, "alpha": alpha, "method": method} for alpha in (0.1, 0.05) for method in TOGETHER]
        return [added(row["method"], column(row), read, runs_of(in_protocol, row, seeds)) for row in rows]

    return by_seeds


def by_lambda(row: Row) -> str:
    return f"λ={parse(row['setting'])['lambda']}"


def by_clients(row: Row) -> str:
    return f"{by_participants(row)}, γ={parse(row['setting'])['participation']}"


TABLES = table_specs("fedacd", {
    "T1": table("T1", "final_accuracy"),
    "T2": table("T2", "client_accuracy"),
    "T3": table("T3", "adaptability_risk", "risk"),
    "E1": together("last10_accuracy"),
    "E2": together("adaptability_risk"),
    "T4": table("T4", "final_accuracy", column=by_clients),
    "T5": table("T5", "final_accuracy", row=mixed),
    "T6": table("T6", "final_accuracy", column=by_epochs),
    "T7": table("T7", "final_accuracy", column=by_lambda),
    "T8": table("T8", "final_accuracy"),
    "T9": table("T9", "template_kl", "kl_to_template"),
})  # fmt: skip
