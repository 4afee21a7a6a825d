"""FedHydra: its tables, from printed rows to cells."""

import dataclasses
from collections.abc import Callable, Sequence
from itertools import product
from typing import Any

import numpy as np

from paperlib.experiment import Experiment
from paperlib.oneshot.fedhydra import AUTHORS
from paperlib.papers.cells import Cell, server_accuracy
from paperlib.papers.fedhydra.setting import LOCAL, METHODS, MODELS, experiment, place
from paperlib.papers.rows import TITLES, Row, added, all_rows, cell_of, cells_of, labelled, parse, printed_rows, runs_of
from paperlib.papers.specs import TableSpec, table_specs
from paperlib.quantities.curves import last_mean
from paperlib.runs.store import Run


def by_data(row: Row) -> str:
    return TITLES[row["dataset"]]


by_alpha, by_clients, by_round = labelled("α", "alpha"), labelled("m", "clients"), labelled("T", "rounds")


def by_both(row: Row) -> str:
    return f"{by_data(row)} {by_alpha(row)}"


def by_lambda(row: Row) -> str:
    varied = parse(row["setting"])
    return f"λ1={float(varied['lambda1']):g}, λ2={float(varied['lambda2']):g}"


def printed(name: str) -> list[dict[str, Any]]:
    return printed_rows("fedhydra", name, ("test_accuracy",), (*METHODS, *LOCAL))


def table(
    name: str, column: Callable[[Row], str], row: Callable[[Row], str] | None = None, read: str = "server_accuracy"
) -> Callable[[int], list[Cell]]:
    """The cells of a table of one-shot runs; rows M1 to M5 are accuracies of single clients."""
    cells = cells_of(lambda: printed(name), experiment, column, row, {"test_accuracy": read})

    def by_seeds(seeds: int) -> list[Cell]:
        return [_alone(cell) for cell in cells(seeds)]

    return by_seeds


def rounds_table(name: str) -> Callable[[int], list[Cell]]:
    """The cells of a table by communication rounds T, all read off the run with the most rounds."""

    def by_seeds(seeds: int) -> list[Cell]:
        rows = printed(name)
        last = max(row["rounds"] for row in rows)
        cells = cells_of(lambda: [{**row, "rounds": last} for row in rows], experiment, by_round)(seeds)
        return [
            dataclasses.replace(
                cell, key={**cell.key, "column": by_round(row)}, metric=f"server_accuracy@{row['rounds']:g}",
                chance_fails=False,
            )
            for cell, row in zip(cells, rows, strict=True)
        ]  # fmt: skip

    return by_seeds


def _alone(cell: Cell) -> Cell:
    row = str(cell.key["row"])
    metric = f"client_{LOCAL.index(row)}_accuracy" if row in LOCAL else cell.metric
    return dataclasses.replace(cell, metric=metric, chance_fails=False)


def one_epoch(name: str, column: Callable[[Row], str]) -> Callable[[int], list[Cell]]:
    """The cells of a table by the last and the best epoch, beside its printed numbers, which do not count again."""

    def by_seeds(seeds: int) -> list[Cell]:
        return [
            dataclasses.replace(cell, line=None, key={**cell.key, "row": f"{cell.key['row']}, {epoch} epoch"})
            for epoch, metric in {"last": "final_accuracy", "best": "best_accuracy"}.items()
            for cell in table(name, column, read=metric)(seeds)
        ]

    return by_seeds


AT_ONCE = ("FedAvg", "OT")  # methods without epochs on the server


def best_above_last(seeds: int) -> list[Cell]:
    """Best epoch minus the mean of the last five, mean over a table, for tables without a second one."""
    cells = []
    for method in METHODS:
        for name in ("T3", "T4", "T5", *(f"T{n}" for n in range(7, 19))):
            spec = TABLES[name]
            assert isinstance(spec, TableSpec)
            same = [cell for cell in spec.cells(seeds) if cell.key["row"] == method]
            if same and method not in AT_ONCE:
                runs = dict.fromkeys(e for cell in same for e in cell.experiments)
                cells.append(added(method, name, "points", runs, joint=_lost))
    return cells


def _lost(runs: Sequence[Run], scale: str) -> float | None:
    if any(run.summary["failed"] for run in runs):
        return None
    by_round = [accuracy for run in runs for _, accuracy in run.history.groupby("communication_round").test_accuracy]
    return float(np.mean([accuracy.max() - last_mean(accuracy.dropna().to_numpy(), 5) for accuracy in by_round]))


