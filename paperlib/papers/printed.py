"""The numbers the papers print, one row per number (``data/paper/<paper>.csv``)."""

import csv
import math
from collections.abc import Callable, Sequence
from functools import cache, partial
from pathlib import Path
from typing import TypeVar

import pandas as pd

from paperlib.checks import meant, one_line, one_of, quote
from paperlib.papers.catalogue import PAPERS

COLUMNS = (
    "paper", "table", "dataset", "model", "partition", "alpha", "clients", "sampled", "local_epochs", "rounds",
    "scenario", "seed", "setting", "method", "metric", "value", "std", "note",
)  # fmt: skip
Parsed = TypeVar("Parsed")
NUMBERS = ("alpha", "clients", "sampled", "local_epochs", "rounds", "value", "std")


@cache
def printed(paper: str) -> pd.DataFrame:
    """All printed numbers of a paper; do not change it in place. Raises ValueError for an unknown paper, and as `read`.

    Columns: line (of the file, from 2), table, the setting (dataset, model, partition, alpha, clients, sampled,
    local_epochs, rounds, scenario, seed, setting), method, metric, value and std (in the units of the metric), note.
    Missing text is "".
    """
    check_paper(paper)
    return read(PAPERS[paper].folder / f"{paper}.csv", paper)


def read(file: Path, paper: str) -> pd.DataFrame:
    """The printed numbers of such a file. Raises ValueError, naming file and line, for the first invalid one."""
    rows_of(file, COLUMNS, partial(_check, paper))
    rows = pd.read_csv(file, dtype=str, keep_default_na=False)
    for name in NUMBERS:
        rows[name] = pd.to_numeric(rows[name].replace("", None))
    rows.insert(0, "line", range(2, len(rows) + 2))
    return rows


def _check(paper: str, row: dict[str, str]) -> None:
    if row["paper"] != paper:
        raise ValueError(f"paper is {quote(row['paper'])}, but must be {paper!r}")
    one_of("table", row["table"], [*PAPERS[paper].names, *PAPERS[paper].sections])
    for name in NUMBERS:
        if row[name] and not _is_number(row[name]):
            raise ValueError(f"{name} is {quote(row[name])}, but must be a number or empty")
    if not row["metric"]:
        raise ValueError("metric is '', but must say what was measured, such as test_accuracy")


def rows_of(file: Path, columns: Sequence[str], parse: Callable[[dict[str, str]], Parsed]) -> list[Parsed]:
    """Read a CSV file with exactly these columns, of which no row occurs twice.

    parse: returns what stands for a row, given by column. Raises ValueError for a damaged file, and for the first row
    for which ``parse`` does; it names file and line.
    """
    try:
        with file.open(newline="", encoding="utf-8") as lines:
            header, *rows = list(csv.reader(lines)) or [[]]
    except (UnicodeDecodeError, csv.Error) as error:
        raise ValueError(f"{file.name} is not a CSV file in UTF-8 ({one_line(error)})") from None
    if header != list(columns):
        raise ValueError(f"{file.name}, line 1: the columns are {quote(header)}, but must be {', '.join(columns)}")
    first_lines: dict[tuple[str, ...], int] = {}
    parsed = []
    for number, row in enumerate(rows, start=2):
        try:
            if len(row) != len(columns):
                raise ValueError(f"{len(row)} values, but there are {len(columns)} columns")
            if (first := first_lines.setdefault(tuple(row), number)) != number:
                raise ValueError(f"the same as line {first}, but every row must be there once")
            parsed.append(parse(dict(zip(columns, row, strict=True))))
        except ValueError as error:
            raise ValueError(f"{file.name}, line {number}: {error}") from None
    return parsed


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
