"""From the printed rows of a table to its cells."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

import pandas as pd

from paperlib.experiment import Experiment
from paperlib.papers.cells import Cell
from paperlib.papers.values import printed_table

Row = Mapping[str, Any]
Make = Callable[[Row, int], Experiment]

TITLES = {
    "mnist": "MNIST",
    "fmnist": "Fashion-MNIST",
    "emnist": "EMNIST",
    "femnist": "FEMNIST",
    "svhn": "SVHN",
    "cifar10": "CIFAR-10",
    "cifar100": "CIFAR-100",
    "tinyimagenet": "TinyImageNet",
}


def rows(
    paper: str,
    table: str,
    metrics: Collection[str],
    methods: Collection[str],
    where: Callable[[Row], bool] | None = None,
) -> list[dict[str, Any]]:
    """The printed numbers of a table that runs can reproduce: of these metrics and methods, where ``where`` holds."""
    chosen = [row for row in all_rows(paper, table) if row["metric"] in metrics and row["method"] in methods]
    return [row for row in chosen if where is None or where(row)]


def all_rows(paper: str, table: str) -> list[dict[str, Any]]:
    """All printed numbers of a table or figure; what a row does not state is None."""
    printed = printed_table(paper, table)
    records = printed.astype(object).where(printed.notna(), None).to_dict("records")
    return [{str(key): value for key, value in record.items()} for record in records]


def cells(
    printed: Callable[[], Sequence[Row]],
    make: Make,
    column: Callable[[Row], str],
    row: Callable[[Row], str] | None = None,
    read: Mapping[str, str] | None = None,
    baseline: str | None = None,
) -> Callable[[int], list[Cell]]:
    """The cells of printed rows, by number of seeds.

    printed: gives the rows when the cells are asked for, so that importing a paper reads nothing. make: the run behind
    a row, by seed. column, row: where the number stands (default row: its method). read: metric of the CSV -> how we
    read it off a run, where the name differs. baseline: the method whose run of the same setting and seed a reading
    needs beside it.
    """

    def by_seeds(seeds: int) -> list[Cell]:
        made = []
        for r in printed():
            others = [] if baseline is None else runs_of(make, {**r, "method": baseline}, seeds)
            metric, label = (read or {}).get(r["metric"], r["metric"]), row(r) if row else r["method"]
            made.append(cell(r, label, column(r), runs_of(make, r, seeds), metric, others))
        return made

    return by_seeds


def cell(
    row: Row,
    label: str,
    column: str,
    runs: Iterable[Experiment],
    metric: str | None = None,
    baseline: Iterable[Experiment] = (),
    **how: Any,
) -> Cell:
    """A printed row at the place ``label``, ``column``; metric: default that of the row. how: other fields of Cell."""
    key: dict[str, object] = {"row": label, "column": column, **parse(row.get("setting"))}
    return Cell(
        key, metric or row["metric"], row["value"], row["std"], row["note"], tuple(runs), tuple(baseline),
        line=row["line"], **how,
    )  # fmt: skip


def runs_of(make: Make, row: Row, seeds: int) -> list[Experiment]:
    """The runs of a row, one per seed."""
    return [make(row, seed) for seed in range(seeds)]


def federation(row: Row) -> dict[str, Any]:
    """The fields of an Experiment that a row states as numbers."""
    whole = ("clients", "sampled", "rounds", "local_epochs")
    return {"alpha": float(row["alpha"])} | {name: int(row[name]) for name in whole}


def stacked(parts: Sequence[pd.DataFrame], columns: Sequence[str]) -> pd.DataFrame:
    """These columns of all parts below one another; an empty table with them if there are no parts."""
    return pd.concat(parts, ignore_index=True)[list(columns)] if parts else pd.DataFrame(columns=list(columns))


def parse(setting: str | None) -> dict[str, str]:
    """The CSV's ``a=1;b=2`` as a dict."""
    return dict(part.split("=", 1) for part in (setting or "").split(";") if "=" in part)