def leads(seeds: int) -> list[Cell]:
    """Statements about Tables 1 and 8: FedHydra's accuracy in a round minus that of the best other method."""
    cells = []
    last = max(row["rounds"] for row in printed("T8"))
    for row in all_rows("fedhydra", "text"):
        if row["metric"] != "accuracy_gap":
            continue
        round = int(row["rounds"])

        def lead(runs: Sequence[Run], scale: str, round: int = round) -> float | None:
            own, *others = [server_accuracy(run, round) for run in runs]
            known = [accuracy for accuracy in others if accuracy is not None]
            return None if own is None or len(known) < len(others) else own - max(known)

        setting = {**row, "rounds": last if round > 1 else 1}
        methods = ("FedHydra", *(method for method in METHODS if method != "FedHydra"))
        runs = tuple(e for method in methods for e in runs_of(experiment, {**setting, "method": method}, seeds))
        cells.append(cell_of(row, f"{by_both(row)}, {by_round(row)}", "points", runs, joint=lead))
    return cells


# Choices that the paper leaves open, one at a time -> options of FedHydra.
OPEN: dict[str, dict[str, Any]] = {
    "as in all tables": {},
    "student sees all batches once": {"train_on": "intermediates"},
    "student sees one batch (Algorithm 1)": {"train_on": "literal"},
    "β = 0": {"beta": 0.0},
    "generator anew in every epoch": {"reset_generator": True},
    "KL at temperature 4": {"temperature": 4.0},
}


def open_questions(seeds: int) -> list[Cell]:
    where, own = "CIFAR-10 α=0.5", place("cifar10", 0.5, "FedHydra")
    return [
        added(row, where, "server_accuracy", with_options(own, options, seeds), chance_fails=False)
        for row, options in OPEN.items()
    ]


def with_options(row: Row, options: dict[str, Any], seeds: int) -> tuple[Experiment, ...]:
    """The runs of a row, one per seed, with some options of the method replaced."""
    return tuple(e.replace(method_options={**e.method_options, **options}) for e in runs_of(experiment, row, seeds))


# Variant of a method -> the method's name in the paper, and its options.
Variants = dict[str, tuple[str, dict[str, Any]]]
STARTS: Variants = {
    "FedDF from the clients' average, as in its paper": ("FedDF", {}),
    "FedDF from a network of its own": ("FedDF", {"student_init": "fresh"}),
    "DENSE": ("DENSE", {}),
}
AGGREGATIONS: Variants = {
    "as printed (Eq. 8)": ("FedHydra", {}),
    "softmax of the logits times U_c": ("FedHydra", {"within": "softmax"}),
    "log-softmax plus log U_c": ("FedHydra", {"within": "log"}),
    "U_r only: U_c uniform": ("FedHydra", {"within": "uniform"}),
    "settings of the authors' code": ("FedHydra", AUTHORS),
    "authors' code, hard labels of weight 1": ("FedHydra", {k: v for k, v in AUTHORS.items() if k != "beta"}),
}


def variants(rows: Variants, alphas: Sequence[float | None]) -> Callable[[int], list[Cell]]:
    """The cells of variants on all data sets, beside the method's printed numbers in Tables 1 and 2."""

    def by_seeds(seeds: int) -> list[Cell]:
        printed_at = {(r["dataset"], r["partition"], r["alpha"], r["method"]): r["value"]
                      for name in ("T1", "T2") for r in printed(name)}  # fmt: skip
        cells = []
        for label, (method, options) in rows.items():
            for alpha, dataset in product(alphas, MODELS):
                row = place(dataset, alpha, method)
                value = printed_at[dataset, row["partition"], row["alpha"], method]
                column = by_both(row) if alpha else f"{by_data(row)} 2c/c"
                cell = added(label, column, "server_accuracy", with_options(row, options, seeds), chance_fails=False)
                cells.append(dataclasses.replace(cell, printed=value))
        return cells

    return by_seeds


TABLES = table_specs("fedhydra", {
    "T1": table("T1", by_both),
    "T2": table("T2", by_data),
    **{name: table(name, by_alpha) for name in ("T3", "T9")},
    **{name: table(name, by_clients) for name in ("T4", "T7")},
    "T6": table("T6", by_data, by_lambda),
    "T10": table("T10", by_data),
    **{name: rounds_table(name) for name in ("T5", "T8", *(f"T{n}" for n in range(11, 19)))},
    "E1": one_epoch("T1", by_both),
    "E2": one_epoch("T2", by_data),
    "E3": open_questions,
    "E4": leads,
    "E5": best_above_last,
    "E6": variants(STARTS, (0.5, 0.1)),
    "E7": variants(AGGREGATIONS, (0.5, None)),
})  # fmt: skip
