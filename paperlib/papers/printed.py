"""The numbers the papers print, one row per number (``data/paper/<paper>.csv``)."""

import csv
import math
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import pandas as pd

from paperlib.checks import meant, one_line, quote
from paperlib.papers.catalogue import PAPERS

COLUMNS = (
    "paper", "table", "dataset", "model", "partition", "alpha", "clients", "sampled", "local_epochs", "rounds",
    "scenario", "seed", "setting", "method", "metric", "value", "std", "note",
)  # fmt: skip
NUMBERS = ("alpha", "clients", "sampled", "local_epochs", "rounds", "value", "std")


@cache
def printed(paper: str) -> pd.DataFrame:
    """All printed numbers of a paper; do not change it in place. Raises ValueError for an unknown paper, and as `read`.

    Columns: line (of the file, from 2), table, the setting (dataset, model, partition, alpha, clients, sampled,
    local_epochs, rounds, scenario, seed, setting), method, metric, value and std (in the units of the metric), note.
    Missing text is "".
    """
    check_paper(paper)
    return read(PAPERS[paper].values, paper)


def read(file: Path, paper: str) -> pd.DataFrame:
    """The printed numbers of such a file. Raises ValueError, naming file and line, for the first invalid one."""
    tables = [*PAPERS[paper].names, *PAPERS[paper].sections]
    for number, row in enumerate(rows_of(file, COLUMNS), start=2):
        place = f"{file.name}, line {number}"
        if row["paper"] != paper:
            raise ValueError(f"{place}: paper is {quote(row['paper'])}, but must be {paper!r}")
        if row["table"] not in tables:
            raise ValueError(f"{place}: unknown table {quote(row['table'])}; choose one of {', '.join(tables)}")
        for name in NUMBERS:
            if row[name] and not _is_number(row[name]):
                raise ValueError(f"{place}: {name} is {quote(row[name])}, but must be a number or empty")
        if not row["metric"]:
            raise ValueError(f"{place}: metric is '', but must say what was measured, such as test_accuracy")
    rows = pd.read_csv(file, dtype=str, keep_default_na=False)
    for name in NUMBERS:
        rows[name] = pd.to_numeric(rows[name].replace("", None))
    rows.insert(0, "line", range(2, len(rows) + 2))
    return rows


def rows_of(file: Path, columns: Sequence[str]) -> list[dict[str, str]]:
    """The rows of a CSV file by column. Raises ValueError, naming file and line, for a damaged file.

    Every row has exactly these columns, and no row occurs twice.
    """
    try:
        with file.open(newline="", encoding="utf-8") as lines:
            header, *rows = list(csv.reader(lines)) or [[]]
    except (UnicodeDecodeError, csv.Error) as error:
        raise ValueError(f"{file.name} is not a CSV file in UTF-8 ({one_line(error)})") from None
    if header != list(columns):
        raise ValueError(f"{file.name}, line 1: the columns are {quote(header)}, but must be {', '.join(columns)}")
    first_lines: dict[tuple[str, ...], int] = {}
    for number, row in enumerate(rows, start=2):
        if len(row) != len(columns):
            raise ValueError(f"{file.name}, line {number}: {len(row)} values, but there are {len(columns)} columns")
        if (first := first_lines.setdefault(tuple(row), number)) != number:
            raise ValueError(f"{file.name}, line {number}: the same as line {first}, but every row must be there once")
    return [dict(zip(columns, row, strict=True)) for row in rows]


def check_paper(paper: str) -> None:
    """Raise ValueError for an unknown paper, before its name becomes a folder's name."""
    if not isinstance(paper, str) or paper not in PAPERS:
        raise ValueError(f"unknown paper {quote(paper)}; the papers are {', '.join(PAPERS)}{meant(paper, PAPERS)}")


def _is_number(text: str) -> bool:
    try:
        return math.isfinite(float(text)) and "_" not in text
    except ValueError:
        return False


def printed_table(paper: str, table: str) -> pd.DataFrame:
    """The printed numbers of one table or figure."""
    rows = printed(paper)
    return rows[rows.table == table].reset_index(drop=True)
