"""From the printed rows of a table to its cells."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import cache
from typing import Any

import pandas as pd

from paperlib.data.datasets import DATASETS
from paperlib.experiment import Experiment
from paperlib.papers.cells import Cell
from paperlib.papers.printed import printed

Row = Mapping[str, Any]
Make = Callable[[Row, int], Experiment]

TITLES = {name: info.title for name, info in DATASETS.items()} | {"emnist": "EMNIST", "tinyimagenet": "TinyImageNet"}


def printed_rows(
    paper: str,
    table: str,
    metrics: Collection[str],
    methods: Collection[str],
    where: Callable[[Row], bool] | None = None,
) -> list[dict[str, Any]]:
    """The printed numbers of a table with these metrics and methods, where ``where`` holds."""
    chosen = [row for row in all_rows(paper, table) if row["metric"] in metrics and row["method"] in methods]
    return [row for row in chosen if where is None or where(row)]


def all_rows(paper: str, table: str) -> list[dict[str, Any]]:
    """All printed numbers of a table or figure; missing fields are None."""
    return [dict(row) for row in _rows_by_table(paper).get(table, [])]


@cache
def _rows_by_table(paper: str) -> dict[str, list[dict[str, Any]]]:
    frame = printed(paper)
    by_table: dict[str, list[dict[str, Any]]] = {}
    for row in frame.astype(object).where(frame.notna(), None).to_dict("records"):
        by_table.setdefault(row["table"], []).append({str(key): value for key, value in row.items()})
    return by_table


def cells_of(
    chosen: Callable[[], Sequence[Row]],
    make: Make,
    column: Callable[[Row], str],
    row: Callable[[Row], str] | None = None,
    read: Mapping[str, str] | None = None,
    baseline: str | None = None,
) -> Callable[[int], list[Cell]]:
    """The cells of printed rows, by number of seeds.

    chosen: returns the rows; it is called late, so that importing a paper reads no file. make: (row, seed) -> run.
    column, row: place in the table (default row: the method). read: metric of the CSV -> our metric, where the names
    differ. baseline: the method whose run of the same setting and seed a relative quantity refers to.
    """

    def by_seeds(seeds: int) -> list[Cell]:
        cells = []
        for r in chosen():
            others = [] if baseline is None else runs_of(make, {**r, "method": baseline}, seeds)
            metric, label = (read or {}).get(r["metric"], r["metric"]), row(r) if row else r["method"]
            cells.append(cell_of(r, label, column(r), runs_of(make, r, seeds), metric, others))
        return cells

    return by_seeds


def cell_of(
    row: Row,
    label: str,
    column: str,
    runs: Iterable[Experiment],
    metric: str | None = None,
    baseline: Iterable[Experiment] = (),
    **how: Any,
) -> Cell:
    """The cell of a printed row at ``label`` and ``column``. metric: default the row's. how: other fields of Cell."""
    key: dict[str, object] = {"row": label, "column": column, **parse(row.get("setting"))}
    return Cell(
        key, metric or row["metric"], row["value"], row["std"], row["note"], tuple(runs), tuple(baseline),
        line=row["line"], **how,
    )  # fmt: skip


def added(label: str, column: str, metric: str, runs: Iterable[Experiment], **how: Any) -> Cell:
    """The cell of an addition of ours, which the paper does not print. how: other fields of Cell."""
    return Cell({"row": label, "column": column}, metric, None, None, "", tuple(runs), **how)


def labelled(symbol: str, field: str) -> Callable[[Row], str]:
    """The label that a printed row has by a number in it, such as "E=5"."""
    return lambda row: f"{symbol}={row[field]:g}"


def runs_of(make: Make, row: Row, seeds: int) -> list[Experiment]:
    """The runs of a row, one per seed."""
    return [make(row, seed) for seed in range(seeds)]


def federation(row: Row) -> dict[str, Any]:
    """The numeric fields of an Experiment that a row states."""
    whole = ("clients", "sampled", "rounds", "local_epochs")
    numbers = {name: int(row[name]) for name in whole if row.get(name)}
    return numbers | ({"alpha": float(row["alpha"])} if row.get("alpha") else {})


def stacked(parts: Sequence[pd.DataFrame], columns: Sequence[str]) -> pd.DataFrame:
    """These columns of all parts that have rows, concatenated; an empty table with these columns if none has."""
    full = [part for part in parts if len(part)]
    return pd.concat(full, ignore_index=True)[list(columns)] if full else pd.DataFrame(columns=list(columns))


def parse(setting: str | None) -> dict[str, str]:
    """The CSV's ``a=1;b=2`` as a dict."""
    return dict(part.split("=", 1) for part in (setting or "").split(";") if "=" in part)
